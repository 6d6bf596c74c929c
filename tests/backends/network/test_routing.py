"""Routes of many flows at once against the routes that the topology states one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.network import Topology, clustered, leaf_spine, rails, torus
from backends.network.topology import Link
from runs.errors import BadInputError

DEVICES, NODES = 5, 9
CABLES = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda ends: ends[0] != ends[1]),
    min_size=6,
    max_size=24,
)
TOPOLOGIES = {
    "leaves": lambda: leaf_spine(12, 4, 3, 1e10, 1e-6),
    "two cards": lambda: clustered(3, 4, (1e11, 1e-6), (1e10, 4e-6), nics=2),
    "rails": lambda: rails(3, 4, (1e11, 1e-6), (1e10, 4e-6), spines=2),
    "torus": lambda: torus((4, 3, 2), 1e10, 1e-6),
}


def columns(rows):
    return tuple(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))


def check(topology, flows):
    found = topology.ways(*columns(flows))
    assert found.each() == [topology.route(*flow) for flow in flows]
    back = [topology.reverse(link) for flow in flows for link in reversed(topology.route(*flow))]
    assert found.back(topology.reverses).links.tolist() == [link for link in back if link is not None]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_many_routes_are_those_of_single_flows(name):
    topology = TOPOLOGIES[name]()
    pairs = [(a, b) for a in range(topology.devices) for b in range(topology.devices) if a != b]
    check(topology, [(a, b, flow) for a, b in pairs for flow in (0, 3, 70000)])


@settings(max_examples=80, deadline=None)
@given(cables=CABLES, one_way=st.integers(0, 3), forward=st.booleans())
def test_on_any_graph_the_routes_and_their_ties_agree(cables, one_way, forward):
    links = [Link(a, b, 1e9, 1e-6) for a, b in cables]
    links += [Link(link.target, link.source, 1e9, 1e-6) for link in links[one_way:]]
    topology = Topology("drawn", DEVICES, tuple(links), nodes=NODES, devices_forward=forward)
    flows = []
    for source in range(DEVICES):
        for target in range(DEVICES):
            try:
                topology.route(source, target, target)
            except BadInputError:
                continue
            if source != target:
                flows.append((source, target, target))
    if flows:
        check(topology, flows)
        for flow in flows:
            assert topology.ways(*columns([(*flow[:2], 0)])).tied == topology.has_ties(*flow[:2])


def test_a_pair_that_nothing_joins_is_named():
    topology = Topology("islands", 4, (Link(0, 1, 1e9, 1e-6), Link(1, 0, 1e9, 1e-6)))
    with pytest.raises(BadInputError, match="no route from device 0 to device 2"):
        topology.ways(*columns([(0, 1, 0), (0, 2, 0)]))
    with pytest.raises(BadInputError, match="no device 9"):
        topology.ways(*columns([(0, 9, 0)]))
