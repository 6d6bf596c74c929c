"""A store to write to, in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.store import Store


@pytest.fixture(autouse=True)
def no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CCL_SEARCH_STORE_URL", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "it's a home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(home, write=True, metric_columns=["avg_step_time", "mfu", "num_xpus"]) as opened:
        yield opened
