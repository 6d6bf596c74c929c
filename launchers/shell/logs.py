"""Reading the logs of an attempt for evidence, within bounds whatever their size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from launchers.shell.evidence import NOTHING, Evidence, Finding, find, match, weigh

_PART = 4 * 2**20
_SHOWN = 300
_RANK_FILE = re.compile(r"rank-(\d+)\.out\Z")
_JOB_FILES = ("job.err", "job.out")


def read_evidence(folder: Path, per_node: bool = True) -> Evidence:
    """What the logs in an attempt's folder say: those of ranks (or nodes, if `per_node`), then the job's own."""
    found = weigh(finding for finding in _all(folder, per_node) if finding is not None)
    if found is not NOTHING:
        return found
    paths = [*sorted(folder.glob("rank-*.out")), folder / "job.err"]
    ends = ((path.name, last_line(path)) for path in paths)
    told = (f"no error found; {name} ends with: {line[:_SHOWN]}" for name, line in ends if line and match(line) is None)
    return next((Evidence(None, text) for text in told), found)


def _all(folder: Path, per_node: bool) -> Iterator[Finding | None]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        rank = _RANK_FILE.search(path.name)
        if rank:
            number = int(rank.group(1))
            yield find(lines(path), node=number) if per_node else find(lines(path), rank=number)
    for name in _JOB_FILES:
        yield find(lines(folder / name))


def lines(path: Path) -> Iterator[str]:
    """The lines of a file; of one larger than 8 MiB the first and the last 4 MiB."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(_PART if size > 2 * _PART else 2 * _PART)
            tail = b""
            if size > 2 * _PART:
                stream.seek(size - _PART)
                tail = stream.read()
    except OSError:
        return
    yield from head.decode("utf-8", errors="replace").splitlines()
    yield from tail.decode("utf-8", errors="replace").splitlines()


def last_line(path: Path) -> str:
    """The last line of a file that is not blank; empty where there is none."""
    found = ""
    for line in lines(path):
        found = line.strip() or found
    return found
