"""What can go wrong with the store, as errors a user can act on."""

from __future__ import annotations

from runs.errors import CclSearchError


class StoreError(CclSearchError):
    """The store cannot be opened, read or written, or was asked for a change that contradicts what it holds."""


class StoreLockedError(StoreError):
    """Another process writes to the store; `pid` is its process id, None when the lock file does not tell."""

    def __init__(self, message: str, hint: str, pid: int | None) -> None:
        super().__init__(message, hint)
        self.pid = pid
