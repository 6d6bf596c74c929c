"""Fixtures of the policy tests."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.policies.arena import Arena
from tests.policies.attacks import SECRET, SECRET_VARIABLE

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    """A place for attacks; orphans of attacks become children of this process, so that none goes unseen."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the attacks are judged by /proc, which is on Linux only")
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    place = Arena(tmp_path)
    yield place
    place.listener.close()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
