"""Putting an imported run's files together aside, and moving them into place when everything else is done."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runs.store import Store

KIND = "imported"
ORIGIN = "imported"
"""The option of an imported run that says where it comes from: run id, SHA-256 of the manifest, what was verified."""


@contextmanager
def staged(store: Store) -> Iterator[Path]:
    """A folder in the store's home that a run's trials are put together in; whatever is left of it goes away."""
    folder = store.home / "incoming" / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place(store: Store, staging: Path, run_id: str) -> None:
    """Move staged trials to where the run's trials lie: the last step of a transaction."""
    target = store.home / "runs" / run_id
    target.mkdir(parents=True, exist_ok=True)
    staging.rename(target / "trials")
