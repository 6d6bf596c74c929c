"""Fixtures for all tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from policies.monty_runner import MontyRunner

_DAEMONS = frozenset({"cluster", "bare_cluster", "all_workers"})
_LOOPBACK = ("127.", "::1", "localhost", "/")

# Examples have no time limit of their own: the other tests share the cores.
settings.register_profile("shared-cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-cores")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of real daemons may be tried twice: on a loaded machine they answer late. The report lists what was."""
    for item in items:
        if isinstance(item, pytest.Function) and _DAEMONS & set(item.fixturenames):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach anything but this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        host = address if isinstance(address, str) else str(address[0])
        if self.family in (socket.AF_INET, socket.AF_INET6) and not host.startswith(_LOOPBACK):
            raise AssertionError(f"a test tried to connect to {address!r}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own settings leaks into a test."""
    for name in ("CCL_SEARCH_HOME", "CCL_SEARCH_STORE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def monty() -> Iterator[MontyRunner]:
    """The sandbox that policies run in by default."""
    from policies.monty_runner import MontyRunner

    runner = MontyRunner()
    yield runner
    runner.close()
