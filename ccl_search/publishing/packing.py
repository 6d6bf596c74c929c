"""How a file of a trace lies in a published folder: folded, gzipped or as it is; and getting it back."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from ccl_search.publishing import folding
from runs.errors import BadInputError

Packing = Literal["folded", "gzip", "plain", "hash"]
FOLD_SUFFIX, GZIP_SUFFIX = ".folded.gz", ".gz"
LARGE_BYTES = 1 << 28
"""Files from this size on are packed in blocks, without folding."""

_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")
_BLOCK = 1 << 20
_MAGIC = b"\x1f\x8b"
_BEST = 9
_SPARE = 1 << 16


@dataclass(frozen=True)
class PackedFile:
    """A trace file of a trial. `path`, `size` and `sha256` are those of the file as it was recorded (or, in an
    anonymised folder, as it was rewritten); `file` is where it lies, relative to the trial's folder, and `packing` how.
    With packing `hash` only these facts are published. Of a file that was recorded gzipped (`zipped`), size and hash
    are those of what it holds: the same content, gzipped elsewhere, is another file and the same trace."""

    path: str
    size: int
    sha256: str
    packing: Packing
    file: str | None = None
    zipped: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def pack(data: bytes, path: str, fold: bool = True) -> tuple[PackedFile, bytes]:
    """The file's facts and the bytes to be written: the smallest form that gives back `data` exactly.

    gzip is deterministic: level 9, no name, no time.
    """
    content = _content(data, path)
    zipped = content is not None
    inner = data if content is None else content
    facts = path, len(inner), hashlib.sha256(inner).hexdigest()
    if content is None and path.endswith(_PACKED):
        return PackedFile(*facts, "plain", path), data
    folded = folding.fold(inner) if fold else None
    name = path.removesuffix(GZIP_SUFFIX) if zipped else path
    if folded is not None:
        return PackedFile(*facts, "folded", name + FOLD_SUFFIX, zipped), gzip.compress(folded, 9, mtime=0)
    return PackedFile(*facts, "gzip", name + GZIP_SUFFIX, zipped), gzip.compress(inner, 9, mtime=0)


def pack_large(source: Path, path: str, folder: Path) -> PackedFile:
    """As `pack`, for a file that is too large for memory: written below `folder` in blocks, never folded."""
    plain = path.endswith(_PACKED)
    target = folder / (path if plain else path + GZIP_SUFFIX)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as stream, target.open("wb") as file, _writer(file, not plain, _BEST) as out:
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
            out.write(block)
    name = target.relative_to(folder).as_posix()
    return PackedFile(path, size, digest.hexdigest(), "plain" if plain else "gzip", name)


def _content(data: bytes, path: str) -> bytes | None:
    """What a gzipped file holds; None where it is none, or not whole."""
    if not path.endswith(GZIP_SUFFIX) or data[:2] != _MAGIC:
        return None
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None


def unpack(packed: PackedFile, directory: Path, target: Path, zip_again: bool = False) -> None:
    """Restore a trace file below the folder `target`, and check its size and its SHA-256 on the way.

    A file that was recorded gzipped is gzipped again only with `zip_again`; readers tell by the content, not the name.

    Raises:
        BadInputError: it is not published, is damaged, or is not the file its facts describe.
    """
    if packed.file is None:
        raise BadInputError(f"{packed.path} is not published, only its hash", "ask its publisher for the trace")
    source, place = directory / packed.file, target / packed.path
    place.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    try:
        with place.open("wb") as file, _writer(file, packed.zipped and zip_again) as stream:
            for block in _restored(packed, source):
                size += len(block)
                if size > packed.size:
                    raise ValueError(f"it unpacks to more than the {packed.size} bytes it should")
                digest.update(block)
                stream.write(block)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadInputError(f"{packed.file} cannot be unpacked: {error}", "get the folder again") from error
    if size != packed.size or digest.hexdigest() != packed.sha256:
        raise BadInputError(
            f"{packed.file} is not the trace it should be: SHA-256 {digest.hexdigest()}, recorded {packed.sha256}",
            "get the folder again",
        )


@contextmanager
def _writer(file: IO[bytes], zipped: bool, level: int = 1) -> Iterator[IO[bytes]]:
    if not zipped:
        yield file
        return
    with gzip.GzipFile("", "wb", level, file, mtime=0) as stream:
        yield cast("IO[bytes]", stream)


def _restored(packed: PackedFile, source: Path) -> Iterator[bytes]:
    if packed.packing == "plain":
        with source.open("rb") as stream:
            while block := stream.read(_BLOCK):
                yield block
    elif packed.packing == "gzip":
        with gzip.open(source) as zipped:
            while block := zipped.read(_BLOCK):
                yield block
    else:
        yield folding.unfold(_bounded(source, 2 * packed.size + _SPARE), packed.size)


def _bounded(source: Path, most: int) -> bytes:
    with gzip.open(source) as zipped:
        data = zipped.read(most + 1)
    if len(data) > most:
        raise ValueError("the folded trace is larger than the trace itself")
    return data


def from_dict(data: Any, where: str) -> PackedFile:
    """Read the facts of a published trace file.

    Raises:
        BadInputError: they are incomplete, or a path leads out of the trial's folder.
    """
    from policies.unpacking import check_name

    try:
        found = PackedFile(**data)
    except TypeError as error:
        raise BadInputError(f"{where}: a trace file is described wrongly: {error}", "get the folder again") from error
    kinds = (found.path, str), (found.size, int), (found.sha256, str), (found.packing, str), (found.zipped, bool)
    if any(type(value) is not kind for value, kind in kinds) or found.size < 0:
        raise BadInputError(f"{where}: a trace file is described wrongly: {data!r}"[:300], "get the folder again")
    if found.packing not in ("folded", "gzip", "plain", "hash") or (found.file is None) != (found.packing == "hash"):
        raise BadInputError(f"{where}: {found.path} has the packing {found.packing[:40]!r}", "get the folder again")
    for name in filter(None, (found.path, found.file)):
        check_name(name)
    if "/trace/" not in f"/{found.path}":
        raise BadInputError(f"{where}: {found.path} is not below a folder `trace`", "get the folder again")
    return found
