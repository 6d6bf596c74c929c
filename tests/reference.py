"""Where the reference data stands: a folder `shared` beside the repository, in CI and on developers' machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_path(relative: str) -> Path:
    """The path of a reference file; where the data is absent the calling test is skipped, or fails if CI demands it."""
    path = _SHARED / relative
    if not path.exists():
        if os.environ.get("CCL_SEARCH_REQUIRE_REFERENCE"):
            pytest.fail(f"reference data is missing: {relative}")
        pytest.skip(f"reference data is absent: {relative}", allow_module_level=True)
    return path
