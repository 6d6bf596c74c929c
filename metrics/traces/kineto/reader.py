"""Open a Kineto file, read it, say what was lost."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from metrics.traces.kineto.build import lanes
from metrics.traces.kineto.stream import Contents, iterate, read_blocks
from metrics.traces.timeline import Lane

BLOCK = 16 << 20
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_]?(\d+)|(?:^|[-_.])(\d+)(?=\.)", re.IGNORECASE)


def open_trace(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed where its first bytes say gzip (names lie).

    `isal` decompresses about twice as fast as zlib; it is used where it is installed.
    """
    with path.open("rb") as raw:
        magic = raw.read(2)
    if magic != b"\x1f\x8b":
        return path.open("rb")
    return cast("IO[bytes]", _gzip().open(str(path), "rb"))


def _gzip() -> Any:
    try:
        return import_module("isal.igzip")
    except ImportError:
        return gzip


def blocks_of(path: Path) -> Iterator[bytes]:
    """The decompressed file in blocks."""
    with open_trace(path) as stream:
        while block := stream.read(BLOCK):
            yield block


def read(path: Path, source: str, observe: Callable[[bytes], None] | None = None) -> tuple[list[Lane], list[str]]:
    """The lanes of one file and the warnings about it, each naming the file.

    `observe` sees every block (for hashing). `source` is how the user knows the file.
    """
    problems: list[str] = []
    contents = read_blocks(_observed(iterate(blocks_of(path), problems), observe))
    contents.problems[:0] = problems
    return lanes(contents, source, rank_of(contents, path)), warnings_of(contents, source)


def _observed(blocks: Iterator[bytes], observe: Callable[[bytes], None] | None) -> Iterator[bytes]:
    for block in blocks:
        if observe is not None:
            observe(block)
        yield block


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
