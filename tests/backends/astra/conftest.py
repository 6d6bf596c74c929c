"""Fixtures shared by the tests of the ASTRA-sim driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.astra.rows import unpack_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded inputs, unpacked once."""
    return unpack_inputs(tmp_path_factory.mktemp("astra-inputs"))
