"""Routes of many flows at once: from all targets level by level, with the set of targets at each node as bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Half = npt.NDArray[np.uint32]
_TARGETS = 1024
_KEPT = 512


@dataclass(frozen=True, eq=False)
class Ways:
    """Routes of flows 0 … n-1: flow f crosses `links[starts[f] : starts[f + 1]]`, in order; `starts` has shape (n+1,).

    `tied`: some route had several equally good links to choose from.
    """

    starts: Integers
    links: Integers
    tied: bool = False

    @cached_property
    def lengths(self) -> Integers:
        return np.diff(self.starts)

    @cached_property
    def flow(self) -> Integers:
        """The flow of each entry of `links`."""
        return np.repeat(np.arange(len(self.lengths), dtype=np.int64), self.lengths)

    @cached_property
    def hop(self) -> Integers:
        """The place of each entry of `links` in its route, from 0."""
        return np.arange(len(self.links), dtype=np.int64) - np.repeat(self.starts[:-1], self.lengths)

    def way(self, flow: int) -> tuple[int, ...]:
        """One route."""
        return tuple(self.links[self.starts[flow] : self.starts[flow + 1]].tolist())

    def each(self) -> list[tuple[int, ...]]:
        """All routes."""
        links, starts = self.links.tolist(), self.starts.tolist()
        return [tuple(links[begin:end]) for begin, end in pairwise(starts)]

    def some(self, flows: Integers) -> Ways:
        """The routes of these flows."""
        counts = self.lengths[flows]
        return Ways(_starts(counts), self.links[_spread(self.starts[flows], counts)])

    def back(self, reverse: Integers) -> Ways:
        """The ways of the acknowledgements: `reverse` of each link, backwards; links without one (-1) are left out."""
        turned = reverse[self.links[np.repeat(self.starts[1:] - 1, self.lengths) - self.hop]]
        kept = turned >= 0
        if kept.all():
            return Ways(self.starts, turned)
        counts = np.bincount(self.flow[kept], minlength=len(self.lengths))
        return Ways(_starts(counts), turned[kept])


def _starts(counts: Integers) -> Integers:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def _spread(begins: Integers, counts: Integers) -> Integers:
    """begins[0], begins[0] + 1, … counts[0] times, then begins[1] …"""
    ends = np.cumsum(counts)
    shifts: Integers = np.repeat(begins - (ends - counts), counts)
    return shifts + np.arange(len(shifts), dtype=np.int64)


def flow_hash(sources: Integers, targets: Integers, flows: Integers, seeds: Integers) -> Half:
    """`topology.murmur3` of the words of each flow, seeded with the node that chooses."""
    addresses = (0x0B000001 + (device // 256 << 16) + (device % 256 << 8) for device in (sources, targets))
    value = seeds.astype(np.uint32)
    for word in (*addresses, (10000 + flows) % 65536 | 100 << 16):
        mixed = word.astype(np.uint32) * np.uint32(0xCC9E2D51)
        mixed = mixed << np.uint32(15) | mixed >> np.uint32(17)
        value = value ^ mixed * np.uint32(0x1B873593)
        value = value << np.uint32(13) | value >> np.uint32(19)
        value = value * np.uint32(5) + np.uint32(0xE6546B64)
    value = value ^ np.uint32(12)
    value = (value ^ value >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    value = (value ^ value >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return value ^ value >> np.uint32(16)


class Router:
    """Routes on links from `sources` to `targets` (nodes), as `topology.Topology` states them; answers are kept."""

    def __init__(
        self, sources: Integers, targets: Integers, nodes: int, devices: int, forward: bool, shape: tuple[int, ...]
    ) -> None:
        self._nodes, self._devices, self._forward, self._shape = nodes, devices, forward, shape
        self._heads = targets
        self._order = np.argsort(sources, kind="stable")
        self._degree = np.bincount(sources, minlength=nodes).astype(np.int64)
        self._begins = _starts(self._degree)
        self._senders = np.flatnonzero(self._degree)
        self._keys = sources[self._order] * nodes + targets[self._order]
        self._known: dict[tuple[bytes, bytes, bytes], Ways | None] = {}

    def ways(self, sources: Integers, targets: Integers, flows: Integers) -> Ways | None:
        """The route of each flow; None where one has none. Ends are devices."""
        key = sources.tobytes(), targets.tobytes(), flows.tobytes()
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = self._torus(sources, targets) if self._shape else self._found(sources, targets, flows)
        return self._known[key]

    def _found(self, sources: Integers, targets: Integers, flows: Integers) -> Ways | None:
        distinct, place = np.unique(targets, return_inverse=True)
        hops, lengths = np.zeros((len(sources), 0), dtype=np.int64), np.zeros(len(sources), dtype=np.int64)
        tied = False
        for first in range(0, len(distinct), _TARGETS):
            mine = np.flatnonzero((place >= first) & (place < first + _TARGETS))
            ends = sources[mine], place[mine] - first
            levels, ahead = self._levels(distinct[first : first + _TARGETS], *ends)
            if not _has(np.bitwise_or.reduce(levels), *ends).all():
                return None
            hops = _wider(hops, len(levels) - 1)
            for level, bits in enumerate(levels):
                lengths[mine[_has(bits, *ends)]] = level
            tied |= self._walk(ahead, hops, mine, lengths[mine], *ends, targets[mine], flows[mine])
        kept = np.arange(hops.shape[1]) < lengths[:, None]
        return Ways(_starts(lengths), hops[kept], tied)

    def _levels(self, targets: Integers, sources: Integers, places: Integers) -> tuple[list[Words], list[Words]]:
        """For each number of hops, which targets (bits) are just so far from each node; as far as the sources need.

        Then the same of the nodes alone that may be on the way.
        """
        place = np.arange(len(targets), dtype=np.int64)
        bits = np.zeros((self._nodes, -(-len(targets) // 64)), dtype=np.uint64)
        bits[targets, place >> 6] = np.uint64(1) << (place & 63).astype(np.uint64)
        levels, seen, onward = [bits], bits.copy(), [bits]
        while not _has(seen, sources, places).all():
            reach = np.zeros_like(bits)
            reach[self._senders] = np.bitwise_or.reduceat(
                onward[-1][self._heads[self._order]], self._begins[self._senders], axis=0
            )
            reach &= ~seen
            if not reach.any():
                break
            seen |= reach
            levels.append(reach)
            onward.append(reach.copy())
            onward[-1][: 0 if self._forward else self._devices] = 0
        return levels, onward

    def _walk(
        self,
        onward: list[Words],
        hops: Integers,
        rows: Integers,
        lengths: Integers,
        sources: Integers,
        places: Integers,
        targets: Integers,
        flows: Integers,
    ) -> bool:
        """Fill `hops[rows]`, all flows that have the same number of hops to go at once; whether any had a choice."""
        node, chosen = sources.copy(), False
        for left in range(len(onward) - 1, 0, -1):
            on = np.flatnonzero(lengths >= left)
            begins, counts, links = self._onward(onward[left - 1], node[on], places[on])
            pick = np.zeros(len(on), dtype=np.int64)
            tied = np.flatnonzero(counts > 1)
            if len(tied):
                chosen, which = True, on[tied]
                hashed = flow_hash(sources[which], targets[which], flows[which], node[which])
                pick[tied] = hashed.astype(np.int64) % counts[tied]
            link = links[begins + pick]
            hops[rows[on], lengths[on] - left] = link
            node[on] = self._heads[link]
        return chosen

    def _onward(self, nearer: Words, nodes: Integers, places: Integers) -> tuple[Integers, Integers, Integers]:
        """Links from each node towards its target, in order: where they begin, how many, and all of them."""
        width = nearer.shape[1] * 64
        keys, inverse = np.unique(nodes * width + places, return_inverse=True)
        at, place = keys // width, keys % width
        degree = self._degree[at]
        rows = np.repeat(np.arange(len(keys), dtype=np.int64), degree)
        links = self._order[_spread(self._begins[at], degree)]
        good = _has(nearer, self._heads[links], place[rows])
        counts = np.bincount(rows[good], minlength=len(keys))
        return (np.cumsum(counts) - counts)[inverse], counts[inverse], links[good]

    def _torus(self, sources: Integers, targets: Integers) -> Ways | None:
        """One dimension after another, the shorter way round, upwards on a tie."""
        node, stride = sources.copy(), 1
        hops, lengths = np.zeros((len(sources), sum(self._shape)), dtype=np.int64), np.zeros_like(sources)
        for size in self._shape:
            up = (targets // stride - node // stride) % size
            left, step = np.minimum(up, size - up), np.where(up <= size - up, 1, -1)
            for done in range(int(left.max(initial=0))):
                on = np.flatnonzero(left > done)
                here = node[on] // stride % size
                following = node[on] + ((here + step[on]) % size - here) * stride
                link = self._first_link(node[on], following)
                if link is None:
                    return None
                hops[on, lengths[on]] = link
                lengths[on] += 1
                node[on] = following
            stride *= size
        return Ways(_starts(lengths), hops[np.arange(hops.shape[1]) < lengths[:, None]])

    def _first_link(self, sources: Integers, targets: Integers) -> Integers | None:
        """The first link between each two neighbours; None where two are none."""
        order = self._by_ends
        keys = self._keys[order]
        at = np.searchsorted(keys, sources * self._nodes + targets)
        if (at >= len(keys)).any() or (keys[at] != sources * self._nodes + targets).any():
            return None
        return self._order[order[at]]

    @cached_property
    def _by_ends(self) -> Integers:
        return np.argsort(self._keys, kind="stable")


def _has(bits: Words, nodes: Integers, places: Integers) -> npt.NDArray[np.bool_]:
    """Whether the target number `places[i]` is in the set of node `nodes[i]`."""
    found: Words = bits[nodes, places >> 6] >> (places & 63).astype(np.uint64)
    return (found & np.uint64(1)).astype(np.bool_)


def _wider(hops: Integers, width: int) -> Integers:
    missing = width - hops.shape[1]
    return np.pad(hops, ((0, 0), (0, missing))) if missing > 0 else hops
