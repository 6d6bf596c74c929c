"""Fixtures shared by the tests of the ASTRA-sim driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.astra.programs import VARIABLES, Program, from_variable
from tests.backends.astra.rows import unpack_inputs


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that need ASTRA-sim's own programs."""
    config.addinivalue_line("markers", "astra_sim: needs ASTRA-sim's programs; skipped where none is named")


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded inputs, unpacked once."""
    return unpack_inputs(tmp_path_factory.mktemp("astra-inputs"))


def real_program(backend: str) -> Program:
    """The user's own program of a backend; the calling test is skipped where the environment names none."""
    found = from_variable(backend)
    if found is None:
        pytest.skip(f"{VARIABLES[backend]} names no program")
    return found
