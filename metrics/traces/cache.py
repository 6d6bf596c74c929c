"""Columns of traces already read, addressed by content, so that the second metric costs nothing.

An entry is named by the file's size, the SHA-256 of its bytes, its name (ranks may come from it) and the reader's
version. An index by path, size and modification time saves hashing an unchanged file; a file whose time is too fresh
to tell a later change from (`_SETTLED`) is hashed again. Entries are written under another name and renamed, so that
a reader never sees half.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from runs.digests import file_sha256

READER_VERSION = 5
_SETTLED = 1.0


def key_of(path: Path, digest: str) -> str:
    """The name of the entry for a file with this content."""
    name = hashlib.blake2b(path.name.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return f"{path.stat().st_size}-{digest}-{name}.v{READER_VERSION}"


class Cache:
    """A folder of entries. Every failure to read or write it is a miss, never an error: the trace itself is at hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, path: Path) -> bytes | None:
        """The stored columns of this file's present content, or None."""
        digest = self._known_digest(path) or (file_sha256(path) if self._maybe(path) else None)
        if digest is None:
            return None
        try:
            blob = (self.folder / key_of(path, digest)).read_bytes()
        except OSError:
            return None
        self._remember(path, digest)
        return blob

    def put(self, path: Path, digest: str, blob: bytes) -> None:
        """Store the columns of a file whose content has this digest."""
        self._write(self.folder / key_of(path, digest), blob)
        self._remember(path, digest)

    def drop(self, path: Path) -> None:
        """Forget an entry that cannot be decoded."""
        digest = self._known_digest(path) or file_sha256(path)
        with contextlib.suppress(OSError):
            (self.folder / key_of(path, digest)).unlink()

    def _maybe(self, path: Path) -> bool:
        """Whether any entry has this file's size: only then is it worth hashing before reading."""
        return any(self.folder.glob(f"{path.stat().st_size}-*.v{READER_VERSION}"))

    def _note(self, path: Path) -> Path:
        place = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=12).hexdigest()
        return self.folder / "index" / place

    def _known_digest(self, path: Path) -> str | None:
        try:
            size, changed, digest = msgspec.json.decode(self._note(path).read_bytes(), type=tuple[int, int, str])
        except (OSError, msgspec.MsgspecError):
            return None
        now = path.stat()
        return digest if (now.st_size, now.st_mtime_ns) == (size, changed) else None

    def _remember(self, path: Path, digest: str) -> None:
        now = path.stat()
        if time.time() - now.st_mtime > _SETTLED:
            self._write(self._note(path), msgspec.json.encode((now.st_size, now.st_mtime_ns, digest)))

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(path)


class Digest:
    """A running SHA-256 to be fed with the bytes of a file as they are read."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.feed: Callable[[bytes], None] = self._hash.update

    def hex(self) -> str:
        """The digest so far."""
        return self._hash.hexdigest()
