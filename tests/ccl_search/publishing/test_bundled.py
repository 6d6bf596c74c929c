"""The published searches that come with the product hold against their own evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccl_search.publishing.verifying import verify
from policies.reading import bundled_names, bundled_path, open_published
from runs.errors import BadInputError
from tests.ccl_search.cli import Cli

FIVE_MB = 5_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_search_holds_and_is_small(name: str) -> None:
    with open_published(bundled_path(name)) as published:
        found = verify(published)
        assert sum(published.files.values()) < FIVE_MB

    assert (found.status, found.findings) == ("verified", [])
    assert found.trials == found.policies >= 15


def test_the_bundled_searches_are_listed(cli: Cli) -> None:
    rows = cli("policies", "list", "--json").document

    assert [row["name"] for row in rows] == list(bundled_names())
    assert all(Path(row["path"]).joinpath("policy.py").is_file() for row in rows)


def test_a_name_that_is_none_lists_those_there_are() -> None:
    with pytest.raises(BadInputError, match="no published search is called 'wl99'"):
        bundled_path("wl99")
