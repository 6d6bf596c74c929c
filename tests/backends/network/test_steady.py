"""Skipped periods against the simulation of every round."""

from __future__ import annotations

import pytest

from backends.network import Collective, NetworkModel, NetworkParameters, clustered, rails, steady, torus
from backends.network.engine import Engine

TOPOLOGIES = {
    "rails": lambda: rails(6, 6, (1e11, 1e-6), (1e10, 4e-6)),
    "torus": lambda: torus((6, 5), 1e10, 1e-6),
    "one card": lambda: clustered(8, 4, (1e11, 1e-6), (1e10, 4e-6), mesh=True),
}


def seconds(topology, parameters, size=3e6):
    """A relayed all-to-all: n(n-1)/2 equal rounds."""
    ring = Collective("all_to_all", size, (tuple(range(topology.devices)),), "ring")
    return NetworkModel(topology, parameters).time(ring).seconds


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("parameters", [NetworkParameters(), NetworkParameters.ns3()], ids=["default", "ns3"])
def test_skipping_periods_changes_no_answer(name, parameters, monkeypatch):
    skipped = []
    shift = steady.SteadyEngine._shift
    monkeypatch.setattr(steady.SteadyEngine, "_shift", lambda self, *by: (skipped.append(by), shift(self, *by)))
    quick = seconds(TOPOLOGIES[name](), parameters)
    assert skipped
    monkeypatch.setattr(steady, "SteadyEngine", Engine)
    assert quick == pytest.approx(seconds(TOPOLOGIES[name](), parameters), rel=1e-11)


def test_a_long_ring_has_its_closed_form():
    """On a ring of 300 devices every round of the relay is one message over one cable."""
    bare = NetworkParameters(header_bytes=0, launch_seconds=0.0)
    packets, rate, delay = 8, 1e10, 1e-6
    size = 300 * packets * bare.payload_bytes
    rounds = 300 * 299 // 2
    expected = rounds * (packets * bare.payload_bytes / rate + delay)
    assert seconds(torus((300,), rate, delay), bare, size) == pytest.approx(expected, rel=1e-9)


def test_the_end_of_one_run_is_not_skipped_into_the_next():
    """An all-reduce has two; ranks that are done with the first begin the second a little earlier."""
    parameters = NetworkParameters.ns3()
    group = (tuple(range(320)),)
    topology = rails(40, 8, (1e11, 1e-6), (1e10, 4e-6))
    model = NetworkModel(topology, parameters)
    both, scatter, gather = (
        model.time(Collective(kind, 32e6, group, "ring")).seconds
        for kind in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert both == pytest.approx(scatter + gather - parameters.launch_seconds, rel=5e-3)
