"""From a schedule on a topology to what the engine runs: routes, classes of alike messages, shares of the links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from backends.network.algorithms import Stage
from backends.network.congestion import Dcqcn
from backends.network.folding import Classes, Integers, Traffic, in_order, refine, same_pairs
from backends.network.packets import (
    acknowledgement_time,
    on_the_wire,
    opposing_burst,
    packet_time,
    packets,
    residual,
    tail,
    window,
)
from backends.network.parameters import ChunkOrder, CongestionControl, NetworkParameters
from backends.network.rounds import MessageClass, Program
from backends.network.sharing import Floats, Shares
from backends.network.topology import Topology
from backends.network.trains import Trains, trains
from backends.network.windows import Windows

BY_PACKETS = (CongestionControl.HPCC, CongestionControl.DCQCN)


@dataclass(frozen=True)
class Compiled:
    """A program with its shares, and the wire bytes that the whole collective puts on each link."""

    program: Program
    shares: Shares
    windows: Windows | None
    dcqcn: Dcqcn | None
    link_bytes: Mapping[int, float]
    trains: Trains | None = None

    def rates(self, copies: Floats) -> tuple[Floats, Floats | None]:
        """Packets/s of a copy of each class when so many are active, and seconds each is late by congestion control."""
        if self.windows is None:
            return self.shares.rates(copies), None
        rates, queue = self.windows.rates(self.shares, copies)
        return rates, self.dcqcn.stalls(copies, queue) if self.dcqcn else None


@dataclass(frozen=True)
class _Flat:
    """The messages of all stages with their routes."""

    stage: Integers
    source: Integers
    target: Integers
    nbytes: Floats
    routes: list[tuple[int, ...]]


def compile_stages(
    stages: list[Stage], lanes: list[list[int]], topology: Topology, parameters: NetworkParameters
) -> Compiled:
    """`lanes` run side by side; each is the numbers of the `stages` it runs one after another."""
    stages, lanes = _expand(stages, lanes, topology, parameters)
    flat = _flatten(stages, topology, parameters)
    links = np.array(sorted({link for route in flat.routes for link in _both(route, topology)}), dtype=np.int64)
    index = {int(link): at for at, link in enumerate(links)}
    traffic, devices = _traffic(flat, topology, index, links, parameters)
    classes = refine(traffic, len(devices))
    found, classes = _packets(stages, lanes, flat, traffic, classes, devices, topology, links, parameters)
    program = _program(stages, lanes, flat, traffic, classes, topology, parameters)
    shares = _shares(traffic, classes, topology, links, parameters)
    windows = _windows(flat, traffic, classes, topology, links, parameters) if parameters.window else None
    dcqcn = None
    if windows is not None and parameters.congestion_control is CongestionControl.DCQCN:
        dcqcn = Dcqcn(windows, np.where(windows.queues > 0, 0.0, windows.load), parameters)
    return Compiled(program, shares, windows, dcqcn, _link_bytes(stages, lanes, flat, parameters), found)


def _packets(
    stages: list[Stage],
    lanes: list[list[int]],
    flat: _Flat,
    traffic: Traffic,
    classes: Classes,
    devices: Integers,
    topology: Topology,
    links: Integers,
    parameters: NetworkParameters,
) -> tuple[Trains | None, Classes]:
    """What to simulate packet by packet and its folding, as fine as the budget allows; None where fluids will do."""
    if not parameters.window or parameters.congestion_control not in BY_PACKETS:
        return None, classes
    backs = [_back(route, topology) for route in flat.routes]
    times = Counter(number for lane in lanes for number in lane)
    runs = np.array([stages[number].repeat * times[number] for number in flat.stage])
    cost = runs * np.ceil(flat.nbytes / parameters.payload_bytes) * np.array([len(route) for route in flat.routes])
    best: tuple[Trains | None, Classes] = None, classes
    for size in _shares_of(topology.devices, parameters):
        finer = in_order(refine(traffic, len(devices), devices % size))
        if cost[_firsts(finer.message)].sum() > parameters.packet_budget:
            break
        found = trains(flat.nbytes.tolist(), flat.routes, backs, traffic, finer, topology, links, parameters)
        members = [tuple(np.unique(finer.message[flat.stage == index]).tolist()) for index in range(len(stages))]
        if not found.crowded(members):
            break
        best = found, finer
    return best


def _shares_of(devices: int, parameters: NetworkParameters) -> list[int]:
    """How many devices in a row to tell apart, coarsest first. Marks strike single messages, so DCQCN needs all."""
    if parameters.congestion_control is CongestionControl.DCQCN:
        return [devices]
    return [size for size in range(1, devices + 1) if devices % size == 0]


def _expand(
    stages: list[Stage], lanes: list[list[int]], topology: Topology, parameters: NetworkParameters
) -> tuple[list[Stage], list[list[int]]]:
    """Every round of every lane a stage of its own where each message takes a route of its own."""
    pairs = {(source, target) for stage in stages for source, target, _ in stage.messages}
    if not parameters.flow_per_message or not any(topology.has_ties(*pair) for pair in pairs):
        return stages, lanes
    rounds: list[Stage] = []
    places: list[list[int]] = []
    for lane in lanes:
        single = [replace(stages[number], repeat=1) for number in lane for _ in range(stages[number].repeat)]
        places.append(list(range(len(rounds), len(rounds) + len(single))))
        rounds += single
    return rounds, places


def _flatten(stages: list[Stage], topology: Topology, parameters: NetworkParameters) -> _Flat:
    rows = [(index, *message) for index, stage in enumerate(stages) for message in stage.messages]
    sent: dict[tuple[int, int], int] = {}
    routes = []
    for _, source, target, _ in rows:
        number = sent.get((source, target), 0)
        sent[source, target] = number + 1
        routes.append(topology.route(source, target, number if parameters.flow_per_message else 0))
    columns = list(zip(*rows, strict=True))
    stages_of, sources, targets = (np.array(column, dtype=np.int64) for column in columns[:3])
    return _Flat(stages_of, sources, targets, np.array(columns[3], dtype=np.float64), routes)


def _both(route: tuple[int, ...], topology: Topology) -> tuple[int, ...]:
    return route + _back(route, topology)


def _back(route: tuple[int, ...], topology: Topology) -> tuple[int, ...]:
    """The way of the acknowledgements: the same cables, the other way; one-way cables carry none."""
    reverse = (topology.reverse(link) for link in reversed(route))
    return tuple(link for link in reverse if link is not None)


def _traffic(
    flat: _Flat, topology: Topology, index: dict[int, int], links: Integers, parameters: NetworkParameters
) -> tuple[Traffic, Integers]:
    devices, ends = np.unique(np.concatenate([flat.source, flat.target]), return_inverse=True)
    backs = [_back(route, topology) if parameters.ack_bytes else () for route in flat.routes]
    kinds = np.unique(np.stack([flat.stage, flat.nbytes.view(np.int64)]), axis=1, return_inverse=True)[1]
    known = [topology.links[i] for i in links]
    figures = np.array([(link.bandwidth, link.latency, link.source < topology.devices) for link in known])
    looks = np.unique(figures, axis=0, return_inverse=True)[1]

    def entries(routes: list[tuple[int, ...]]) -> tuple[Integers, Integers, Integers]:
        lengths = np.array([len(route) for route in routes], dtype=np.int64)
        messages = np.repeat(np.arange(len(routes), dtype=np.int64), lengths)
        crossed = np.array([index[link] for route in routes for link in route], dtype=np.int64)
        hops = np.arange(len(messages), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return messages, crossed, hops

    message, link, hop = entries(flat.routes)
    back_message, back_link, _ = entries(backs)
    size = len(flat.source)
    return (
        Traffic(ends[:size], ends[size:], kinds.ravel(), message, link, hop, looks.ravel(), back_message, back_link),
        devices,
    )


def _firsts(classes: Integers) -> Integers:
    """The first member of each class."""
    return np.unique(classes, return_index=True)[1]


def _program(
    stages: list[Stage],
    lanes: list[list[int]],
    flat: _Flat,
    traffic: Traffic,
    classes: Classes,
    topology: Topology,
    parameters: NetworkParameters,
) -> Program:
    alike = []
    pairs = np.stack([classes.message, traffic.target])
    counts = dict(zip(*_pair_counts(pairs), strict=True))
    connections = same_pairs(traffic, classes.message)
    for first in _firsts(classes.message):
        stage = stages[flat.stage[first]]
        arrivals = counts[int(classes.message[first]), int(traffic.target[first])] if stage.one_by_one else 1
        route = [topology.links[link] for link in flat.routes[first]]
        back = [topology.links[link] for link in _back(flat.routes[first], topology)]
        nbytes = float(flat.nbytes[first])
        alike.append(
            MessageClass(
                source=int(classes.rank[traffic.source[first]]),
                target=int(classes.rank[traffic.target[first]]),
                work=packets(nbytes, parameters),
                tail=tail(nbytes, route, back, parameters),
                reduce=arrivals * 3 * stage.reduced * nbytes / parameters.reduce_bandwidth if stage.reduces else 0.0,
                one_by_one=stage.one_by_one,
                delay=stage.delay + parameters.step_seconds,
                connection=int(connections[classes.message[first]]),
            )
        )
    members = [tuple(np.unique(classes.message[flat.stage == index]).tolist()) for index in range(len(stages))]
    rounds = [[members[number] for number in lane for _ in range(stages[number].repeat)] for lane in lanes]
    in_order = parameters.chunk_order is ChunkOrder.PIPELINED
    return Program(tuple(alike), tuple(map(tuple, rounds)), int(classes.rank.max()) + 1, in_order)


def _pair_counts(pairs: Integers) -> tuple[list[tuple[int, int]], list[int]]:
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return [(int(a), int(b)) for a, b in found.T], counts.tolist()


def _shares(
    traffic: Traffic, classes: Classes, topology: Topology, links: Integers, parameters: NetworkParameters
) -> Shares:
    first = np.zeros(len(links), dtype=bool)
    first[_firsts(classes.link)] = True
    data = np.array([packet_time(topology.links[link], parameters) for link in links])
    back = np.array([acknowledgement_time(topology.links[link], parameters) for link in links])
    forth, answers = first[traffic.link], first[traffic.back_link]
    flow = np.concatenate([classes.message[traffic.message[forth]], classes.message[traffic.back_message[answers]]])
    crossed = np.concatenate([traffic.link[forth], traffic.back_link[answers]])
    cost = np.concatenate([data[traffic.link[forth]], back[traffic.back_link[answers]]])
    background = np.arange(len(flow)) >= int(forth.sum())
    size = len(_firsts(classes.link))
    return Shares(flow, classes.link[crossed], cost, background, int(classes.message.max()) + 1, size)


def _windows(
    flat: _Flat,
    traffic: Traffic,
    classes: Classes,
    topology: Topology,
    links: Integers,
    parameters: NetworkParameters,
) -> Windows:
    """The window model of each class, from its first message and the first link of each class."""
    firsts, heads = _firsts(classes.message), _firsts(classes.link)
    shape = (len(heads), len(firsts))
    load, queues, crossed, waits = (np.zeros(shape) for _ in range(4))
    times = np.array([packet_time(topology.links[link], parameters) for link in links])
    class_of = {int(link): int(classes.link[at]) for at, link in enumerate(links)}
    figures = np.zeros((5, len(firsts)))
    for column, first in enumerate(firsts):
        route = flat.routes[first]
        back = _back(route, topology)
        forth, answers = ([topology.links[link] for link in way] for way in (route, back))
        size = packets(float(flat.nbytes[first]), parameters)
        span = window(forth, answers, parameters)
        figures[:, column] = size, *span, opposing_burst(forth, answers, span[0], parameters)
        for hop, link in enumerate(route[1:], 1):
            queues[class_of[link], column] += 1
            crossed[class_of[link], column] = max(crossed[class_of[link], column], 1 / hop)
        for hop, link in enumerate(back):
            queues[class_of[link], column] += hop > 0
            left = residual(forth, parameters) if hop == 0 else 1.0
            waits[class_of[link], column] += left * packet_time(topology.links[link], parameters)
    is_head = np.zeros(len(links), dtype=bool)
    is_head[heads] = True
    entries = is_head[traffic.link]
    at, flows = classes.link[traffic.link[entries]], classes.message[traffic.message[entries]]
    np.add.at(load, (at, flows), times[traffic.link[entries]])
    opposite = _opposites(flat, classes)
    return Windows(
        figures[0], figures[1], figures[2], figures[3], load, queues, crossed, waits, times[heads], figures[4], opposite
    )


def _opposites(flat: _Flat, classes: Classes) -> Integers:
    """For each class the one that holds the message the other way in the same stage; -1 where there is none."""
    rows = zip(flat.stage.tolist(), flat.source.tolist(), flat.target.tolist(), strict=True)
    known = dict(zip(rows, classes.message.tolist(), strict=True))
    firsts = _firsts(classes.message)
    keys = zip(flat.stage[firsts].tolist(), flat.target[firsts].tolist(), flat.source[firsts].tolist(), strict=True)
    return np.array([known.get(key, -1) for key in keys], dtype=np.int64)


def _link_bytes(
    stages: list[Stage], lanes: list[list[int]], flat: _Flat, parameters: NetworkParameters
) -> dict[int, float]:
    times = Counter(number for lane in lanes for number in lane)
    wire = {float(size): on_the_wire(float(size), parameters) for size in np.unique(flat.nbytes)}
    total: dict[int, float] = {}
    for number, size, route in zip(flat.stage.tolist(), flat.nbytes.tolist(), flat.routes, strict=True):
        amount = wire[size] * stages[number].repeat * times[number]
        for link in route:
            total[link] = total.get(link, 0.0) + amount
    return total
