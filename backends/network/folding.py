"""Symmetry: messages, links and ranks that cannot differ are simulated once.

Colour refinement to an equitable partition: two messages keep one colour only while their sizes, stages, links and
end ranks do, link by link along the route. In a max-min fair network all members of a class then move alike, so the
simulation runs on one representative of each class and loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_ROUNDS = 256
_FEW = 4096
_SALTS = tuple(np.uint64(salt) for salt in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


@dataclass(frozen=True)
class Traffic:
    """Messages with their routes, flat: entry e says that message `message[e]` crosses `link[e]` as hop `hop[e]`."""

    source: Integers
    target: Integers
    colour: Integers
    message: Integers
    link: Integers
    hop: Integers
    link_colour: Integers
    back_message: Integers
    back_link: Integers


@dataclass(frozen=True)
class Classes:
    """Class of every message, link and rank, numbered from 0."""

    message: Integers
    link: Integers
    rank: Integers


class _Mix:
    """A hash of each word (the finaliser of splitmix64), salted part by part: all parts in one go."""

    def __init__(self, *parts: tuple[int, int]) -> None:
        """Each part is a number of words and their salt."""
        self._times = np.concatenate([np.full(size, _SALTS[salt % 3], dtype=np.uint64) for size, salt in parts])
        self._plus = np.concatenate([np.full(size, salt, dtype=np.uint64) for size, salt in parts])

    def __call__(self, *parts: Words) -> Words:
        mixed = np.concatenate(parts) if len(parts) > 1 else parts[0].copy()
        mixed *= self._times
        mixed += self._plus
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        return mixed


def _mix(values: Words, salt: int) -> Words:
    return _Mix((len(values), salt))(values)


def _gather(keys: Integers, values: Words, size: int) -> Words:
    """Sum of the values of each key: a hash of the multiset."""
    total = np.zeros(size, dtype=np.uint64)
    np.add.at(total, keys, values)
    return total


def _dense(words: Words) -> Integers:
    return np.unique(words, return_inverse=True)[1].astype(np.int64)


def refine(traffic: Traffic, ranks: int, colours: Integers | None = None) -> Classes:
    """The coarsest partition found in which equal colours stay equal; singletons where it takes too long."""
    messages, links = len(traffic.source), len(traffic.link_colour)
    message = _mix(traffic.colour.astype(np.uint64), 1)
    link = _mix(traffic.link_colour.astype(np.uint64), 2)
    rank = np.ones(ranks, dtype=np.uint64) if colours is None else _mix(colours.astype(np.uint64), 17)
    step, count = _Round(traffic, messages, links, ranks), 0
    for _ in range(_ROUNDS):
        message, link, rank = step(message, link, rank)
        found = _distinct(np.concatenate((message, link, rank)))
        if found == count:
            return Classes(_dense(message), _dense(link), _dense(rank))
        count = found
    return unfolded(traffic, ranks)


class _Round:
    """One round of refinement: messages by their links and ends, then links and ranks by their messages."""

    def __init__(self, traffic: Traffic, messages: int, links: int, ranks: int) -> None:
        self._traffic, self._messages, self._links, self._ranks = traffic, messages, links, ranks
        forth, back = len(traffic.link), len(traffic.back_link)
        hop = traffic.hop.astype(np.uint64)
        self._forth, self._seen = hop * _SALTS[1], hop * _SALTS[2]
        self._crossed = np.concatenate((traffic.message, traffic.back_message + messages))
        self._met = np.concatenate((traffic.link, traffic.back_link, traffic.source + links, traffic.target + links))
        self._looks = _Mix((forth, 3), (back, 4), (messages, 5), (messages, 6))
        self._sums = _Mix((messages, 7), (messages, 8))
        self._own = _Mix((messages, 9))
        self._parts = _Mix((forth, 10), (back, 11), (messages, 13), (messages, 14))
        self._others = _Mix((links, 12), (ranks, 15))

    def __call__(self, message: Words, link: Words, rank: Words) -> tuple[Words, Words, Words]:
        traffic, messages, entries = self._traffic, self._messages, len(self._crossed)
        looks = self._looks(
            link[traffic.link] + self._forth, link[traffic.back_link], rank[traffic.source], rank[traffic.target]
        )
        sums = self._sums(_gather(self._crossed, looks[:entries], 2 * messages))
        ends = looks[entries : entries + messages] + looks[entries + messages :]
        message = self._own(message + sums[:messages] + sums[messages:] + ends)
        parts = self._parts(message[traffic.message] + self._seen, message[traffic.back_message], message, message)
        met = _gather(self._met, parts, self._links + self._ranks)
        others = self._others(link + met[: self._links], rank + met[self._links :])
        return message, others[: self._links], others[self._links :]


def _distinct(words: Words) -> int:
    if len(words) > _FEW:
        return len(np.unique(words))
    ordered = np.sort(words)  # the quicker way for few
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def unfolded(traffic: Traffic, ranks: int) -> Classes:
    """Every message, link and rank on its own."""
    sizes = len(traffic.source), len(traffic.link_colour), ranks
    return Classes(*(np.arange(size, dtype=np.int64) for size in sizes))


def in_order(classes: Classes) -> Classes:
    """The same with messages and ranks numbered by their first members, so that things happen in a fixed order."""
    return Classes(_by_first(classes.message), classes.link, _by_first(classes.rank))


def _by_first(classes: Integers) -> Integers:
    first = firsts(classes)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[classes]


def firsts(classes: Integers) -> Integers:
    """The first member of each class; classes are numbered without gaps."""
    first = np.empty(int(classes.max(initial=-1)) + 1, dtype=np.int64)
    first[classes[::-1]] = np.arange(len(classes))[::-1]
    return first


def same_pairs(traffic: Traffic, classes: Integers) -> Integers:
    """A number for each class of messages, equal for classes that join exactly the same pairs of ranks."""
    pairs, pair = np.unique((traffic.source << np.int64(32)) + traffic.target, return_inverse=True)
    known = np.unique(classes * len(pairs) + pair)
    hashed = _mix(pairs[known % len(pairs)].astype(np.uint64), 16)
    return _dense(_gather(known // len(pairs), hashed, int(classes.max()) + 1))
