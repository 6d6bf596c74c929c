"""ASTRA-sim's two network descriptions: the analytical network.yml and the ns-3 physical topology text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import yaml

from backends.network.builders import Cable, both_ways
from backends.network.topology import Topology
from runs.errors import BadInputError

DimensionKind = Literal["Ring", "FullyConnected", "Switch"]
_KINDS = ("Ring", "FullyConnected", "Switch")
_FIELDS = ("topology", "npus_count", "bandwidth", "latency")
GIBI = 2.0**30
_RATES = {"bps": 1.0, "kbps": 1e3, "mbps": 1e6, "gbps": 1e9, "tbps": 1e12}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
_LEAST_GBPS, _MOST_GBPS, _LONGEST_NS = 1e-6, 1e9, 1e12
"""What a network.yml may hold: beyond these times have no 64 bits of ns."""
_QUANTITY = re.compile(r"([0-9.eE+-]+)\s*([a-zA-Z]+)")


@dataclass(frozen=True)
class Dimension:
    """One dimension of network.yml: `bandwidth` in what the file calls GB/s (it means GiB/s), `latency` in ns a hop."""

    kind: DimensionKind
    count: int
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class AstraNetwork:
    """The content of a network.yml."""

    dimensions: tuple[Dimension, ...]

    @property
    def devices(self) -> int:
        """Product of the dimensions."""
        return prod(dimension.count for dimension in self.dimensions)

    def topology(self) -> Topology:
        """The graph, first dimension fastest; bandwidth in bytes/s as the binaries take it (2^30 a unit)."""
        cables: list[Cable] = []
        stride, free = 1, self.devices
        for dimension in self.dimensions:
            for first in range(self.devices):
                if first // stride % dimension.count == 0:
                    line = [first + stride * index for index in range(dimension.count)]
                    cables += _wire(dimension, line, free)
                    free += dimension.kind == "Switch"
            stride *= dimension.count
        several = len(self.dimensions) > 1
        tier = tuple(device // self.dimensions[0].count for device in range(self.devices))
        forward = several or self.dimensions[0].kind == "Ring"
        links = both_ways(cables)
        name = "x".join(f"{d.kind}{d.count}" for d in self.dimensions)
        shape = (self.devices,) if not several and self.dimensions[0].kind == "Ring" else ()
        return Topology(
            name, self.devices, links, devices_forward=forward, shape=shape, tiers=(tier,) if several else ()
        )

    def dump(self) -> str:
        """The text of the file."""
        columns = zip(*[(d.kind, d.count, d.bandwidth, d.latency) for d in self.dimensions], strict=True)
        return "".join(
            f"{name}: [ {', '.join(map(str, column))} ]\n" for name, column in zip(_FIELDS, columns, strict=True)
        )


def _wire(dimension: Dimension, line: list[int], switch: int) -> list[Cable]:
    figures = (dimension.bandwidth * GIBI, dimension.latency * 1e-9)
    if dimension.kind == "Switch":
        return [(device, switch, *figures) for device in line]
    if dimension.kind == "FullyConnected":
        return [(a, b, *figures) for a in line for b in line if a < b]
    pairs = zip(line, [*line[1:], line[0]], strict=True)
    return [(a, b, *figures) for a, b in pairs if len(line) > 2 or a < b]


def read_astra_network(text: str, where: str = "network.yml") -> AstraNetwork:
    """The dimensions in the text of a network.yml.

    Raises:
        BadInputError: it is no such file, lists of different lengths, an unknown dimension or a figure that cannot be.
    """
    try:
        content: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a number of 5000 digits, a 13th month
        raise BadInputError(f"{where} is no YAML: {str(error).splitlines()[0]}", "correct the file") from error
    if not isinstance(content, dict) or any(not isinstance(content.get(field), list) for field in _FIELDS):
        raise BadInputError(f"{where} lacks one of the lists {', '.join(_FIELDS)}", "give each, one entry a dimension")
    columns = [content[field] for field in _FIELDS]
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        raise BadInputError(f"{where}: the lists differ in length or are empty", "give one entry a dimension in each")
    return AstraNetwork(tuple(_dimension(where, *row) for row in zip(*columns, strict=True)))


def _dimension(where: str, kind: Any, count: Any, bandwidth: Any, latency: Any) -> Dimension:
    if kind not in _KINDS:
        raise BadInputError(f"{where}: no dimension is called {kind!r:.80}", f"known: {', '.join(_KINDS)}")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BadInputError(f"{where}: npus_count has {count!r:.80}", "give whole numbers of at least 1")
    if not _is_number(bandwidth) or not bandwidth > 0:
        raise BadInputError(f"{where}: bandwidth has {bandwidth!r:.80}", "give figures above zero")
    if not _LEAST_GBPS <= bandwidth <= _MOST_GBPS:
        raise BadInputError(
            f"{where}: bandwidth has {bandwidth!r:.80}", f"give GB/s between {_LEAST_GBPS:g} and {_MOST_GBPS:g}"
        )
    if not _is_number(latency) or not 0 <= latency <= _LONGEST_NS:
        raise BadInputError(f"{where}: latency has {latency!r:.80}", f"give ns from zero to {_LONGEST_NS:g}")
    return Dimension(kind, count, float(bandwidth), float(latency))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_ns3_topology(text: str, where: str = "physical topology") -> Topology:
    """The graph in an ns-3 physical topology text: counts, the switches, then `end end rate delay error` a cable.

    Devices are the nodes that are no switches. Parallel cables between two nodes count once, as ns-3 counts them.

    Raises:
        BadInputError: counts that do not fit, devices that do not come first, a malformed or lossy cable.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    try:
        nodes, switches, cables = (int(word) for word in lines[0])
        named = [int(word) for word in lines[1]] if switches else []
    except (IndexError, ValueError) as error:
        raise BadInputError(f"{where}: the first lines are no counts and switch numbers", "nodes switches links") from (
            error
        )
    rows = lines[2 if switches else 1 :]
    if len(named) != switches or len(rows) != cables:
        raise BadInputError(
            f"{where}: announces {switches} switches and {cables} links, has {len(named)} and {len(rows)}",
            "correct the counts",
        )
    devices = nodes - switches
    if sorted(named) != list(range(devices, nodes)):
        raise BadInputError(f"{where}: devices are not the nodes 0 to {devices - 1}", "number switches after devices")
    parsed = {tuple(sorted(cable[:2])): cable for cable in (_cable(row, nodes, where) for row in rows)}
    return Topology(where, devices, both_ways(parsed.values()), nodes=nodes)


def _cable(row: list[str], nodes: int, where: str) -> Cable:
    line = " ".join(row)
    if len(row) != 5 or not all(_is_below(word, nodes) for word in row[:2]):
        raise BadInputError(f"{where}: {line!r:.80} is no link", "write: end end rate delay error")
    if row[4].strip("0."):
        raise BadInputError(f"{where}: {line!r} loses packets, which ns-3 never recovers from", "set its error to 0")
    rate, delay = _quantity(row[2], _RATES, where) / 8, _quantity(row[3], _TIMES, where)
    if not _LEAST_GBPS * 1e9 / 8 <= rate <= _MOST_GBPS * 1e9 / 8 or not 0 <= delay <= _LONGEST_NS * 1e-9:
        raise BadInputError(
            f"{where}: {line!r:.80}: bandwidth {rate * 8 / 1e9:g} Gb/s or delay {delay * 1e9:g} ns is out of range",
            f"give {_LEAST_GBPS:g} to {_MOST_GBPS:g} Gbps and at most {_LONGEST_NS:g} ns",
        )
    return int(row[0]), int(row[1]), rate, delay


def _is_below(word: str, nodes: int) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= len(str(nodes)) and int(word) < nodes


def _quantity(word: str, units: dict[str, float], where: str) -> float:
    found = _QUANTITY.fullmatch(word)
    if not found or found[2].lower() not in units:
        raise BadInputError(f"{where}: {word!r:.80} is no quantity", f"write a number and one of {', '.join(units)}")
    try:
        return float(found[1]) * units[found[2].lower()]
    except ValueError as error:
        raise BadInputError(f"{where}: {word!r:.80} is no number", "correct it") from error


def write_ns3_topology(topology: Topology) -> str:
    """The ns-3 physical topology text of a graph.

    Raises:
        BadInputError: its devices forward traffic, a cable is not alike in both directions, or two run in parallel.
    """
    if topology.devices_forward:
        raise BadInputError(f"{topology.name}: ns-3 devices do not forward", "rings and tori cannot be written")
    figures = {(link.source, link.target): (link.bandwidth, link.latency) for link in topology.links}
    if len(figures) != len(topology.links):
        raise BadInputError(f"{topology.name}: parallel links", "put a switch into each; ns-3 counts them once")
    if any(figures.get((b, a)) != value for (a, b), value in figures.items()):
        raise BadInputError(f"{topology.name}: a link differs from its way back", "ns-3 cables are symmetric")
    switches = range(topology.devices, topology.nodes)
    rows = [f"{a} {b} {_rate(rate)} {delay * 1e3:.12g}ms 0" for (a, b), (rate, delay) in figures.items() if a < b]
    head = [f"{topology.nodes} {len(switches)} {len(rows)}", *([" ".join(map(str, switches))] if switches else [])]
    return "\n".join([*head, *rows]) + "\n"


def _rate(rate: float) -> str:
    """A rate that ns-3 reads as exactly so many bit/s: its tables of thresholds are keyed by them."""
    bits = round(rate * 8)
    return f"{bits / 1e9:.12g}Gbps" if bits % 10**9 == 0 else f"{bits}bps"
