"""One rank's events spread over several files of one folder are one trace: launches in one file belong to kernels in
another.

Copies of one file have events in common and are not joined (one of them is used and the user is told); files of two
processes are not (see `metrics.traces.replicas`); files in different folders are captures of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

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
        if len(numbers) > 1 and not any(share(a, b) or two_processes(a, b) for a, b in combinations(parts, 2)):
            own = [files[n] for n in numbers]
            yield own[0], reader.read_together([f.path for f in own], [f.source for f in own])
        else:
            yield from ((files[n], found[n]) for n in numbers)


def two_processes(some: Sequence[Lane], others: Sequence[Lane]) -> bool:
    """Whether two files hold host events, and those of one are of other processes than those of the other."""
    a, b = ({process for lane in lanes for process in lane.facts.get("processes", ())} for lanes in (some, others))
    return bool(a and b) and not a & b


def share(some: Sequence[Lane], others: Sequence[Lane]) -> bool:
    """Whether one file records mostly what the other records too: a copy, perhaps a shorter one, not another part."""
    a, b = _recorded(some), _recorded(others)
    return bool(a and b) and len(a & b) > min(len(a), len(b)) / 2


def _recorded(lanes: Sequence[Lane]) -> set[tuple[object, ...]]:
    """Everything with a time on the device, and the steps."""
    out: set[tuple[object, ...]] = set()
    for lane in lanes:
        k, c, s = lane.kernels, lane.copies, lane.steps
        named = (lane.names[i] for i in k.name.tolist())
        out |= {(lane.device, *row) for row in zip(named, k.start.tolist(), k.end.tolist(), strict=True)}
        out |= {(lane.device, *row) for row in zip(c.kind.tolist(), c.start.tolist(), c.end.tolist(), strict=True)}
        out |= set(zip(s.start.tolist(), s.end.tolist(), strict=True))
    return out
