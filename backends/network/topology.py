"""A network as a graph: devices and switches joined by directed links, with stated, cached routes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import inf

import numpy as np
import numpy.typing as npt

from backends.network.routing import Integers, Router, Ways
from runs.errors import BadInputError

Floats = npt.NDArray[np.float64]
_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Link:
    """One direction of a cable: `bandwidth` in bytes/s, `latency` in seconds (propagation of this hop only)."""

    source: int
    target: int
    bandwidth: float
    latency: float


def murmur3(words: tuple[int, ...], seed: int) -> int:
    """MurmurHash3 (x86, 32 bit; A. Appleby, public domain) of 32-bit words: the flow hash of ECMP switches."""
    value = seed & _WORD
    for word in words:
        mixed = word * 0xCC9E2D51 & _WORD
        mixed = (mixed << 15 | mixed >> 17) & _WORD
        value ^= mixed * 0x1B873593 & _WORD
        value = (value << 13 | value >> 19) & _WORD
        value = (value * 5 + 0xE6546B64) & _WORD
    value ^= 4 * len(words)
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    return value ^ value >> 16


def _flow_words(source: int, target: int, flow: int) -> tuple[int, int, int]:
    """What switches hash: addresses 11.x.y.1 by device, source port from 10000 up, destination port 100 (as NS-3)."""
    from_address, to_address = (0x0B000001 + (device // 256 << 16) + (device % 256 << 8) for device in (source, target))
    return from_address, to_address, (10000 + flow) % 65536 | 100 << 16


@dataclass
class Topology:
    """Devices are nodes `0 … devices-1`, switches the nodes after them.

    Routing: the fewest hops; where several next hops tie, a hash of source, destination and flow number, seeded with
    the node that chooses, decides (ECMP), so a route is a fact of the flow, never of a run. `shape` makes it a torus
    whose routes correct one dimension after another, the shorter way round, upwards on a tie. Devices forward foreign
    traffic only where `devices_forward` says so (rings, tori). `tiers` are the scale-up domains, innermost first,
    each a partition of the devices that hierarchical algorithms follow.
    """

    name: str
    devices: int
    links: tuple[Link, ...]
    nodes: int = 0
    devices_forward: bool = False
    shape: tuple[int, ...] = ()
    tiers: tuple[tuple[int, ...], ...] = ()
    labels: dict[int, str] = field(default_factory=dict)
    _beside: dict[int, dict[int, list[int]]] = field(default_factory=dict, repr=False)
    _into: dict[int, list[int]] = field(default_factory=dict, repr=False)
    _back: dict[int, int | None] = field(default_factory=dict, repr=False)
    _distance: dict[int, dict[int, int]] = field(default_factory=dict, repr=False)
    _onward: dict[int, dict[int, list[int]]] = field(default_factory=dict, repr=False)
    _tied: dict[int, dict[int, bool]] = field(default_factory=dict, repr=False)
    _routes: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        ends = [node for link in self.links for node in (link.source, link.target)]
        self.nodes = max([self.nodes, self.devices, *(node + 1 for node in ends)])
        for index, link in enumerate(self.links):
            self._check_link(link)
            self._beside.setdefault(link.source, {}).setdefault(link.target, []).append(index)
        self.links = tuple(self.links)

    def _check_link(self, link: Link) -> None:
        where = f"{self.name}: link {self.label(link.source)} to {self.label(link.target)}"
        if not 0 < link.bandwidth < inf:
            raise BadInputError(f"{where} has bandwidth {link.bandwidth}", "give it a bandwidth above zero, bytes/s")
        if not 0 <= link.latency < inf:
            raise BadInputError(f"{where} has latency {link.latency}", "give it a latency of zero or more seconds")
        if link.source == link.target:
            raise BadInputError(f"{where} joins a node with itself", "remove it")

    def label(self, node: int) -> str:
        """A name for people: `device 3`, `switch 33`, or what the builder called it."""
        return self.labels.get(node, f"{'device' if node < self.devices else 'switch'} {node}")

    def link_label(self, link: int) -> str:
        """`device 3 -> switch 33`."""
        return f"{self.label(self.links[link].source)} -> {self.label(self.links[link].target)}"

    def route(self, source: int, target: int, flow: int = 0) -> tuple[int, ...]:
        """Indices of the links from `source` to `target`, in order; `flow` tells flows of one pair apart for ECMP.

        Raises:
            BadInputError: an end is no device, or nothing leads there.
        """
        known = self._routes.get((source, target, flow))
        if known is not None:
            return known
        self._check_device(source)
        self._check_device(target)
        if flow and not self.has_ties(source, target):
            route = self.route(source, target)
        else:
            route = self._torus_route(source, target) if self.shape else self._walk(source, target, flow)
        self._routes[source, target, flow] = route
        return route

    def ways(self, sources: Integers, targets: Integers, flows: Integers) -> Ways:
        """`route` for many flows at once.

        Raises:
            BadInputError: as `route`.
        """
        inside = all(((ends >= 0) & (ends < self.devices)).all() for ends in (sources, targets))
        found = self._router.ways(sources, targets, flows) if inside else None
        if found is None:
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                self.route(source, target)
            raise BadInputError(f"{self.name}: some devices are not joined", "join the parts of the topology")
        return found

    def cables(self, links: Sequence[int]) -> list[Link]:
        """The links of these numbers."""
        return [self.links[link] for link in links]

    def is_joined(self, source: int, target: int) -> bool:
        """Whether a link leads from one straight to the other."""
        return target in self._beside.get(source, {})

    @cached_property
    def bandwidths(self) -> Floats:
        """Bytes/s of every link."""
        return np.array([link.bandwidth for link in self.links], dtype=np.float64)

    @cached_property
    def looks(self) -> Integers:
        """A number of each link, equal for equal bandwidth, latency and kind of sender (device or not)."""
        rows = [(link.bandwidth, link.latency, link.source < self.devices) for link in self.links]
        order = {row: place for place, row in enumerate(sorted(set(rows)))}
        return np.array([order[row] for row in rows], dtype=np.int64)

    @cached_property
    def reverses(self) -> Integers:
        """`reverse` of every link, -1 for None."""
        back = (self.reverse(link) for link in range(len(self.links)))
        return np.array([-1 if link is None else link for link in back], dtype=np.int64)

    @cached_property
    def _router(self) -> Router:
        ends = np.array([(link.source, link.target) for link in self.links], dtype=np.int64).reshape(-1, 2)
        return _router(ends.tobytes(), self.nodes, self.devices, self.devices_forward, tuple(self.shape))

    def round_trip(self, source: int, target: int) -> float:
        """Propagation there and back in seconds, without serialisation, on the route of flow 0."""
        return 2.0 * sum(self.links[index].latency for index in self.route(source, target))

    def reverse(self, link: int) -> int | None:
        """The link in the other direction between the same two nodes; None where the cable is one-way."""
        if link not in self._back:
            here = self.links[link]
            ways = self._beside.get(here.target, {}).get(here.source)
            self._back[link] = ways[0] if ways else None
        return self._back[link]

    def has_ties(self, source: int, target: int) -> bool:
        """Whether some node on the ways from `source` to `target` has two equally good links onward.

        Only then do routes depend on the flow; ties of nodes that no way from `source` passes do not count.
        """
        if self.shape:
            return False
        known = self._tied.setdefault(target, {target: False})
        passed: list[int] = []
        node = source
        while node not in known:
            passed.append(node)
            hops = self._onward_links(node, target)
            if len(hops) == 1:
                node = self.links[hops[0]].target
            else:
                known[node] = bool(hops)
        known.update(dict.fromkeys(passed, known[node]))
        return known[node]

    def _check_device(self, device: int) -> None:
        if not 0 <= device < self.devices:
            raise BadInputError(f"{self.name}: there is no device {device}", f"its devices are 0 to {self.devices - 1}")

    def _distances(self, target: int) -> dict[int, int]:
        """Hops to `target` from itself and from every node that forwards and reaches it."""
        if target not in self._distance:
            if not self._into:
                for link in self.links:
                    if link.source >= self.devices or self.devices_forward:
                        self._into.setdefault(link.target, []).append(link.source)
            self._distance[target] = self._flood(target)
        return self._distance[target]

    def _flood(self, target: int) -> dict[int, int]:
        distance = {target: 0}
        queue = deque([target])
        while queue:
            node = queue.popleft()
            for before in self._into.get(node, ()):
                if before not in distance:
                    distance[before] = distance[node] + 1
                    queue.append(before)
        return distance

    def _next_hops(self, node: int, distance: dict[int, int]) -> list[int]:
        """Links from `node` that lead one hop nearer, all equally good, in the order they were given."""
        beside = self._beside.get(node, {})
        near = beside.keys() & distance.keys()
        nearest = min((distance[other] for other in near), default=-1)
        return sorted(index for other in near if distance[other] == nearest for index in beside[other])

    def _onward_links(self, node: int, target: int) -> list[int]:
        """`_next_hops` towards `target`, found once for all sources."""
        known = self._onward.setdefault(target, {})
        if node not in known:
            known[node] = self._next_hops(node, self._distances(target))
        return known[node]

    def _walk(self, source: int, target: int, flow: int) -> tuple[int, ...]:
        route: list[int] = []
        node = source
        while node != target:
            hops = self._onward_links(node, target)
            if not hops:
                raise BadInputError(
                    f"{self.name}: no route from device {source} to device {target}", "join the parts of the topology"
                )
            pick = murmur3(_flow_words(source, target, flow), node) % len(hops) if len(hops) > 1 else 0
            route.append(hops[pick])
            node = self.links[hops[pick]].target
        return tuple(route)

    def _torus_route(self, source: int, target: int) -> tuple[int, ...]:
        route: list[int] = []
        node, stride = source, 1
        for size in self.shape:
            here, there = node // stride % size, target // stride % size
            up = (there - here) % size
            step = 1 if up <= size - up else -1
            for _ in range(min(up, size - up)):
                following = node + ((here + step) % size - here) * stride
                route.append(self._link_between(node, following))
                node, here = following, (here + step) % size
            stride *= size
        return tuple(route)

    def _link_between(self, source: int, target: int) -> int:
        ways = self._beside.get(source, {}).get(target)
        if not ways:
            raise BadInputError(
                f"{self.name}: devices {source} and {target} are not neighbours", "check the shape of the torus"
            )
        return ways[0]


@lru_cache(maxsize=32)
def _router(ends: bytes, nodes: int, devices: int, forward: bool, shape: tuple[int, ...]) -> Router:
    """One router for all topologies that differ in rates and latencies only."""
    sources, targets = np.frombuffer(ends, dtype=np.int64).reshape(-1, 2).T
    return Router(np.ascontiguousarray(sources), np.ascontiguousarray(targets), nodes, devices, forward, shape)
