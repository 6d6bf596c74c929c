"""A topology as ASTRA-sim's networks can have it: regular dimensions of one bandwidth each, or cables for NS-3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from backends.network.builders import both_ways
from backends.network.formats import GIBI, AstraNetwork, Dimension, DimensionKind, write_ns3_topology
from backends.network.topology import Link, Topology
from runs.errors import BadInputError

_MEGABIT = 1e6 / 8


@dataclass(frozen=True)
class Flattened:
    """An analytical network and what of the topology it leaves out."""

    network: AstraNetwork
    losses: tuple[str, ...]


def analytical_network(topology: Topology, ranks: int) -> Flattened:
    """The dimensions of the first `ranks` devices: a ring for each axis of a torus, else scale-up and scale-out.

    The bandwidth of a dimension is what each device gets while all of them send along it; what a file calls GB/s are
    GiB/s to the binaries, and the figures here are written so that they mean the real rate.

    Raises:
        BadInputError: nothing joins two of the devices.
    """
    sizes = [size for size in topology.shape if size > 1]
    if sizes and prod(sizes) == ranks:
        return _rings(topology, sizes)
    domain = _domain(topology, ranks)
    if domain is None:
        return one_dimension(topology, ranks)
    inner, outer = domain, ranks // domain
    first = _dimension(topology, [list(range(d, d + inner)) for d in range(0, ranks, inner)])
    second = _dimension(topology, [list(range(d, ranks, inner)) for d in range(inner)], "Switch")
    losses = (
        f"{topology.name} becomes {first.kind} {inner} x Switch {outer}: within a node one bandwidth, between nodes "
        "what each device gets of the NICs while all send; PCIe, sockets, leaves and spines are not there",
        "groups that are not all ranks run ring, whatever the system file names",
    )
    return Flattened(AstraNetwork((first, second)), losses)


def one_dimension(topology: Topology, ranks: int) -> Flattened:
    """All devices as one dimension, at the rate that each gets while all send to the next."""
    found = _dimension(topology, [list(range(ranks))])
    rates = {round(topology.links[link].bandwidth) for link in _used(topology, ranks)}
    losses = [f"{topology.name} becomes {found.kind} {ranks} at its slowest link"] if len(rates) > 1 else []
    return Flattened(AstraNetwork((found,)), tuple(losses))


def _used(topology: Topology, ranks: int) -> set[int]:
    return {link for a in range(ranks) for link in topology.route(a, (a + 1) % ranks)} if ranks > 1 else set()


def _rings(topology: Topology, sizes: Sequence[int]) -> Flattened:
    dimensions, stride = [], 1
    for size in sizes:
        lines = [
            [first + stride * place for place in range(size)]
            for first in range(prod(sizes))
            if first // stride % size == 0
        ]
        dimensions.append(_dimension(topology, lines, "Ring"))
        stride *= size
    return Flattened(AstraNetwork(tuple(dimensions)), ())


def _domain(topology: Topology, ranks: int) -> int | None:
    """How many devices a scale-up domain has, where the ranks fill several of them evenly."""
    if not topology.tiers:
        return None
    tier = topology.tiers[0][:ranks]
    size = tier.count(tier[0])
    is_regular = all(tier[rank] == tier[rank // size * size] for rank in range(ranks)) and ranks % size == 0
    return size if is_regular and 1 < size < ranks else None


def _dimension(topology: Topology, lines: list[list[int]], kind: DimensionKind | None = None) -> Dimension:
    """The figures of one dimension from the routes of neighbours in `lines` that all send at once."""
    pairs = [(line[place], line[(place + 1) % len(line)]) for line in lines for place in range(len(line))]
    routes = [topology.route(a, b) for a, b in pairs]
    load = Counter(link for route in routes for link in route)
    rate = min(topology.links[link].bandwidth / times for link, times in load.items())
    delay = max(sum(topology.links[link].latency for link in route) for route in routes)
    chosen = kind or ("FullyConnected" if _meshed(topology, lines[0]) else "Switch")
    hops = 2 if chosen == "Switch" else 1
    return Dimension(chosen, len(lines[0]), float(f"{rate / GIBI:.9g}"), float(f"{delay * 1e9 / hops:.9g}"))


def _meshed(topology: Topology, line: list[int]) -> bool:
    return all(len(topology.route(a, b)) == 1 for a in line for b in line if a != b)


@dataclass(frozen=True)
class Physical:
    """A physical topology text for NS-3, the topology it means, and what is different."""

    text: str
    topology: Topology
    losses: tuple[str, ...]


def physical_topology(topology: Topology) -> Physical:
    """The text of a topology, rates in whole Mb/s, which NS-3 and the thresholds of its configuration both can name.

    Raises:
        BadInputError: it cannot be written: devices that forward, cables that differ in their two directions.
    """
    links = _cables(topology)
    drawn = Topology(
        topology.name, topology.devices, links, topology.nodes, topology.devices_forward, topology.shape,
        topology.tiers, topology.labels,
    )  # fmt: skip
    losses = []
    if len(links) < len(topology.links):
        losses.append("parallel cables between two nodes are one cable of their joint rate; NS-3 counts them once")
    elif any(
        abs(a.bandwidth - b.bandwidth) > 1 for a, b in zip(_ordered(links), _ordered(topology.links), strict=True)
    ):
        losses.append("link rates are rounded to whole Mb/s")
    return Physical(write_ns3_topology(drawn), drawn, tuple(losses))


def _ordered(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (link.source, link.target))


def _cables(topology: Topology) -> tuple[Link, ...]:
    joint: dict[tuple[int, int], tuple[float, float]] = {}
    for link in topology.links:
        rate, delay = joint.get((link.source, link.target), (0.0, link.latency))
        joint[link.source, link.target] = (rate + link.bandwidth, max(delay, link.latency))
    if any(joint.get((b, a)) != figures for (a, b), figures in joint.items()):
        raise BadInputError(f"{topology.name}: a link differs from its way back", "NS-3 cables are symmetric")
    return both_ways(
        (a, b, max(1, round(rate / _MEGABIT)) * _MEGABIT, delay) for (a, b), (rate, delay) in joint.items() if a < b
    )
