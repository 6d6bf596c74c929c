"""Read the files of a trace: from the cache, here, or in parallel processes when there is enough to read.

Workers are fresh interpreters that take a list of files on stdin and leave one blob for each, so that neither the
caller's threads nor its `__main__` matter (as they do with fork and spawn). Each holds one file at a time and streams
it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from metrics.traces import codec
from metrics.traces.cache import Cache, Digest
from metrics.traces.discover import TraceFile
from metrics.traces.raw import Observe
from metrics.traces.timeline import Lane
from runs.digests import file_sha256

Read = tuple[list[Lane], list[str]]
PARALLEL_FROM = 48 << 20  # bytes to read, below which starting an interpreter costs more than it saves
_GZIP_RATIO = 10


def read_one(file: TraceFile, observe: Observe | None = None) -> Read:
    """The lanes of one file and the warnings about it."""
    if file.family == "kineto":
        from metrics.traces.kineto import reader

        return reader.read(file.path, file.source, observe)
    if file.family == "nsys":
        from metrics.traces import nsys

        return nsys.read(file.path, file.source)
    from metrics.traces.xla import reader as xla

    return xla.read_xplane(file.path, file.source) if file.family == "xplane" else xla.read(file.path, file.source)


def read_all(files: Sequence[TraceFile], cache: Path | None) -> list[Read]:
    """All files, in order."""
    store = Cache(cache) if cache is not None else None
    done: dict[int, Read] = {}
    for number, file in enumerate(files):
        found = _cached(store, file)
        if found is not None:
            done[number] = found
    todo = [number for number in range(len(files)) if number not in done]
    workers = _workers([files[number] for number in todo])
    if workers > 1:
        done |= _in_parallel(files, todo, workers, store)
    for number in todo:
        if number not in done:
            done[number] = read_and_keep(files[number], store)
    return [done[number] for number in range(len(files))]


def _cached(store: Cache | None, file: TraceFile) -> Read | None:
    if store is None:
        return None
    blob = store.get(file.path)
    if blob is None:
        return None
    try:
        lanes, warnings = codec.decode(blob)
    except ValueError:
        store.drop(file.path)
        return None
    return _named(lanes, warnings, file)


def _named(lanes: list[Lane], warnings: list[str], file: TraceFile) -> Read:
    """The same content under the name by which the user knows it now."""
    old = lanes[0].source if lanes else file.source
    for lane in lanes:
        lane.source = file.source
    return lanes, [file.source + w.removeprefix(old) if w.startswith(old) else w for w in warnings]


def read_and_keep(file: TraceFile, store: Cache | None) -> Read:
    """Read one file, and store its columns where there is a cache."""
    if store is None:
        return read_one(file)
    digest = Digest()
    streamed = file.family == "kineto"
    found = read_one(file, digest.feed if streamed else None)
    store.put(file.path, digest.hex() if streamed else file_sha256(file.path), codec.encode(*found))
    return found


def _workers(files: Sequence[TraceFile]) -> int:
    size = sum(_work(file) for file in files)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, len(files), 16) if size >= PARALLEL_FROM else 1


def _work(file: TraceFile) -> int:
    return file.path.stat().st_size * (_GZIP_RATIO if file.path.suffix == ".gz" else 1)


def _in_parallel(files: Sequence[TraceFile], todo: list[int], workers: int, store: Cache | None) -> dict[int, Read]:
    """What the workers could read; a file whose worker failed is missing, and is read here."""
    shares: list[list[int]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for number in sorted(todo, key=lambda n: -_work(files[n])):
        least = loads.index(min(loads))
        shares[least].append(number)
        loads[least] += _work(files[number])
    with tempfile.TemporaryDirectory(prefix="ccl-search-traces-") as folder:
        running = [_start([(n, files[n]) for n in share], Path(folder), store) for share in shares]
        try:
            for process in running:
                process.wait()
        finally:
            for process in running:
                process.kill()
        return {n: codec.decode(blob.read_bytes()) for n in todo if (blob := Path(folder, str(n))).exists()}


def _start(share: list[tuple[int, TraceFile]], folder: Path, store: Cache | None) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "metrics.traces.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    task = {
        "folder": str(folder), "cache": str(store.folder) if store else None,
        "files": [[number, str(file.path), file.source, file.family] for number, file in share],
    }  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(msgspec.json.encode(task))
    return process
