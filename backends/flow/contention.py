"""Which streams can slow each other, and how fast concurrent collectives go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.flow.timing import Network, SegmentTimer
from backends.graph import ExecutionGraph, Task

Stream = tuple[tuple[int, ...], str]


def stream_of(task: Task) -> Stream:
    """The stream a task occupies: it is one with those of all its classes."""
    return task.classes, task.stream


def collective_loads(network: Network, collective: Any) -> Mapping[int, float]:
    """Mean share of each link's bandwidth that a collective takes while it has the network to itself."""
    timing, links = network.time(collective), network.topology.links
    return {k: v / links[k].bandwidth / timing.seconds for k, v in timing.link_bytes.items() if timing.seconds > 0}


@dataclass
class Crowding:
    """Links that collectives of several streams could fill together, and what follows from that.

    `streams`: those with a collective on such a link; every other stream runs at full speed whatever else goes on.
    `links`: the crowded links of each collective, by its id.
    """

    streams: set[Stream] = field(default_factory=set)
    links: dict[int, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: ExecutionGraph, timer: SegmentTimer) -> Crowding:
        """Find the crowded links. Collectives of one stream follow each other, so a stream counts with its fullest."""
        used = _collectives_by_stream(graph, timer)
        loads = {i: collective_loads(timer.network, c) for found in used.values() for i, c in found.items()}
        peaks: dict[int, dict[Stream, float]] = defaultdict(dict)
        for stream, collectives in used.items():
            for one in collectives:
                for link, load in loads[one].items():
                    peaks[link][stream] = max(load, peaks[link].get(stream, 0.0))
        totals = {link: sum(by.values()) for link, by in peaks.items() if len(by) > 1}
        full = {link for link, total in totals.items() if total > 1.0 + 1e-9}
        found = cls()
        for stream, collectives in used.items():
            for one in collectives:
                links = (k for k in full.intersection(loads[one]) if _crowds(loads[one][k], peaks[k], stream))
                found.links[one] = frozenset(links)
                if found.links[one]:
                    found.streams.add(stream)
        return found


def _crowds(load: float, peaks: Mapping[Stream, float], own: Stream) -> bool:
    """Whether a collective of stream `own` with this load on a link could fill it with the fullest of the others."""
    return load + sum(peak for stream, peak in peaks.items() if stream != own) > 1.0 + 1e-9


def _collectives_by_stream(graph: ExecutionGraph, timer: SegmentTimer) -> dict[Stream, dict[int, Any]]:
    found: dict[Stream, dict[int, Any]] = defaultdict(dict)
    seen: set[tuple[Stream, int]] = set()
    for task in graph.tasks:
        key = (stream_of(task), id(task.segments))
        if key in seen:
            continue
        seen.add(key)
        for segment in {id(s): s for s in task.segments}.values():
            found[key[0]].update({id(c): c for c, _ in timer.timed(segment, task).collectives})
    return {stream: by_id for stream, by_id in found.items() if by_id}


@dataclass(slots=True)
class _Flow:
    owner: int
    collective: Any
    left: float
    since: float
    rate: float = 1.0
    version: int = 0


@dataclass
class SharedNetwork:
    """Collectives under way on crowded links. Progress changes only for those that a start or an end can reach."""

    network: Network
    crowding: Crowding
    active: dict[int, _Flow] = field(default_factory=dict)
    versions: int = 0
    _memo: dict[tuple[int, ...], list[float]] = field(default_factory=dict)
    _conflicts: dict[tuple[int, int], bool] = field(default_factory=dict)

    def start(self, owner: int, collective: Any, alone_ns: float, now: float) -> list[tuple[float, int, int]]:
        """Begin `collective` for `owner`, which alone takes `alone_ns`; returns new ends as (time, owner, version)."""
        self.active[owner] = flow = _Flow(owner, collective, alone_ns, now)
        return self._rerate(self._reached([flow]), now)

    def finish(self, owner: int, now: float) -> list[tuple[float, int, int]]:
        """`owner`'s collective has ended; returns the new ends of those that shared a link with it."""
        gone = self.active.pop(owner)
        beside = [f for f in self.active.values() if self._conflict(gone.collective, f.collective)]
        return self._rerate(self._reached(beside), now)

    def is_current(self, owner: int, version: int) -> bool:
        """Whether an announced end still holds."""
        flow = self.active.get(owner)
        return flow is not None and flow.version == version

    def slows(self, collective: Any) -> bool:
        """Whether a collective under way shares a crowded link with `collective`."""
        return any(self._conflict(flow.collective, collective) for flow in self.active.values())

    def _conflict(self, a: Any, b: Any) -> bool:
        key = (id(a), id(b))
        if key not in self._conflicts:
            links = self.crowding.links
            self._conflicts[key] = not links[key[0]].isdisjoint(links[key[1]])
        return self._conflicts[key]

    def _reached(self, seeds: Sequence[_Flow]) -> list[_Flow]:
        """`seeds` and whatever they are joined to by crowded links."""
        found = {flow.owner: flow for flow in seeds}
        border = list(seeds)
        while border:
            flow = border.pop()
            for other in self.active.values():
                if other.owner not in found and self._conflict(flow.collective, other.collective):
                    found[other.owner] = other
                    border.append(other)
        return sorted(found.values(), key=lambda f: id(f.collective))

    def _rerate(self, flows: Sequence[_Flow], now: float) -> list[tuple[float, int, int]]:
        ends = []
        for flow, rate in zip(flows, self._rates(flows), strict=True):
            flow.left = max(0.0, flow.left - (now - flow.since) * flow.rate)
            flow.since, flow.rate = now, rate
            self.versions += 1
            flow.version = self.versions
            ends.append((now + flow.left / rate, flow.owner, flow.version))
        return ends

    def _rates(self, flows: Sequence[_Flow]) -> list[float]:
        if len(flows) < 2:
            return [1.0] * len(flows)
        key = tuple(id(flow.collective) for flow in flows)
        if key not in self._memo:
            self._memo[key] = self.network.rates([flow.collective for flow in flows])
        return self._memo[key]
