"""Where the store stands: the home folder, and whether its file system is one SQLite can trust."""

from __future__ import annotations

import os
import re
from pathlib import Path

from runs.errors import BadInputError

DATABASE_NAME = "ccl-search.sqlite"
_MOUNTS = Path("/proc/self/mountinfo")
# SQLite's WAL needs memory shared by all readers and byte-range locks: a file system between hosts gives neither.
_NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.beegfs", "fuse.ceph-fuse", "fuse.dfuse", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.goofys", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
        "gfs2", "glusterfs", "gpfs", "lustre", "mmfs", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs",
        "pvfs2", "smb3", "smbfs", "vboxsf", "wekafs",
    }
)  # fmt: skip


def resolve_home(home: Path | None = None) -> Path:
    """The absolute home folder: `home`, else the variable CCL_SEARCH_HOME, else `./ccl-runs`. Creates nothing."""
    chosen = home if home is not None else Path(os.environ.get("CCL_SEARCH_HOME") or "ccl-runs")
    return chosen.expanduser().absolute()


def resolve_url(home: Path, url: str | None = None) -> str:
    """The database's URL: `url`, else the variable CCL_SEARCH_STORE_URL, else the SQLite file in `home`."""
    return url or os.environ.get("CCL_SEARCH_STORE_URL") or f"sqlite:///{home / DATABASE_NAME}"


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system that holds `path` (absolute), by the text of a mountinfo file; "" when unknown."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:
            continue
        mount = Path(_unescape(parts[4]))
        if path.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), rest.split(" ")[0]
    return kind


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """Check that `path` is not on a file system shared between hosts.

    Raises:
        BadInputError: it is.
    """
    kind = file_system(path.resolve(), _read_mounts() if mounts is None else mounts)
    if kind.lower() in _NETWORK:
        raise BadInputError(
            f"{path} is on a network file system ({kind}), where SQLite loses data",
            "put --home on a local disk, or leave it there for the traces and set CCL_SEARCH_STORE_URL to a local "
            "file (sqlite:////var/tmp/NAME.sqlite) or to a database server",
        )


def _read_mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or no /proc: nothing is known
        return ""


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)
