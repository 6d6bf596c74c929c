"""The bytes of a trace file, decompressed where it is compressed, and hashed on the way where somebody wants the
hash."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

BLOCK = 4 << 20
Observe = Callable[[bytes], None]


class _Observed(io.RawIOBase):
    """A binary file that shows every byte read to an observer."""

    def __init__(self, path: Path, observe: Observe) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._observe = observe

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self._observe(memoryview(buffer)[:count].tobytes())
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def is_gzip(path: Path) -> bool:
    """Whether the first bytes say gzip; names lie."""
    with path.open("rb") as raw:
        return raw.read(2) == b"\x1f\x8b"


def open_trace(path: Path, observe: Observe | None = None) -> IO[bytes]:
    """The decompressed file. `observe` sees the bytes as they are on disk.

    `isal` decompresses about twice as fast as zlib; it is used where it is installed.
    """
    packed = is_gzip(path)
    raw: Any = path.open("rb") if observe is None else io.BufferedReader(_Observed(path, observe), BLOCK)
    return cast("IO[bytes]", _gzip().open(raw, "rb") if packed else raw)


def _gzip() -> Any:
    try:
        return import_module("isal.igzip")
    except ImportError:
        return gzip


def blocks_of(path: Path, observe: Observe | None = None) -> Iterator[bytes]:
    """The decompressed file in blocks."""
    with open_trace(path, observe) as stream:
        while block := stream.read(BLOCK):
            yield block
