"""Open a Kineto file, read it, say what was lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from metrics.traces.kineto.build import lanes
from metrics.traces.kineto.stream import Contents, iterate, read_blocks
from metrics.traces.raw import Observe, blocks_of
from metrics.traces.timeline import Lane

_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_]?(\d+)|(?:^|[-_.])(\d+)(?=\.)", re.IGNORECASE)


def read(path: Path, source: str, observe: Observe | None = None) -> tuple[list[Lane], list[str]]:
    """The lanes of one file and the warnings about it, each naming the file.

    `observe` sees the bytes of the file as they are on disk (for hashing). `source` is how the user knows the file.
    """
    problems: list[str] = []
    contents = read_blocks(iterate(blocks_of(path, observe), problems))
    contents.problems[:0] = problems
    return lanes(contents, source, rank_of(contents, path)), warnings_of(contents, source)


def read_together(paths: Sequence[Path], sources: Sequence[str]) -> tuple[list[Lane], list[str]]:
    """The lanes of one rank whose events lie in several files (as `read`)."""
    whole, problems = Contents(), list[str]()
    warnings: list[str] = []
    for path, source in zip(paths, sources, strict=True):
        contents = read_blocks(iterate(blocks_of(path), problems), Contents(events=whole.events))
        contents.problems[:0] = problems
        warnings += warnings_of(contents, source)
        whole.events.dropped.clear()
        whole.events.repaired.clear()
        problems.clear()
        whole.metadata |= contents.metadata
        whole.any_event |= contents.any_event
    return lanes(whole, sources[0], rank_of(whole, paths[0])), warnings


def rank_of(contents: Contents, path: Path) -> int:
    """The rank from `distributedInfo`, else from the file name, else -1."""
    info = contents.metadata.get("distributedInfo")
    if isinstance(info, dict) and isinstance(info.get("rank"), int):
        return int(info["rank"])
    matches = list(_RANK_IN_NAME.finditer(path.name))
    return int(next(g for g in matches[0].groups() if g is not None)) if matches else -1


def warnings_of(contents: Contents, source: str) -> list[str]:
    """What a user must know about this file."""
    got = contents.events
    out = [f"{source}: {problem}" for problem in contents.problems]
    if not contents.found_list:
        out.append(f"{source}: no event list found; the file was left out")
    if contents.incomplete:
        out.append(f"{source}: incomplete, the file ends inside the event list; its whole events were used")
    out += [f"{source}: {count} event(s) ignored: {why}" for why, count in sorted(got.dropped.items())]
    out += [f"{source}: {count} event(s) repaired: {what}" for what, count in sorted(got.repaired.items())]
    return out
