"""Rings over several nodes, one for each rank a node has in the group: what crosses nodes, and how long it takes."""

from __future__ import annotations

import pytest

from backends.network import NetworkModel, NetworkParameters
from backends.network.builders import clustered, torus
from backends.network.collective import Collective
from backends.network.planning import chosen_algorithm

NIC, NVLINK = 25e9, 300e9
SIZE = 2.0**30
PURE = NetworkParameters(header_bytes=0, launch_seconds=0.0)


def cluster(nodes: int, per_node: int, nics: int):
    return clustered(nodes, per_node, (NVLINK, 1e-9), (NIC, 1e-9), nics=nics, mesh=True)


def run(topology, groups, kind="all_reduce", algorithm=None, nbytes=SIZE):
    return NetworkModel(topology, PURE).time(Collective(kind, nbytes, groups, algorithm))


def leaving(topology, timing, per_node, nodes):
    """Bytes on the links into the core, by node."""
    core = topology.devices + nodes
    into = [(link, amount) for link, amount in timing.link_bytes.items() if topology.links[link].target == core]
    assert into
    return sum(amount for _, amount in into) / nodes


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("nics", [1, 4])
def test_what_leaves_a_node_is_that_of_one_ring(nodes: int, per_node: int, nics: int) -> None:
    topology = cluster(nodes, 4, nics)
    group = tuple(node * 4 + rank for node in range(nodes) for rank in range(per_node))
    timing = run(topology, (group,))
    count = len(group)
    assert timing.algorithm == "multi_ring"
    assert leaving(topology, timing, 4, nodes) == pytest.approx(2 * (count - 1) / count * SIZE, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "share"), [("all_reduce", 2 * 15 / 16), ("all_gather", 15 / 16), ("reduce_scatter", 15 / 16)]
)
@pytest.mark.parametrize("nics", [1, 4])
def test_time_is_that_of_the_cards(kind: str, share: float, nics: int) -> None:
    group = tuple(range(16))
    timing = run(cluster(4, 4, nics), (group,), kind)
    bound = share * SIZE / (nics * NIC)
    assert bound * 0.999 <= timing.seconds <= bound * 1.1


def test_groups_beside_each_other_share_the_card() -> None:
    groups = tuple(tuple(4 * node + rank for node in range(2)) for rank in range(4))
    timing = run(cluster(2, 4, 1), groups)
    assert timing.seconds == pytest.approx(4 * SIZE / NIC, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "nbytes", "group", "chosen"),
    [
        ("all_reduce", SIZE, (0, 1, 4, 5), "multi_ring"),
        ("all_reduce", 1024.0, (0, 1, 4, 5, 8, 9), "double_binary_tree"),
        ("all_reduce", SIZE, (0, 1, 2, 3), "direct"),
        ("all_reduce", SIZE, (0, 1, 4), "ring"),
        ("all_reduce", SIZE, (0, 4, 8), "ring"),
        ("broadcast", SIZE, (0, 1, 4, 5), "hierarchical"),
        ("all_to_all", SIZE, (0, 1, 4, 5), "direct"),
    ],
)
def test_what_is_chosen(kind: str, nbytes: float, group: tuple[int, ...], chosen: str) -> None:
    assert chosen_algorithm(Collective(kind, nbytes, (group,)), cluster(3, 4, 1)) == chosen


def test_lines_of_a_torus_stay_hierarchical() -> None:
    topology = torus((4, 4), NIC, 1e-9)
    assert chosen_algorithm(Collective("all_reduce", SIZE, (tuple(range(16)),)), topology) == "hierarchical"


def test_uneven_groups_fall_back_to_one_ring() -> None:
    topology = cluster(2, 4, 1)
    asked = run(topology, ((0, 1, 4),), algorithm="multi_ring")
    assert asked.seconds == pytest.approx(run(topology, ((0, 1, 4),), algorithm="ring").seconds)
