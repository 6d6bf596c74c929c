"""The writer lock: one process writes to a store, and a second one is told which."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from runs.store.errors import StoreError, StoreLockedError

_TRIES = 5  # a reader that asks who writes holds the lock for an instant


class WriterLock:
    """An advisory lock on a file that holds the writer's process id; the kernel frees it when the process ends."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another process (or this one, twice) holds it.
            StoreError: the lock file cannot be made.
        """
        self.path = path
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"cannot write beside the store: {path}: {error.strerror}", "check the folder's permissions and disk"
            ) from error
        if not any(self._try(0.0 if number == 0 else 0.02) for number in range(_TRIES)):
            self._close()
            raise _locked(path)
        self._sign()

    def release(self) -> None:
        """Free the lock; a second call does nothing. The file stays, empty."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            self._close()

    def _try(self, wait: float) -> bool:
        assert self._file is not None
        time.sleep(wait)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _sign(self) -> None:
        assert self._file is not None
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self._close()
            raise StoreError(f"cannot write {self.path}: {error.strerror}", "free space on that disk") from error

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_held(path: Path) -> bool:
    """Whether a writer holds the lock at `path`; False where that cannot be asked."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def holder(path: Path) -> int | None:
    """The process id of the writer that holds the lock at `path`, None when nobody does or it is not known."""
    return _read_pid(path) if is_held(path) else None


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _locked(path: Path) -> StoreLockedError:
    pid = _read_pid(path)
    who = "another process" if pid is None else "this process already" if pid == os.getpid() else f"process {pid}"
    return StoreLockedError(
        f"the store {path.parent} is being written by {who}",
        "wait for that search, end it, or use another --home; reading is always possible",
        pid,
    )
