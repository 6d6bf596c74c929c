"""From a schedule on a topology to what the engine runs: routes, classes of alike messages, shares of the links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from backends.network.algorithms import Stage
from backends.network.congestion import Dcqcn
from backends.network.folding import Classes, Integers, Traffic, firsts, in_order, refine, same_pairs, unfolded
from backends.network.messages import Messages, expand, flatten, link_bytes, link_times, traffic_of
from backends.network.packets import acknowledgement_time, packet_time, packets, tail
from backends.network.parameters import ChunkOrder, CongestionControl, NetworkParameters
from backends.network.rounds import MessageClass, Program
from backends.network.sharing import Floats, Shares
from backends.network.topology import Topology
from backends.network.trains import Trains, trains
from backends.network.window_figures import windows_of
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


def compile_stages(
    stages: list[Stage], lanes: list[list[int]], topology: Topology, parameters: NetworkParameters
) -> Compiled:
    """`lanes` run side by side; each is the numbers of the `stages` it runs one after another."""
    stages, lanes = expand(stages, lanes, topology, parameters)
    flat = flatten(stages, topology, parameters)
    traffic, devices = traffic_of(flat, topology, parameters)
    classes = refine(traffic, len(devices))
    found, classes = _packets(stages, lanes, flat, traffic, classes, devices, topology, parameters)
    program = _program(stages, lanes, flat, traffic, classes, topology, parameters)
    shares = _shares(flat, traffic, classes, topology, parameters)
    windows = None
    if parameters.window and found is None:
        windows = windows_of(flat, traffic, classes, topology, parameters)
    dcqcn = None
    if windows is not None and parameters.congestion_control is CongestionControl.DCQCN:
        dcqcn = Dcqcn(windows, np.where(windows.queues > 0, 0.0, windows.load), parameters)
    return Compiled(program, shares, windows, dcqcn, link_bytes(stages, lanes, flat, parameters), found)


def _packets(
    stages: list[Stage],
    lanes: list[list[int]],
    flat: Messages,
    traffic: Traffic,
    classes: Classes,
    devices: Integers,
    topology: Topology,
    parameters: NetworkParameters,
) -> tuple[Trains | None, Classes]:
    """What to simulate packet by packet and its folding, as fine as the budget allows; None where fluids will do."""
    if not parameters.window or parameters.congestion_control not in BY_PACKETS:
        return None, classes
    times = Counter(number for lane in lanes for number in lane)
    runs = np.array([stages[number].repeat * times[number] for number in flat.stage])
    cost = runs * np.ceil(flat.nbytes / parameters.payload_bytes) * flat.ways.lengths
    members = [np.flatnonzero(flat.stage == index) for index in range(len(stages))]
    best: tuple[Trains | None, Classes] = None, classes
    for finer in _foldings(traffic, devices, topology.devices, float(cost.sum()), parameters):
        if cost[firsts(finer.message)].sum() > parameters.packet_budget:
            break
        found = trains(
            flat.nbytes.tolist(), flat.routes, flat.back_routes, traffic, finer, topology, flat.links, parameters
        )
        if not found.crowded([tuple(np.unique(finer.message[stage]).tolist()) for stage in members]):
            break
        best = found, finer
    return best


def _foldings(
    traffic: Traffic, devices: Integers, count: int, cost: float, parameters: NetworkParameters
) -> Iterator[Classes]:
    """Every message on its own where the budget allows that; else alike ones folded, ever finer.

    Marks strike single messages, so DCQCN is never folded.
    """
    if cost <= parameters.packet_budget:
        yield unfolded(traffic, len(devices))
    elif parameters.congestion_control is not CongestionControl.DCQCN:
        for size in (size for size in range(1, count + 1) if count % size == 0):
            yield in_order(refine(traffic, len(devices), devices % size))


def _program(
    stages: list[Stage],
    lanes: list[list[int]],
    flat: Messages,
    traffic: Traffic,
    classes: Classes,
    topology: Topology,
    parameters: NetworkParameters,
) -> Program:
    first = firsts(classes.message)
    arrivals = _arrivals(traffic, classes, first) if any(stage.one_by_one for stage in stages) else None
    connections = same_pairs(traffic, classes.message).tolist()
    tails = _tails(flat, first, topology, parameters)
    sources, targets = classes.rank[traffic.source[first]].tolist(), classes.rank[traffic.target[first]].tolist()
    alike = []
    for number, at in enumerate(first.tolist()):
        stage, nbytes = stages[flat.stage[at]], float(flat.nbytes[at])
        buffers = arrivals[number] if arrivals and stage.one_by_one else 1
        alike.append(
            MessageClass(
                source=sources[number],
                target=targets[number],
                work=packets(nbytes, parameters),
                tail=tails[number],
                reduce=buffers * 3 * stage.reduced * nbytes / parameters.reduce_bandwidth if stage.reduces else 0.0,
                one_by_one=stage.one_by_one,
                delay=stage.delay + parameters.step_seconds,
                connection=connections[number],
            )
        )
    begins = np.searchsorted(flat.stage, np.arange(len(stages) + 1)).tolist()
    members = [tuple(np.unique(classes.message[begin:end]).tolist()) for begin, end in pairwise(begins)]
    rounds = [[members[number] for number in lane for _ in range(stages[number].repeat)] for lane in lanes]
    in_order = parameters.chunk_order is ChunkOrder.PIPELINED
    return Program(tuple(alike), tuple(map(tuple, rounds)), int(classes.rank.max()) + 1, in_order)


def _arrivals(traffic: Traffic, classes: Classes, first: Integers) -> list[int]:
    """How many messages of its class reach the target of each class's first message."""
    found, counts = np.unique(np.stack([classes.message, traffic.target]), axis=1, return_counts=True)
    known = dict(zip(map(tuple, found.T.tolist()), counts.tolist(), strict=True))
    return [known[number, target] for number, target in enumerate(traffic.target[first].tolist())]


def _tails(flat: Messages, first: Integers, topology: Topology, parameters: NetworkParameters) -> list[float]:
    """`packets.tail` of each class; messages of one size on links that look alike have one."""
    known: dict[tuple[object, ...], float] = {}
    found = []
    for at in first.tolist():
        route, back, nbytes = flat.ways.way(at), flat.backs.way(at), float(flat.nbytes[at])
        key = nbytes, topology.looks[list(route)].tobytes(), topology.looks[list(back)].tobytes()
        if key not in known:
            known[key] = tail(nbytes, topology.cables(route), topology.cables(back), parameters)
        found.append(known[key])
    return found


def _shares(
    flat: Messages, traffic: Traffic, classes: Classes, topology: Topology, parameters: NetworkParameters
) -> Shares:
    heads = firsts(classes.link)
    is_head = np.zeros(len(flat.links), dtype=bool)
    is_head[heads] = True
    data = link_times(topology, flat.links, packet_time, parameters)
    back = link_times(topology, flat.links, acknowledgement_time, parameters)
    forth, answers = is_head[traffic.link], is_head[traffic.back_link]
    flow = np.concatenate([classes.message[traffic.message[forth]], classes.message[traffic.back_message[answers]]])
    crossed = np.concatenate([traffic.link[forth], traffic.back_link[answers]])
    cost = np.concatenate([data[traffic.link[forth]], back[traffic.back_link[answers]]])
    background = np.arange(len(flow)) >= int(forth.sum())
    return Shares(flow, classes.link[crossed], cost, background, int(classes.message.max()) + 1, len(heads))
