"""The bytes of a trace file, decompressed where it is compressed, and shown to whoever hashes them on the way."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any

BLOCK = 4 << 20
_PACKED_BLOCK = 512 << 10
_MAGIC = b"\x1f\x8b"
_GZIP = 31  # window bits that make zlib expect a gzip header
Observe = Callable[[bytes], None]


def blocks_of(path: Path, observe: Observe | None = None) -> Iterator[bytes]:
    """The decompressed file in blocks; `observe` sees the bytes as they are on disk.

    Whether a file is compressed is told by its first bytes, because names lie. A compressed file that ends early or is
    damaged gives what it holds before the error.

    Raises:
        EOFError: the compressed data end early or are damaged.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        packed = stream.read(2) == _MAGIC
        stream.seek(0)
        blocks = _on_disk(stream, _PACKED_BLOCK if packed else BLOCK, observe)
        yield from _inflated(blocks) if packed else blocks


def _on_disk(stream: IO[bytes], size: int, observe: Observe | None) -> Iterator[bytes]:
    while block := stream.read(size):
        if observe is not None:
            observe(block)
        yield block


def _inflated(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The members of a gzip file, one after the other; zeros that pad its end are no member."""
    module = _zlib()
    inflate: Any = None
    open_member = False
    for block in blocks:
        rest = block
        while rest:
            inflate = inflate if open_member else module.decompressobj(wbits=_GZIP)
            try:
                data = inflate.decompress(rest)
            except module.error as error:
                raise EOFError(f"damaged gzip data ({error})") from error
            if data:
                yield data
            open_member = not inflate.eof
            rest = b"" if open_member else inflate.unused_data.lstrip(b"\0")
    if open_member:
        raise EOFError("the gzip data end early")


def _zlib() -> Any:
    """`isal` decompresses about twice as fast as zlib; it is used where it is installed."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return zlib


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of the decompressed file; fewer when it is shorter, damaged or unreadable."""
    parts, have = [], 0
    try:
        for block in blocks_of(path):
            parts.append(block)
            have += len(block)
            if have >= size:
                break
    except (EOFError, OSError):
        pass
    return b"".join(parts)[:size]
