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


def _mix(values: Words, salt: int) -> Words:
    """A hash of each word (the finaliser of splitmix64)."""
    mixed = values * _SALTS[salt % 3] + np.uint64(salt)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


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
    hop = traffic.hop.astype(np.uint64)
    count = 0
    for _ in range(_ROUNDS):
        along = _gather(traffic.message, _mix(link[traffic.link] + hop * _SALTS[1], 3), messages)
        back = _gather(traffic.back_message, _mix(link[traffic.back_link], 4), messages)
        ends = _mix(rank[traffic.source], 5) + _mix(rank[traffic.target], 6)
        message = _mix(message + _mix(along, 7) + _mix(back, 8) + ends, 9)
        seen = _gather(traffic.link, _mix(message[traffic.message] + hop * _SALTS[2], 10), links)
        seen += _gather(traffic.back_link, _mix(message[traffic.back_message], 11), links)
        link = _mix(link + seen, 12)
        met = _gather(traffic.source, _mix(message, 13), ranks) + _gather(traffic.target, _mix(message, 14), ranks)
        rank = _mix(rank + met, 15)
        found = sum(len(np.unique(words)) for words in (message, link, rank))
        if found == count:
            return Classes(_dense(message), _dense(link), _dense(rank))
        count = found
    return Classes(*(np.arange(size, dtype=np.int64) for size in (messages, links, ranks)))


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
