"""What large collectives cost; the goals stand in docs/network.md."""

from __future__ import annotations

import pytest

from backends.network import Collective, NetworkModel, clustered, rails, switch, torus
from tests.timing import cpu_seconds

UP, OUT = (4.5e11, 2e-6), (2.5e10, 4e-6)
RINGS = {
    "switch": lambda: switch(1024, 5e10, 5e-7),
    "rails": lambda: rails(128, 8, UP, OUT),
    "own cards": lambda: clustered(256, 4, UP, OUT, nics=4, mesh=True),
    "one card": lambda: clustered(256, 4, UP, OUT, nics=1, mesh=True),
    "torus": lambda: torus((32, 32), 4.5e10, 1e-6),
}


def cost(topology, kind, algorithm):
    collective = Collective(kind, 64e6, (tuple(range(topology.devices)),), algorithm)
    return cpu_seconds(lambda: NetworkModel(topology).time(collective))


@pytest.mark.parametrize("name", RINGS)
def test_a_ring_of_a_thousand_ranks(name):
    """Goal 0.2 s."""
    assert cost(RINGS[name](), "all_reduce", "ring") < 0.3


def test_everybody_to_everybody_of_256_ranks():
    """Goal well below 1 s."""
    assert cost(rails(64, 4, UP, OUT), "all_to_all", "direct") < 0.8
