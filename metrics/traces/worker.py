"""A process that reads trace files for another: the task as JSON on stdin, one blob a file in the folder it names."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from metrics.traces import codec
from metrics.traces.cache import Cache
from metrics.traces.discover import TraceFile
from metrics.traces.pool import read_and_keep


class Task(msgspec.Struct):
    """Files to read as (number, path, source, family), where to leave the blobs, and the cache's folder."""

    folder: str
    files: list[tuple[int, str, str, str]]
    cache: str | None = None


def main() -> None:
    """Read every file of the task."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    store = Cache(Path(task.cache)) if task.cache else None
    for number, path, source, family in task.files:
        found = read_and_keep(TraceFile(Path(path), source, family), store)
        blob = Path(task.folder, str(number))
        part = blob.with_suffix(".part")
        part.write_bytes(codec.encode(*found))
        part.rename(blob)


if __name__ == "__main__":
    main()
