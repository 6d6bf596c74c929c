"""The packet engines: control laws by their definitions, ports by conservation, collectives by bounds and symmetry."""

from __future__ import annotations

from dataclasses import replace

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
    switch,
)
from backends.network.compiler import compile_stages
from backends.network.control import Dcqcn, Hpcc
from backends.network.packet_engine import PacketEngine
from backends.network.planning import schedule
from backends.network.port_queue import PortQueue, PortRecord
from backends.network.rounds import MessageClass, Program
from backends.network.sender import HostQueue, Message
from backends.network.train_engine import TrainEngine
from backends.network.trains import Port, Trains, Way

LINE = 5e10
NS3 = NetworkParameters.ns3()
HPCC = NetworkParameters.ns3(CongestionControl.HPCC, 9000, packet_budget=5000)
FINE_HPCC = replace(HPCC, packet_budget=10**6)
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


def test_many_quiet_intervals_weigh_alpha_as_one_by_one():
    """Zhu et al. 2015, eq. 2: alpha decays by 1 - g an interval without marks; seen through the next cut."""
    gain = NS3.alpha_gain
    sender = Dcqcn(LINE, NS3)
    sender.marked(0.0)
    sender.tick(NS3.cut_interval + 1e-9)
    sender.marked(NS3.cut_interval + 1e-9)
    before = sender.rate
    sender.tick(2 * NS3.cut_interval + 1e-9)
    alpha = 1.0
    for interval in range(8):
        alpha = (1 - gain) * alpha + (gain if interval == 4 else 0.0)
    assert sender.rate == pytest.approx(before * (1 - alpha / 2), rel=1e-9)


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


@given(steps=st.lists(st.tuples(st.integers(0, 400), st.sampled_from([60.0, 4000.0, 9048.0])), min_size=1, max_size=30))
def test_a_record_tells_what_waited_behind_each_packet(steps):
    """Against a queue played packet by packet: first in, first out, 20 ticks a kilobyte."""
    port = PortRecord(Port(LINE, 0.0, 1.8e-7, 1e-9), 1e-9)
    now, free, arrivals, starts = 0, 0, [], []
    for gap, size in steps:
        now += gap
        begins = max(now, free)
        free = begins + max(round(size / LINE * 1e9), 1)
        arrivals.append((now, size))
        starts.append(begins)
        assert port.enter(now, size) == (len(starts) - 1, begins)
    assert port.free == free
    for place, begins in enumerate(starts):
        met_idle = arrivals[place][0] == begins
        later = [size for at, size in arrivals[place + 1 :] if at <= begins and not met_idle]
        assert port.behind(place, begins) == sum(later)


def message(number, nbytes=90_000, window=1e6):
    return Message((0, 0, number), Way(nbytes, ((0, 1.0), (1, 1.0)), ((2, 1.0), (3, 1.0)), window, 2e-6), NS3)


def test_a_host_serves_its_messages_in_turn_and_drops_those_that_are_done():
    host = HostQueue(PortRecord(Port(LINE, 0.0, 1.8e-7, 1e-9), 1e-9))
    first, paced, full, done = host.messages = [message(number) for number in range(4)]
    for each in host.messages:
        each.widen(LINE)
    paced.next_at = 1000
    full.room, full.sent = 4, 4
    done.sent = done.acked = done.packets
    assert [host.choose(10, 1e-9) for _ in range(2)] == [first, first]
    assert done not in host.messages
    full.acked = 1
    assert [host.choose(2000, 1e-9) for _ in range(4)] == [paced, full, first, paced]


@pytest.fixture
def engines(monkeypatch):
    """The packet engines that ran."""
    seen = []

    def watched(run):
        return lambda self: seen.append(self) or run(self)

    for engine in (PacketEngine, TrainEngine):
        monkeypatch.setattr(engine, "run", watched(engine.run))
    return seen


def alone(parameters, nbytes, window):
    """One message over one switch; 1 us a cable, 182 ticks a packet with telemetry, 2 an acknowledgement."""
    port = Port(LINE, 1e-6, 1.82e-7, 2e-9)
    way = Way(nbytes, ((0, 1.0), (1, 1.0)), ((2, 1.0), (3, 1.0)), window, 4e-6)
    program = Program((MessageClass(0, 1, 1.0, 0.0, 0.0, False, 1e-8, 0),), (((0,),),), 2, False)
    return PacketEngine(program, Trains((port,) * 4, (way,)), parameters).run()


def test_a_message_within_its_window_takes_what_storing_and_forwarding_takes():
    """Five packets leave the host one after another, the last crosses the switch, its acknowledgement comes back."""
    assert alone(HPCC, 45_000, window=1e6) == pytest.approx((10 + 5 * 182 + 182 + 2000 + 2 * 2 + 2000) * 1e-9)


def test_a_message_beyond_its_window_waits_for_acknowledgements():
    """Two packets fill the window of 18 kB; the third goes when the first is acknowledged, 4368 ticks after it left."""
    assert alone(HPCC, 27_000, window=18_000) == pytest.approx((10 + 2 * (2 * 182 + 4000 + 2 * 2)) * 1e-9)


@pytest.mark.parametrize(("launches", "credited"), [(False, 0), (True, 1)])
def test_a_message_counts_for_the_first_one_awaited_of_its_chunk(launches, credited):
    """Round 1 overtakes round 0: as ASTRA-sim counts, the receiver goes on, unless a new chunk was launched between."""
    port = Port(LINE, 1e-6, 1.82e-7, 2e-9)
    ways = tuple(Way(9e3, ((at, 1.0), (at + 1, 1.0)), ((at + 2, 1.0), (at + 3, 1.0)), 1e6, 4e-6) for at in (0, 4, 8))
    step, launch = NS3.step_seconds, NS3.step_seconds + NS3.launch_seconds
    classes = [MessageClass(0, 1, 1.0, 0.0, 0.0, False, delay, 0) for delay in (launch, launch if launches else step)]
    program = Program((*classes, MessageClass(1, 0, 1.0, 0.0, 0.0, False, step, 1)), (((0,), (1,), (2,)),), 2, False)
    engine = PacketEngine(program, Trains((port,) * 12, ways), HPCC)
    engine._delivered((0, 1, 1))
    assert engine._waiting[0][1] == [1 if round_ == 1 - credited else 0 for round_ in range(3)]


def test_without_congestion_control_a_packet_budget_changes_nothing(engines):
    topology = clustered(2, 4, (LINE, 1e-6), (LINE / 2, 3e-6))
    for base in (NetworkParameters(), NS3):
        models = [NetworkModel(topology, replace(base, packet_budget=budget)) for budget in (0, 10**9)]
        step = Collective("all_to_all", 1e6, (tuple(range(8)),), "direct")
        assert len({model.time(step).seconds for model in models}) == 1
        assert len({model.sequence([1e-3, step, step]).seconds for model in models}) == 1
    assert not engines


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


def test_marks_are_chance_and_one_unlucky_sender_decides():
    """Between the thresholds marks strike single packets: which sender is cut, and how deep, differs by the draw."""
    topology, groups = clustered(2, 4, (LINE, 2e-7), (LINE / 2, 1e-6)), (tuple(range(8)),)
    compiled = compiled_exchange(topology, DCQCN, 3.2e6, groups)
    times = [PacketEngine(compiled.program, compiled.trains, DCQCN, draws).run() for draws in (1, 2, 3, 1)]
    assert times[0] == times[3]
    assert len(set(times)) == 3
    assert max(times) > 1.02 * min(times)


def compiled_exchange(topology, parameters, size, groups):
    stages = schedule(Collective("all_to_all", size, groups), topology, "direct", size)
    return compile_stages(stages, [list(range(len(stages)))], topology, parameters)


@pytest.mark.parametrize(
    ("kind", "nbytes", "ranks", "upi", "reference"),
    [("all_to_all", 3 * 2**20, 4, 400, 219_474), ("all_reduce", 2**20, 16, 200, 105_527)],
)
def test_hpcc_is_that_of_the_real_ns3(kind, nbytes, ranks, upi, reference, engines):
    """ASTRA-sim 518bd51 on ns-3 f764bed, stock HPCC, payload 9000, one chunk: its wall cycles in ns.

    Server 4 of the study with groups of 32 ranks: strided exchanges over its NICs, rings over its socket links.
    """
    topology = bundled_topology("moe-4", gbps={"pcie": 400, "upi": upi}, latency_us={"nic": 1.0})
    blocks = [tuple(range(first, first + ranks)) for first in range(0, 32, ranks)]
    groups = tuple(zip(*blocks, strict=True)) if kind == "all_to_all" else tuple(blocks)
    parameters = replace(FINE_HPCC, reduce_bandwidth=3.35e12)
    algorithm = "direct" if kind == "all_to_all" else "ring"
    ours = NetworkModel(topology, parameters).time(Collective(kind, nbytes, groups, algorithm)).seconds
    assert isinstance(engines[0], PacketEngine)
    assert ours * 1e9 == pytest.approx(reference, rel=0.03)


@pytest.mark.parametrize(("parameters", "budget"), [(HPCC, 500), (HPCC, 80_000), (DCQCN, 80_000)])
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
        seconds(topology, replace(HPCC, packet_budget=budget), "all_to_all", 4e6, groups) for budget in (2000, 20_000)
    )
    assert [type(engine) for engine in engines] == [TrainEngine, PacketEngine]
    assert coarse == pytest.approx(fine, rel=0.1)


def test_a_sequence_that_is_too_much_for_packets_is_the_sum_of_its_collectives(engines):
    """Two exchanges of 2500 packet hops each: packet by packet together or one by one, as the budget allows."""
    topology = clustered(2, 4, (LINE, 1e-6), (LINE, 3e-6))
    step = Collective("all_to_all", 1e6, (tuple(range(8)),), "direct")
    together, apart = (NetworkModel(topology, replace(HPCC, packet_budget=budget)) for budget in (10_000, 4_000))
    whole = together.sequence([1e-4, step, step])
    assert len(engines) == 1
    summed = apart.sequence([1e-4, step, step])
    assert summed.seconds == pytest.approx(1e-4 + 2 * apart.time(step).seconds)
    assert summed.link_bytes == pytest.approx(whole.link_bytes)
    assert whole.seconds <= summed.seconds * 1.05


def test_the_same_question_has_the_same_answer():
    topology = clustered(2, 4, (LINE, 1e-6), (LINE, 3e-6))
    asked = (topology, DCQCN, "all_to_all", 1e6, (tuple(range(8)),))
    assert seconds(*asked) == seconds(*asked)
