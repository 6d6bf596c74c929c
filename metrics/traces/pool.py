"""Read many trace files, some of them in parallel processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metrics.traces.discover import TraceFile
from metrics.traces.timeline import Lane

Read = tuple[list[Lane], list[str]]


def read_one(file: TraceFile) -> Read:
    """The lanes of one file and the warnings about it."""
    if file.family == "kineto":
        from metrics.traces.kineto import reader

        return reader.read(file.path, file.source)
    raise ValueError(file.family)


def read_all(files: Sequence[TraceFile], cache: Path | None) -> list[Read]:
    """All files in order."""
    return [read_one(file) for file in files]
