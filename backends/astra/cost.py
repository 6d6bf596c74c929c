"""What a run on ns-3 will cost, before it starts: packets times hops, simulated time, and the size of the network.

ns-3 handles every packet at every hop, and its acknowledgement on the way back. Besides, its queue monitor looks at
every switch port each 100 ns of simulated time, whatever happens, and it works out all routes when it starts.
docs/astra_sim.md has the measurements behind the constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import ceil, log2
from typing import Any

from backends.exchange.execution import Calls
from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, MessageCall, Work
from backends.exchange.phases import Phase, phases
from backends.network.topology import Topology

REFERENCE_US = 5.0
"""Processor time of a packet at a hop, in µs: the median of the reference runs of a stock build (docs/astra_sim.md)."""
_START_S, _SWITCHES_S, _DEVICES_S = 0.1, 5e-3, 2e-5
"""Of a start, of each switch to the power 1.5, of each pair of devices, at the reference speed."""
_MONITOR_NS, _MONITOR_S, _PORT_S = 100, 3.5e-7, 5e-8
"""Of the queue monitor: between two looks, of a look, of each switch port in it, at the reference speed."""
_PAIRS = 64
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True)
class Speed:
    """Processor time of a packet at a hop in µs, and where the figure comes from."""

    us_per_hop: float = REFERENCE_US
    source: str = "a stock build's rate"


@dataclass(frozen=True)
class Cost:
    """`packet_hops` counts each packet, and each acknowledgement, at every link. `seconds` are processor time.

    `simulated_ns` is a lower bound on the time that passes in the network. The estimate holds within a factor of three
    (docs/astra_sim.md).
    """

    packets: int
    packet_hops: int
    simulated_ns: int
    seconds: float
    speed: Speed

    def __str__(self) -> str:
        return (
            f"about {duration(self.seconds)} of processor time ({_count(self.packets)} packets, "
            f"{_count(self.packet_hops)} hops with acknowledgements, {self.speed.us_per_hop:.2g} µs each: "
            f"{self.speed.source})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "packets": self.packets, "packet_hops": self.packet_hops, "simulated_ns_at_least": self.simulated_ns,
            "predicted_seconds": round(self.seconds, 3), "us_per_hop": self.speed.us_per_hop,
            "speed_from": self.speed.source,
        }  # fmt: skip


def _count(number: int) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return str(number)


def duration(seconds: float) -> str:
    """A time for people, in the unit that fits."""
    for unit, name in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.2g} {name}" if seconds < 95 * unit else f"{seconds / unit:.0f} {name}"
    return f"{seconds:.2g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


def estimate(inputs: AstraInputs, calls: Calls, payload_bytes: int, speed: Speed | None = None) -> Cost:
    """What running `calls` (what each node does, rank by rank) on ns-3 will cost.

    Raises:
        BadInputError: nothing joins two ranks that talk.
    """
    counter = _Counter(inputs, payload_bytes)
    for rank, mine in enumerate(calls):
        for _, what in mine:
            counter.add(rank, what)
    used = speed or Speed()
    packets, hops, simulated = round(counter.packets), round(counter.hops), round(max(counter.busy, default=0.0))
    return Cost(packets, hops, simulated, _seconds(inputs.topology, hops, simulated, used), used)


def _seconds(topology: Topology, hops: int, simulated_ns: int, speed: Speed) -> float:
    switches = float(topology.nodes - topology.devices)
    ports = sum(link.source >= topology.devices for link in topology.links)
    start: float = _START_S + _SWITCHES_S * switches**1.5 + _DEVICES_S * topology.devices**2
    monitor = simulated_ns / _MONITOR_NS * (_MONITOR_S + _PORT_S * ports)
    return (start + monitor) * speed.us_per_hop / REFERENCE_US + hops * speed.us_per_hop * 1e-6


class _Counter:
    """Adds up packets, their hops, and the ns that each rank is at least busy with its own work and messages."""

    def __init__(self, inputs: AstraInputs, payload: int) -> None:
        self.packets = self.hops = 0.0
        self.busy = [0.0] * inputs.ranks
        self._inputs, self._payload = inputs, payload
        self._sent = cache(self._of_collective)

    def add(self, rank: int, what: object) -> None:
        if isinstance(what, Work):
            self.busy[rank] += what.nanoseconds or 0
        elif isinstance(what, MessageCall) and what.sends:
            route = self._inputs.topology.route(what.source, what.target)
            count = max(1, ceil(what.size / self._payload))
            self.packets += count
            self.hops += 2 * len(route) * count
            self.busy[rank] += _wire_ns(self._inputs.topology, route, what.size)
        elif isinstance(what, CollectiveCall) and len(what.members) > 1 and what.kind != "broadcast":
            packets, hops, nanoseconds = self._sent(what)
            self.busy[rank] += nanoseconds
            self.packets += packets / len(what.members)  # every member has the same node
            self.hops += hops / len(what.members)

    def _of_collective(self, call: CollectiveCall) -> tuple[float, float, float]:
        """Packets and their hops of all members, ns of one of them."""
        splits, topology = max(1, self._inputs.system.splits), self._inputs.topology
        packets = hops = nanoseconds = 0.0
        for phase in phases(self._inputs, call):
            count, size = messages(phase, splits)
            group = phase.groups[0]
            routes = [topology.route(*pair) for pair in _pairs(group, phase.algorithm)]
            length = sum(map(len, routes)) / len(routes)
            sent = len(phase.groups) * count * max(1, ceil(size / self._payload))
            packets += sent
            hops += 2 * length * sent
            nanoseconds += count / len(group) * _wire_ns(topology, routes[0], size)
        return packets, hops, nanoseconds


def messages(phase: Phase, splits: int = 1) -> tuple[float, float]:
    """How many messages one group of a phase exchanges as ASTRA-sim runs it, and the mean bytes of one.

    A ring all-to-all relays n(n-1)/2 messages a rank; its double binary tree sends the whole chunk over every edge of
    one tree, up and down (docs/network.md, `double_binary_tree_astra`).
    """
    n, size = len(phase.groups[0]), phase.nbytes / splits
    rounds = 2 if phase.kind == "all_reduce" else 1
    if phase.algorithm == "double_binary_tree_astra":
        return splits * 2.0 * (n - 1), size
    if phase.algorithm == "halving_doubling":
        steps = log2(n)
        return splits * rounds * n * steps, size * (n - 1) / n / steps
    if phase.algorithm == "ring" and phase.kind == "all_to_all":
        return splits * n * n * (n - 1) / 2, size / n
    return splits * rounds * n * (n - 1.0), size / n


def _pairs(group: tuple[int, ...], algorithm: str | None) -> list[tuple[int, int]]:
    """Some of the pairs that talk: neighbours of a ring, else ranks spread over the group."""
    n = len(group)
    if algorithm == "ring":
        return list(islice(zip(group, [*group[1:], group[0]], strict=True), _PAIRS))
    stride = max(1, n * (n - 1) // _PAIRS)
    return [(group[i // (n - 1)], group[(i // (n - 1) + 1 + i % (n - 1)) % n]) for i in range(0, n * (n - 1), stride)]


def _wire_ns(topology: Topology, route: tuple[int, ...], size: float) -> float:
    return 1e9 * size / min(topology.links[link].bandwidth for link in route)
