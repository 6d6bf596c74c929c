"""One rank's events spread over several files of one folder are one trace: launches in one file belong to kernels in
another.

Copies of one file have events in common and are not joined (one of them is used and the user is told); files in
different folders are captures of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from metrics.traces.discover import TraceFile
from metrics.traces.kineto import reader
from metrics.traces.timeline import Lane

Found = tuple[TraceFile, tuple[list[Lane], list[str]]]


def joined(files: Sequence[TraceFile], found: Sequence[tuple[list[Lane], list[str]]]) -> Iterator[Found]:
    """The files with what was read from them; files that are parts of one rank are read again, together, as one."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number, (file, (lanes, _)) in enumerate(zip(files, found, strict=True)):
        rank = lanes[0].rank if file.family == "kineto" and lanes else -1
        groups[(file.path.parent, rank) if rank >= 0 else number].append(number)
    for numbers in groups.values():
        parts = [found[n][0] for n in numbers]
        if len(numbers) > 1 and not any(_share(a, b) for a, b in combinations(parts, 2)):
            own = [files[n] for n in numbers]
            yield own[0], reader.read_together([f.path for f in own], [f.source for f in own])
        else:
            yield from ((files[n], found[n]) for n in numbers)


def _share(some: list[Lane], others: list[Lane]) -> bool:
    """Whether two files record the same kernel, copy or step."""
    return any(_common(a, b) for a in some for b in others if a.device == b.device)


def _common(a: Lane, b: Lane) -> bool:
    tables = (a.kernels, b.kernels), (a.copies, b.copies), (a.steps, b.steps)
    for one, other in tables:
        times = (np.stack([t.start, t.end], axis=1) for t in (one, other))
        if {tuple(t) for t in next(times).tolist()} & {tuple(t) for t in next(times).tolist()}:
            return True
    return False
