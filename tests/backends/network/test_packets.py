"""The packet engine: control laws by their definitions, ports by conservation, collectives by bounds and symmetry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.network import Collective, CongestionControl, NetworkModel, NetworkParameters, clustered, switch
from backends.network.control import Dcqcn, Hpcc
from backends.network.packet_engine import PacketEngine
from backends.network.port_queue import PortQueue
from backends.network.trains import Port

LINE = 5e10
NS3 = NetworkParameters.ns3()
HPCC = NetworkParameters.ns3(CongestionControl.HPCC, 9000, packet_budget=5000)
DCQCN = NetworkParameters.ns3(CongestionControl.DCQCN, 9000, packet_budget=20_000)
WIRE = (9000 + 90) / 9000


def telemetry(step, load, queue=0.0, port=LINE):
    """One hop that carries `load` of its rate, seen every 10 us."""
    return [(step * 1e-5, step * 1e-5 * load * port, queue, port)]


@pytest.mark.parametrize("load", [0.5, 0.95, 1.0])
def test_hpcc_divides_its_rate_by_the_load_over_the_target(load):
    sender = Hpcc(LINE, window=1e5, trip=2e-6, known=NS3)
    for step in range(1, 3):
        sender.acknowledged(step, sent=step + 1, hops=telemetry(step, load))
    assert sender.rate == pytest.approx(min(LINE * NS3.target_load / load + NS3.rate_step, LINE))


def test_hpcc_counts_a_queue_of_a_window_as_once_the_link():
    sender = Hpcc(LINE, window=1e5, trip=2e-6, known=NS3)
    for step in range(1, 3):
        sender.acknowledged(step, sent=step + 1, hops=telemetry(step, 1.0, queue=1e5))
    assert sender.rate == pytest.approx(LINE * NS3.target_load / 2 + NS3.rate_step)


def test_hpcc_never_stops_altogether():
    sender = Hpcc(LINE, window=1e3, trip=2e-6, known=NS3)
    for step in range(1, 40):
        sender.acknowledged(step, sent=step + 1, hops=telemetry(step, 1.0, queue=1e7))
    assert sender.rate == NS3.lowest_rate


def test_dcqcn_halves_at_first_and_comes_half_way_back_after_its_timer():
    sender = Dcqcn(LINE, NS3)
    sender.marked(1e-3)
    assert sender.timer == pytest.approx(1e-3 + NS3.cut_interval)
    sender.tick(1e-3 + NS3.cut_interval)
    assert sender.rate == pytest.approx(LINE / 2, rel=0.02)  # alpha has decayed for four intervals
    cut = sender.rate
    sender.tick(1e-3 + NS3.cut_interval + 0.999 * NS3.rate_timer)
    assert sender.rate == cut
    sender.tick(1e-3 + NS3.cut_interval + 1.001 * NS3.rate_timer)
    assert sender.rate == pytest.approx((cut + LINE) / 2)


@settings(max_examples=50, deadline=None)
@given(
    trains=st.lists(
        st.tuples(st.floats(0, 1e-3), st.floats(1e-9, 1e-4), st.floats(1e-9, 1e-4)), min_size=1, max_size=12
    )
)
def test_a_port_loses_nothing_and_sends_no_faster_than_its_rate(trains):
    queue = PortQueue(Port(LINE, 0.0, 1e-7, 1e-9))
    for first, span, seconds in trains:
        queue.add(first, first + span, seconds)
    total = sum(seconds for *_, seconds in trains)
    left = queue.at(1.2e-3)
    assert queue.given == pytest.approx(total * LINE, rel=1e-6)
    assert total - 1.2e-3 - 1e-12 <= left <= total
    assert queue.at(1.2e-3 + left + 1e-6) == 0.0


@pytest.fixture
def engines(monkeypatch):
    """How many packet engines ran."""
    seen = []
    run = PacketEngine.run
    monkeypatch.setattr(PacketEngine, "run", lambda self: seen.append(self) or run(self))
    return seen


def seconds(topology, parameters, kind, size, groups):
    return NetworkModel(topology, parameters).time(Collective(kind, size, groups, "direct")).seconds


@pytest.mark.parametrize("parameters", [HPCC, DCQCN], ids=["hpcc", "dcqcn"])
def test_packets_are_for_crowded_ports_within_the_budget(parameters, engines):
    incast, pairs = ((0, 2), (1, 2)), ((0, 1), (2, 3))
    seconds(switch(4, LINE, 1e-6), parameters, "send_recv", 1e6, pairs)
    assert not engines
    seconds(switch(4, LINE, 1e-6), parameters, "send_recv", 1e6, incast)
    assert len(engines) == 1
    seconds(switch(4, LINE, 1e-6), replace(parameters, packet_budget=0), "send_recv", 1e6, incast)
    assert len(engines) == 1


@pytest.mark.parametrize("senders", [2, 3, 4])
def test_hpcc_keeps_a_port_busy_to_its_target(senders, engines):
    """Long flows into one port: never faster than the port, and no slower than 80 % of it (target 95 %)."""
    incast = tuple((rank, senders) for rank in range(senders))
    bound = senders * 6e6 * WIRE / LINE
    took = seconds(switch(senders + 1, LINE, 1e-6), HPCC, "send_recv", 6e6, incast)
    assert engines
    assert bound <= took <= bound / 0.8


def test_dcqcn_waits_for_its_timer_once_the_queue_is_past_the_threshold(engines):
    incast = tuple((rank, 8) for rank in range(8))
    short, long = (seconds(switch(9, LINE, 1e-6), DCQCN, "send_recv", size, incast) for size in (9e4, 2.7e6))
    assert len(engines) == 2
    assert short <= 8 * 9e4 * WIRE / LINE + 10e-6  # 720 kB of queue at most: below the threshold of 800 kB
    assert long >= 8 * 2.7e6 * WIRE / LINE


@pytest.mark.parametrize(("parameters", "budget"), [(HPCC, 500), (HPCC, 8000), (DCQCN, 20_000)])
def test_no_folding_beats_the_bound(parameters, budget, engines):
    topology = clustered(2, 4, (LINE, 1e-6), (LINE, 3e-6))
    known = replace(parameters, packet_budget=budget)
    timing = NetworkModel(topology, known).time(Collective("all_to_all", 1e6, (tuple(range(8)),), "direct"))
    busiest = max(amount / topology.links[link].bandwidth for link, amount in timing.link_bytes.items())
    assert engines
    assert timing.seconds >= busiest * 0.995


def test_fine_and_coarse_folding_agree_where_all_are_alike(engines):
    topology = clustered(2, 2, (LINE, 1e-6), (LINE, 3e-6))
    groups = ((0, 2), (1, 3))
    coarse, fine = (
        seconds(topology, replace(HPCC, packet_budget=budget), "all_to_all", 4e6, groups) for budget in (2000, 8_000)
    )
    assert len(engines[0]._trains.ways) < len(engines[1]._trains.ways)
    assert coarse == pytest.approx(fine, rel=0.1)


def test_the_same_question_has_the_same_answer():
    topology = clustered(2, 4, (LINE, 1e-6), (LINE, 3e-6))
    asked = (topology, DCQCN, "all_to_all", 1e6, (tuple(range(8)),))
    assert seconds(*asked) == seconds(*asked)
