"""Max-min fair rates against the definition, and folding against the unfolded network."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.network import Collective, NetworkModel, NetworkParameters, clustered, compiler, rails, torus
from backends.network.folding import Classes
from backends.network.sharing import Shares

FLOWS = st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=6)
COSTS = st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=4, max_size=4)


def solve(routes, costs, caps=None):
    entries = [(flow, link) for flow, route in enumerate(routes) for link in route]
    flow, link = (np.array(column, dtype=np.int64) for column in zip(*entries, strict=True))
    cost = np.array([costs[at] for at in link])
    shares = Shares(flow, link, cost, np.zeros(len(flow), dtype=bool), len(routes), len(costs))
    return shares.rates(np.ones(len(routes)), caps)


def brute_force(routes, costs, caps):
    """Water filling by the definition: raise all flows that are not frozen as far as a link or a cap allows."""
    rates, frozen = [0.0] * len(routes), [False] * len(routes)
    while not all(frozen):
        steps = [caps[i] - rates[i] for i in range(len(routes)) if not frozen[i]]
        for link, cost in enumerate(costs):
            users = [i for i, route in enumerate(routes) if link in route]
            growing = [i for i in users if not frozen[i]]
            if growing:
                steps.append((1 - cost * sum(rates[i] for i in users)) / (cost * len(growing)))
        step = min(steps)
        rates = [rate if done else rate + step for rate, done in zip(rates, frozen, strict=True)]
        full = {
            k
            for k, c in enumerate(costs)
            if c * sum(r for r, way in zip(rates, routes, strict=True) if k in way) > 1 - 1e-9
        }
        frozen = [
            done or bool(full & route) or rate >= cap - 1e-12
            for done, route, rate, cap in zip(frozen, routes, rates, caps, strict=True)
        ]
    return rates


@settings(max_examples=60, deadline=None)
@given(routes=FLOWS, costs=COSTS, caps=st.lists(st.floats(0.01, 3.0), min_size=6, max_size=6))
def test_rates_are_max_min_fair(routes, costs, caps):
    limits = caps[: len(routes)]
    assert solve(routes, costs, np.array(limits)) == pytest.approx(brute_force(routes, costs, limits), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(routes=FLOWS, costs=COSTS)
def test_every_flow_has_a_full_link_where_none_is_faster(routes, costs):
    rates = solve(routes, costs)
    load = [c * sum(r for r, way in zip(rates, routes, strict=True) if k in way) for k, c in enumerate(costs)]
    assert max(load) <= 1 + 1e-9
    for rate, route in zip(rates, routes, strict=True):
        mine = [k for k in route if load[k] > 1 - 1e-9]
        assert any(all(rates[i] <= rate * (1 + 1e-9) for i, way in enumerate(routes) if k in way) for k in mine)


def test_acknowledgements_take_capacity():
    flow, link = np.array([0, 1, 0, 1]), np.array([0, 1, 1, 0])
    cost = np.array([21.0, 21.0, 1.0, 1.0])
    shares = Shares(flow, link, cost, np.array([False, False, True, True]), 2, 2)
    assert shares.rates(np.ones(2)) == pytest.approx([1 / 22] * 2)


TOPOLOGIES = {
    "cluster": lambda: clustered(3, 4, (1e11, 1e-6), (1e10, 4e-6)),
    "rails": lambda: rails(2, 4, (1e11, 1e-6), (1e10, 4e-6)),
    "torus": lambda: torus((4, 3), 1e10, 1e-6),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("algorithm", ["ring", "direct", "double_binary_tree", "hierarchical"])
@pytest.mark.parametrize("parameters", [NetworkParameters(), NetworkParameters.ns3()], ids=["default", "ns3"])
def test_folding_changes_no_answer(name, algorithm, parameters, monkeypatch):
    topology = TOPOLOGIES[name]()
    half = topology.devices // 2
    groups = (tuple(range(0, topology.devices, 2)), tuple(range(1, topology.devices, 2)))
    assert len(groups[0]) == half
    collective = Collective("all_reduce", 3e6, groups, algorithm)
    folded = NetworkModel(topology, parameters).time(collective).seconds
    monkeypatch.setattr(compiler, "refine", singletons)
    assert folded == pytest.approx(NetworkModel(topology, parameters).time(collective).seconds, rel=2e-3)


def singletons(traffic, ranks):
    sizes = (len(traffic.source), len(traffic.link_colour), ranks)
    return Classes(*(np.arange(size, dtype=np.int64) for size in sizes))


def test_a_shared_link_is_never_over_its_capacity_with_unequal_groups():
    """Two rings of different sizes over one core: each link's bytes fit into the time taken."""
    topology = clustered(2, 4, (1e11, 1e-6), (1e10, 4e-6))
    model = NetworkModel(topology, NetworkParameters(header_bytes=0, launch_seconds=0.0))
    for groups in itertools.permutations(((0, 4, 1), (2, 5), (3, 7, 6))):
        timing = model.time(Collective("all_reduce", 1e8, groups, "ring"))
        busiest = max(amount / topology.links[link].bandwidth for link, amount in timing.link_bytes.items())
        assert timing.seconds >= busiest
