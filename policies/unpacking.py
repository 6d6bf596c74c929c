"""Opening a published folder that somebody else made: archives unpacked with care, and nothing but plain files in it.

Nothing is read in depth before this has looked at every name and size. A folder may hold plain files and folders only:
no links, no devices, no names that leave it. Archives (`.tar`, `.tar.gz`, `.tgz`, `.zip`) are unpacked into a folder of
their own, member by member, under the same rules and with bounds on count and size.
"""

from __future__ import annotations

import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from runs.errors import BadInputError

_BLOCK = 1 << 20
_MAX_NAME = 400
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


@dataclass(frozen=True)
class FolderLimits:
    """Bounds on a folder from elsewhere: number of files, bytes of all of them, and of a file that is no trace."""

    files: int = 20_000
    total_bytes: int = 64 * 2**30
    text_bytes: int = 64 * 2**20


@contextmanager
def unpacked(path: Path, limits: FolderLimits | None = None) -> Iterator[Path]:
    """The folder at `path`, or the one packed in the archive `path` (in a temporary place that goes away at the end).

    Raises:
        BadInputError: nothing is there, or the archive holds a link, a device, a path that leaves it, or too much.
    """
    if path.is_dir():
        yield path
        return
    if not path.is_file() or not path.name.endswith(_ARCHIVES):
        raise BadInputError(
            f"{path} is no folder and no archive", f"give a folder, or a file ending in {', '.join(_ARCHIVES)}"
        )
    with tempfile.TemporaryDirectory(prefix="ccl-search-") as place:
        root = Path(place) / "unpacked"
        root.mkdir()
        try:
            (_unzip if path.name.endswith(".zip") else _untar)(path, root, limits or FolderLimits())
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError) as error:
            raise BadInputError(f"{path} cannot be unpacked: {error}", "get the archive again") from error
        yield _only_folder(root)


def list_files(root: Path, limits: FolderLimits | None = None) -> dict[str, int]:
    """Every file below `root`, by its path with `/`, with its size in bytes.

    Raises:
        BadInputError: there is a link, a device or a strange name, or there is more than the limits allow.
    """
    bounds = limits or FolderLimits()
    found: dict[str, int] = {}
    total = 0
    folders = [root]
    while folders:
        for path in sorted(_entries(folders.pop())):
            name = path.relative_to(root).as_posix()
            check_name(name)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
                continue
            if not stat.S_ISREG(status.st_mode):
                raise _hostile(name, f"is {_kind(status.st_mode)}, no plain file")
            found[name] = status.st_size
            total += status.st_size
            _check_amount(name, len(found), total, status.st_size, bounds)
    return dict(sorted(found.items()))


def check_name(name: str) -> None:
    """Check that `name` is a relative path that stays where it is put.

    Raises:
        BadInputError: it is absolute, climbs with `..`, is very long, or holds characters that no honest file has.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or (len(name) > 1 and name[1] == ":"):
        raise _hostile(name, "leaves the folder")
    if len(name) > _MAX_NAME or "\\" in name or any(not c.isprintable() for c in name):
        raise _hostile(name, "has a name that is too long or holds control characters")


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise BadInputError(f"cannot read {folder}: {error.strerror}", "check its permissions") from error


def _check_amount(name: str, count: int, total: int, size: int, limits: FolderLimits) -> None:
    if count > limits.files:
        raise _hostile(name, f"is one of more than {limits.files} files")
    if total > limits.total_bytes:
        raise _hostile(name, f"brings the folder above {limits.total_bytes} bytes")
    if "/trace/" not in f"/{name}" and size > limits.text_bytes:
        raise _hostile(name, f"has {size} bytes, at most {limits.text_bytes} are allowed")


def _untar(path: Path, root: Path, limits: FolderLimits) -> None:
    count = total = 0
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isdir() and name in (".", ""):
                continue
            check_name(name)
            if member.isdir():
                continue
            if not member.isreg():
                raise _hostile(name, "is a link or a device, no plain file")
            count, total = count + 1, total + member.size
            _check_amount(name, count, total, member.size, limits)
            source = archive.extractfile(member)
            if source is not None:
                _write(root / name, source, member.size, name)


def _unzip(path: Path, root: Path, limits: FolderLimits) -> None:
    total = 0
    with zipfile.ZipFile(path) as archive:
        for count, member in enumerate(archive.infolist(), 1):
            check_name(member.filename)
            if member.is_dir():
                continue
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _hostile(member.filename, f"is {_kind(mode)}, no plain file")
            total += member.file_size
            _check_amount(member.filename, count, total, member.file_size, limits)
            with archive.open(member) as source:
                _write(root / member.filename, source, member.file_size, member.filename)


def _write(target: Path, source: IO[bytes], size: int, name: str) -> None:
    """Copy exactly `size` bytes: what unpacks to more than it says is no archive to go on with."""
    if target.exists():
        raise _hostile(name, "is in the archive twice")
    target.parent.mkdir(parents=True, exist_ok=True)
    left = size
    with target.open("xb") as stream:
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise _hostile(name, f"unpacks to more than the {size} bytes it says")
            stream.write(block)


def _only_folder(root: Path) -> Path:
    """Where an archive holds one folder and nothing beside it, that folder."""
    inside = list(root.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else root


def _kind(mode: int) -> str:
    return "a link" if stat.S_ISLNK(mode) else "a device, pipe or socket"


def _hostile(name: str, why: str) -> BadInputError:
    shown = name if name.isprintable() else repr(name)
    return BadInputError(f"refused: {shown[:200]} {why}", "nothing was read; do not use this folder")
