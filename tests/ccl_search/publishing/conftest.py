"""One search, published once, for all tests of a worker; tests that change the folder take a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.ccl_search.publishing import made


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one search of three trials."""
    place = tmp_path_factory.mktemp("searched")
    made.search(place / "home", made.small_card(place / "card.yaml"), 2)
    return place / "home"


@pytest.fixture(scope="session")
def original(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That search as a published folder; not to be changed."""
    folder = tmp_path_factory.mktemp("published") / "search"
    made.published(home, folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the published folder to be spoilt."""
    return Path(shutil.copytree(original, tmp_path / "copy"))
