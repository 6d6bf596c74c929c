"""What the packet engine runs: for each class of alike messages its way, port by port, with the copies that meet there.

Alike messages (`folding`) move alike, so one packet of a class stands for the same packet of all its messages: a train
of as many copies as cross a port of that class.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from backends.network.folding import Classes, Integers, Traffic
from backends.network.packets import acknowledgement_time, packet_time
from backends.network.parameters import NetworkParameters
from backends.network.topology import Topology


@dataclass(frozen=True)
class Port:
    """A class of links: bytes/s, propagation in seconds, seconds of a full packet and of an acknowledgement."""

    bandwidth: float
    latency: float
    packet: float
    acknowledgement: float


@dataclass(frozen=True)
class Way:
    """A class of messages: (port class, copies that meet there) hop by hop, the acknowledgements' way likewise.

    `window` is in bytes, `trip` the base round trip in seconds, as the senders of NS-3 know them.
    """

    nbytes: float
    hops: tuple[tuple[int, float], ...]
    back: tuple[tuple[int, float], ...]
    window: float
    trip: float


@dataclass(frozen=True)
class Trains:
    """All classes of links and of messages of a program, numbered as in it."""

    ports: tuple[Port, ...]
    ways: tuple[Way, ...]

    @property
    def single(self) -> bool:
        """Whether every class is one message."""
        return all(copies == 1.0 for way in self.ways for _, copies in (*way.hops, *way.back))

    def crowded(self, stages: list[tuple[int, ...]]) -> bool:
        """Whether messages, sent as fast as their hosts can in some stage, would more than fill a port behind them.

        Folded ones count only where several hosts meet: a lone host's swings are overstated by trains.
        """
        return any(self._fullest(members) > 1.0 + 1e-6 for members in stages)

    def _fullest(self, members: tuple[int, ...]) -> float:
        sent: defaultdict[int, float] = defaultdict(float)
        for member in members:
            port, copies = self.ways[member].hops[0]
            sent[port] += copies * self.ports[port].packet
        load: defaultdict[int, float] = defaultdict(float)
        meeting: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for member in members:
            (host, own), *rest = self.ways[member].hops
            for port, copies in rest:
                load[port] += copies * self.ports[port].packet / sent[host]
                meeting[port][host] = max(meeting[port].get(host, 0.0), copies / own)
        lone = 0.0 if self.single else 1.0 + 1e-6
        return max((load[port] for port in load if sum(meeting[port].values()) > lone), default=0.0)


def trains(
    nbytes: list[float],
    routes: list[tuple[int, ...]],
    backs: list[tuple[int, ...]],
    traffic: Traffic,
    classes: Classes,
    topology: Topology,
    links: Integers,
    parameters: NetworkParameters,
) -> Trains:
    """From the folded traffic; `links` are the numbers of the links that `traffic` counts from 0."""
    heads = np.unique(classes.link, return_index=True)[1]
    firsts = np.unique(classes.message, return_index=True)[1]
    is_head = np.zeros(len(links), dtype=bool)
    is_head[heads] = True
    forth = _copies(traffic.message, traffic.link, traffic.hop, classes, is_head)
    back = _copies(traffic.back_message, traffic.back_link, np.zeros_like(traffic.back_link), classes, is_head)
    class_of = {int(link): int(classes.link[at]) for at, link in enumerate(links)}
    ways = []
    for number, first in enumerate(firsts.tolist()):
        hops = [(class_of[link], hop) for hop, link in enumerate(routes[first])]
        answers = Counter(class_of[link] for link in backs[first])
        ways.append(
            Way(
                nbytes[first],
                tuple((port, float(forth[number, port, hop])) for port, hop in hops),
                tuple(
                    (class_of[link], back[number, class_of[link], 0] / answers[class_of[link]]) for link in backs[first]
                ),
                *_pair(routes[first], topology, parameters),
            )
        )
    return Trains(tuple(_port(topology, int(links[head]), parameters) for head in heads), tuple(ways))


def _copies(
    message: Integers, link: Integers, hop: Integers, classes: Classes, is_head: np.ndarray
) -> Counter[tuple[int, int, int]]:
    kept = is_head[link]
    columns = classes.message[message[kept]], classes.link[link[kept]], hop[kept]
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def _pair(route: tuple[int, ...], topology: Topology, parameters: NetworkParameters) -> tuple[float, float]:
    """Window in bytes and base round trip in seconds of a pair: propagation both ways and a payload on every hop."""
    cables = [topology.links[link] for link in route]
    trip = 2 * sum(cable.latency for cable in cables)
    trip += sum(parameters.payload_bytes / cable.bandwidth for cable in cables)
    return trip * min(cable.bandwidth for cable in cables), trip


def _port(topology: Topology, link: int, parameters: NetworkParameters) -> Port:
    cable = topology.links[link]
    return Port(cable.bandwidth, cable.latency, packet_time(cable, parameters), acknowledgement_time(cable, parameters))
