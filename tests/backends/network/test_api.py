"""The contract of the network model: closed forms, bounds, symmetry, contention."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.network import (
    Collective,
    CongestionControl,
    NetworkModel,
    NetworkParameters,
    bundled_topology,
    clustered,
    from_environment,
    fully_connected,
    ring,
    switch,
)
from runs.catalogue import environment, environment_names
from runs.errors import BadInputError

BARE = NetworkParameters(header_bytes=0, launch_seconds=0.0)
RATE, DELAY = 1e10, 1e-6
PACKET = BARE.payload_bytes / RATE


def seconds(topology, kind, size, groups, algorithm, parameters=BARE):
    return NetworkModel(topology, parameters).time(Collective(kind, size, groups, algorithm)).seconds


def everyone(count):
    return (tuple(range(count)),)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        ("ring", lambda n: [1 / n] * (2 * (n - 1))),
        ("direct", lambda n: [(n - 1) / n] * 2),
        ("halving_doubling", lambda n: 2 * [1 / 2**k for k in range(1, n.bit_length())]),
    ],
)
def test_an_all_reduce_on_one_switch_has_its_closed_form(ranks, algorithm, steps):
    size = BARE.payload_bytes * ranks * 64
    expected = sum(part * size / RATE + 2 * DELAY + PACKET for part in steps(ranks))
    assert seconds(switch(ranks, RATE, DELAY), "all_reduce", size, everyone(ranks), algorithm) == pytest.approx(
        expected
    )


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.sampled_from([2, 3, 4, 6, 8]),
    size=st.floats(1, 1e9),
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    algorithm=st.sampled_from(["ring", "direct", "auto", "double_binary_tree"]),
)
def test_no_collective_beats_the_bandwidth_bound(ranks, size, kind, algorithm):
    parts = 2 if kind == "all_reduce" else 1
    bound = parts * size * (ranks - 1) / ranks / RATE
    assert seconds(switch(ranks, RATE, DELAY), kind, size, everyone(ranks), algorithm) >= bound


@settings(max_examples=30, deadline=None)
@given(
    rate=st.floats(1e8, 1e11),
    faster=st.floats(1.0, 10.0),
    algorithm=st.sampled_from(["ring", "direct", "hierarchical", "double_binary_tree"]),
)
def test_more_bandwidth_never_makes_it_slower(rate, faster, algorithm):
    slow, fast = (
        seconds(
            clustered(2, 4, (factor * rate * 8, 1e-6), (factor * rate, 3e-6)), "all_reduce", 1e7, everyone(8), algorithm
        )
        for factor in (1.0, faster)
    )
    assert fast <= slow * (1 + 1e-9)


def test_which_group_it_is_does_not_matter_where_all_are_alike():
    topology = clustered(4, 4, (1e11, 1e-6), (1e10, 3e-6), nics=4)
    times = [seconds(topology, "all_reduce", 1e7, (group,), "ring") for group in ((0, 1), (6, 7), (14, 13))]
    assert times == pytest.approx([times[0]] * 3)
    strided = [seconds(topology, "all_reduce", 1e7, (group,), "ring") for group in ((0, 4, 8, 12), (3, 7, 11, 15))]
    assert strided[0] == pytest.approx(strided[1])


def test_groups_that_share_a_nic_slow_each_other():
    topology = clustered(2, 2, (1e12, 1e-6), (1e10, 3e-6))
    alone = seconds(topology, "all_reduce", 1e8, ((0, 2),), "ring")
    both = seconds(topology, "all_reduce", 1e8, ((0, 2), (1, 3)), "ring")
    assert both == pytest.approx(2 * alone, rel=0.01)


def test_two_collectives_share_a_link_to_its_bound():
    model = NetworkModel(clustered(2, 2, (1e12, 1e-6), (1e10, 3e-6)), BARE)
    first, second = (Collective("all_reduce", 1e8, (group,), "ring") for group in ((0, 2), (1, 3)))
    inside = Collective("all_reduce", 1e8, ((0, 1),), "ring")
    shared = model.rates([first, second])
    assert shared == pytest.approx([0.5, 0.5], rel=0.01)
    assert model.rates([first]) == [1.0]
    assert model.rates([first, inside]) == [1.0, 1.0]
    assert model.rates([]) == []


def test_link_bytes_add_up():
    topology = switch(4, RATE, DELAY)
    timing = NetworkModel(topology, BARE).time(Collective("all_reduce", 4096 * 4, everyone(4), "ring"))
    assert dict(timing.link_bytes) == {link: pytest.approx(6 * 4096) for link in range(8)}
    assert timing.bottleneck_link in timing.link_bytes


def test_a_group_of_one_moves_nothing():
    timing = NetworkModel(switch(2, RATE, DELAY), BARE).time(Collective("all_reduce", 10, ((0,),)))
    assert (timing.seconds, timing.bottleneck_link) == (0.0, -1)


@pytest.mark.parametrize("name", environment_names())
def test_every_bundled_environment_has_a_network(name):
    topology = from_environment(environment(name))
    assert topology.devices == environment(name).total_xpus
    assert topology.route(0, topology.devices - 1)


@pytest.mark.parametrize("builder", [ring, fully_connected, switch])
def test_neighbours_on_each_builder(builder):
    assert len(builder(5, RATE, DELAY).route(4, 0)) == (2 if builder is switch else 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "gather"},
        {"algorithm": "rings"},
        {"nbytes": 0},
        {"nbytes": float("nan")},
        {"groups": ((0, 0),)},
        {"groups": ()},
        {"groups": ((0, 1), (1, 2))},
        {"kind": "send_recv", "groups": ((0, 1, 2),)},
    ],
)
def test_an_impossible_collective_is_refused(wrong):
    with pytest.raises(BadInputError) as error:
        Collective(**{"kind": "all_reduce", "nbytes": 1.0, "groups": ((0, 1),)} | wrong)
    assert error.value.hint


def test_a_rank_that_is_no_device_is_named():
    with pytest.raises(BadInputError, match="no device 9"):
        seconds(switch(4, RATE, DELAY), "all_reduce", 10.0, ((0, 9),), "ring")


@settings(max_examples=10, deadline=None)
@given(
    size=st.floats(1e3, 1e8),
    payload=st.sampled_from([1000, 9000]),
    control=st.sampled_from(list(CongestionControl)),
    kind=st.sampled_from(["all_reduce", "all_to_all"]),
    stride=st.sampled_from([1, 2, 4]),
)
def test_windows_and_congestion_control_only_ever_cost_time(size, payload, control, kind, stride):
    topology = bundled_topology("moe-4")
    groups = tuple(tuple(range(first, 32, stride)) for first in range(stride))
    parameters = NetworkParameters.ns3(control, payload)
    timing = NetworkModel(topology, parameters).time(Collective(kind, size, groups, "direct"))
    busiest = max(amount / topology.links[link].bandwidth for link, amount in timing.link_bytes.items())
    assert timing.seconds >= busiest * 0.995  # whole nanoseconds round a packet by a little


@pytest.mark.parametrize("control", list(CongestionControl))
def test_small_collectives_do_not_feel_congestion_control(control):
    topology = bundled_topology("moe-2")
    collective = Collective("all_to_all", 65536.0, (tuple(range(32)),), "direct")
    none, controlled = (
        NetworkModel(topology, NetworkParameters.ns3(mode)).time(collective).seconds
        for mode in (CongestionControl.NONE, control)
    )
    assert none <= controlled <= none * 1.12


def test_dcqcn_costs_a_recovery_period_where_a_shared_nic_is_congested():
    topology = bundled_topology("moe-4")
    collective = Collective("all_to_all", 64e6, (tuple(range(32)),), "direct")
    none, dcqcn = (
        NetworkModel(topology, NetworkParameters.ns3(mode)).time(collective).seconds
        for mode in (CongestionControl.NONE, CongestionControl.DCQCN)
    )
    assert dcqcn - none == pytest.approx(900e-6 - 16e-6, rel=0.05)


def test_ranks_that_are_served_early_go_on_early():
    model = NetworkModel(clustered(2, 4, (1e11, 1e-6), (1e10, 4e-6)), BARE)
    steps = [Collective("all_reduce", 1e7, ((0, 4), (1, 2)), "ring"), Collective("all_reduce", 1e7, ((1, 2),), "ring")]
    apart = sum(model.time(step).seconds for step in steps)
    together = model.sequence([1e-3, *steps, 1e-3]).seconds - 2e-3
    assert together == pytest.approx(model.time(steps[0]).seconds)
    assert together < 0.95 * apart


def shifted(group, by, count):
    return tuple((rank + by) % count for rank in group)


@settings(max_examples=15, deadline=None)
@given(
    bandwidths=st.tuples(st.floats(1e9, 1e12), st.floats(1e9, 1e11)),
    latency=st.floats(1e-8, 1e-4),
    group=st.lists(st.integers(0, 11), min_size=2, max_size=6, unique=True),
    kind=st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
)
def test_any_group_on_any_links_keeps_its_bounds_and_its_symmetry(bandwidths, latency, group, kind):
    """Links, latencies and groups that no reference row has: at least the fullest link's time and one hop; nodes are
    alike, so a group moved by a whole node takes as long."""
    topology = clustered(3, 4, (bandwidths[0], latency), (bandwidths[1], 2 * latency), nics=4)
    model = NetworkModel(topology, BARE)
    timing = model.time(Collective(kind, 1e6, (tuple(group),), "ring"))
    busiest = max(amount / topology.links[link].bandwidth for link, amount in timing.link_bytes.items())
    assert timing.seconds >= busiest
    assert timing.seconds > latency
    moved = model.time(Collective(kind, 1e6, (shifted(group, 4, 12),), "ring"))
    assert moved.seconds == pytest.approx(timing.seconds, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(sizes=st.tuples(st.floats(1e6, 1e8), st.floats(1e6, 1e8)), rate=st.floats(1e9, 1e11))
def test_two_contending_collectives_take_at_least_what_their_shared_link_needs(sizes, rate):
    topology = clustered(2, 2, (1e13, 1e-6), (rate, 3e-6))
    first, second = (
        Collective("all_reduce", size, (group,), "ring") for size, group in zip(sizes, ((0, 2), (1, 3)), strict=True)
    )
    model = NetworkModel(topology, BARE)
    alone = [model.time(one) for one in (first, second)]
    shared = model.rates([first, second])
    for link in set(alone[0].link_bytes) & set(alone[1].link_bytes):
        loads = [share * timing.link_bytes[link] / timing.seconds for share, timing in zip(shared, alone, strict=True)]
        assert sum(loads) <= topology.links[link].bandwidth * (1 + 1e-9)
    assert all(0 < share <= 1 for share in shared)
    assert model.rates([second, first]) == pytest.approx(shared[::-1])
