"""Fixtures of the search's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ccl_search.cli import Cli


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line with a home of its own."""
    return Cli(tmp_path / "home", capsys, monkeypatch)
