"""Topologies read, written, bundled; and the reference simulator's own numbers."""

from __future__ import annotations

import csv
import tarfile

import pytest

from backends.network import (
    Collective,
    CongestionControl,
    NetworkModel,
    NetworkParameters,
    bundled_topology,
    clustered,
    ring,
    switch,
    topology_names,
    torus,
)
from backends.network.formats import read_astra_network, read_ns3_topology, write_ns3_topology
from backends.network.topology import murmur3
from runs.errors import BadInputError
from tests.reference import shared_path

GIGABIT = 1e9 / 8


def cables(topology):
    return sorted(
        (link.source, link.target, round(link.bandwidth), round(link.latency * 1e12)) for link in topology.links
    )


def test_the_ns3_text_survives_a_round_trip():
    first = bundled_topology("moe-4")
    again = read_ns3_topology(write_ns3_topology(first))
    assert (again.devices, again.nodes) == (first.devices, first.nodes)
    assert cables(again) == cables(first)


@pytest.mark.parametrize("topology", [ring(4, 1e9, 1e-6), torus((2, 3), 1e9, 1e-6)])
def test_devices_that_forward_cannot_be_written_for_ns3(topology):
    with pytest.raises(BadInputError, match="do not forward"):
        write_ns3_topology(topology)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no counts"),
        ("3 1 2\n2\n0 2 400Gbps 1ms 0\n", "announces"),
        ("3 1 1\n0\n1 0 400Gbps 1ms 0\n", "not the nodes"),
        ("3 1 2\n2\n0 2 400Gbps 1ms 0\n1 2 fast 1ms 0\n", "no quantity"),
        ("3 1 2\n2\n0 2 400Gbps 1ms 0\n1 2 0Gbps 1ms 0\n", "bandwidth"),
        ("3 1 2\n2\n0 2 400Gbps 1ms 0\n1 2 400Gbps 1ms 0.1\n", "loses packets"),
        ("3 1 2\n2\n0 2 400Gbps 1ms 0\n1 9 400Gbps 1ms 0\n", "no link"),
    ],
)
def test_a_malformed_ns3_text_is_refused(text, message):
    with pytest.raises(BadInputError, match=message):
        read_ns3_topology(text)


def test_a_disconnected_topology_is_named():
    topology = read_ns3_topology("4 2 2\n2 3\n0 2 400Gbps 1ms 0\n1 3 400Gbps 1ms 0\n")
    with pytest.raises(BadInputError, match="no route from device 0 to device 1"):
        topology.route(0, 1)


def test_network_yml_means_gibibytes_and_dimensions():
    rows = ("topology: [ FullyConnected, Switch ]", "npus_count: [ 4, 2 ]")
    text = "\n".join((*rows, "bandwidth: [ 300.0, 25.0 ]", "latency: [ 500.0, 2000.0 ]", ""))
    network = read_astra_network(text)
    topology = network.topology()
    assert network.dump() == text
    assert (topology.devices, topology.nodes) == (8, 12)
    assert topology.links[topology.route(0, 1)[0]].bandwidth == pytest.approx(300 * 2**30)
    assert len(topology.route(0, 4)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 0 ]\nlatency: [ 1 ]\n",
        "topology: [ Rign ]\nnpus_count: [ 4 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
        "topology: [ Ring, Switch ]\nnpus_count: [ 4 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
        "topology: [ Ring ]\nnpus_count: [ 4 ]\n",
        "topology: [ Ring\n",
    ],
)
def test_a_malformed_network_yml_is_refused(text):
    with pytest.raises(BadInputError):
        read_astra_network(text)


def test_the_flow_hash_is_murmur3():
    """Published test vectors of the algorithm for one word."""
    assert murmur3((0,), 0) == 0x2362F9DE
    assert murmur3((0xFFFFFFFF,), 0) == 0x76293B50
    assert murmur3((0x87654321,), 0x5082EDEE) == 0x2362F9DE


def test_flows_of_a_pair_spread_over_nics_but_one_flow_keeps_its_way():
    topology = clustered(2, 4, (1e11, 1e-6), (1e10, 4e-6), nics=2)
    assert topology.route(0, 4, 5) == topology.route(0, 4, 5)
    assert len({topology.route(0, 4, flow) for flow in range(32)}) > 1
    assert topology.has_ties(0, 4)
    assert not topology.has_ties(0, 1)  # both on one leaf


@pytest.mark.parametrize("number", range(1, 7))
def test_ties_off_the_way_are_none_of_a_pair(number):
    topology = bundled_topology(f"moe-{number}")
    pairs = [(a, b) for a in range(32) for b in range(32) if a != b]

    # on moe-5 only sockets that no route between devices passes have two equally good links onward
    assert not any(topology.has_ties(*pair) for pair in pairs)
    assert all(len({topology._walk(*pair, flow) for flow in range(8)}) == 1 for pair in pairs[::7])


def test_an_in_node_route_stays_in_the_node():
    for nics in (1, 2, 4):
        topology = clustered(2, 4, (1e11, 1e-6), (1e10, 4e-6), nics=nics)
        assert topology.round_trip(0, 3) == pytest.approx(2e-6)
        assert topology.round_trip(0, 5) == pytest.approx(8e-6)


@pytest.mark.parametrize("name", topology_names())
def test_the_study_servers_have_32_devices_that_reach_each_other(name):
    topology = bundled_topology(name, latency_us={"pcie": 0.1})
    assert topology.devices == 32
    assert all(topology.route(0, other) for other in range(1, 32))


def test_an_unknown_name_or_class_of_cables_is_named():
    with pytest.raises(BadInputError, match="moe-7"):
        bundled_topology("moe-7")
    with pytest.raises(BadInputError, match="no cables of class 'upi'"):
        bundled_topology("moe-1", gbps={"upi": 400})


STUDY = {
    "moe-1": "T1_net1us_pcie400",
    "moe-2": "T2_net1us_pcie400",
    "moe-3": "T3_net1us_pcie400_upi200",
    "moe-4": "T4_net1us_pcie400_upi200",
    "moe-5": "T5nic_net1us_pcie400_upi200",
    "moe-6": "T6_mesh256",
}


def signature(topology):
    """What a route is like between every two devices: rates and latencies in order."""
    links = topology.links
    ways = (topology.route(a, b) for a in (0, 1, 5, 31) for b in range(32) if a != b)
    return [[(round(links[i].bandwidth / GIGABIT), round(links[i].latency * 1e9)) for i in way] for way in ways]


@pytest.mark.shared
@pytest.mark.parametrize("name", STUDY)
def test_the_bundled_servers_are_those_that_were_run(name):
    with tarfile.open(shared_path("data/astra/moe_study/inputs.tar.gz")) as archive:
        member = next(item for item in archive.getnames() if item.endswith(f"/{STUDY[name]}.txt"))
        text = archive.extractfile(member).read().decode()
    assert signature(read_ns3_topology(text)) == signature(bundled_topology(name))


NAMES = {"doubleBinaryTree": "double_binary_tree_astra", "halvingDoubling": "halving_doubling"}


@pytest.mark.shared
def test_one_switch_rows_of_the_real_ns3():
    errors = []
    with shared_path("data/astra/ns3_reference.csv").open(newline="") as file:
        for row in list(csv.DictReader(file))[::4]:
            control = {"none(0)": "none"}.get(row["cc_name"], row["cc_name"].lower())
            topology = switch(int(row["npus"]), 400 * GIGABIT, 5e-7)
            kind = {"AllReduce": "all_reduce", "AllToAll": "all_to_all"}[row["collective"]]
            groups = (tuple(range(int(row["npus"]))),)
            collective = Collective(kind, int(row["size_bytes"]), groups, NAMES.get(row["algorithm"], row["algorithm"]))
            parameters = NetworkParameters.ns3(CongestionControl(control))
            seconds = NetworkModel(topology, parameters).time(collective).seconds
            errors.append(abs(seconds * 1e9 / int(row["wall_ns_max"]) - 1))
    errors.sort()
    assert errors[len(errors) // 2] <= 0.01
    assert errors[-1] <= 0.05
