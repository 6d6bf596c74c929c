"""What both engines share: the messages of a program, and which of them a rank may send given what it has received."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby

START, ARRIVE, REDUCED = 0, 1, 2
Key = tuple[int, int, int]
"""Lane, round, message class."""


@dataclass(frozen=True)
class MessageClass:
    """Alike messages: work in packets, classes of the end ranks; seconds before sending, after draining, of reducing.

    Messages of one `connection` (the same pairs of ranks) are sent in order.
    """

    source: int
    target: int
    work: float
    tail: float
    reduce: float
    one_by_one: bool
    delay: float
    connection: int


@dataclass(frozen=True)
class Program:
    """`lanes[j][k]` are the classes that lane j sends in its round k; lanes run side by side.

    `in_order`: all lanes send over the same connections, in order (chunk pipelining); else each has its own.
    """

    classes: tuple[MessageClass, ...]
    lanes: tuple[tuple[tuple[int, ...], ...], ...]
    ranks: int
    in_order: bool


class Rounds:
    """Clock and events of one run of a program; a rank goes on once it has what earlier rounds address to it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._events: list[tuple[float, int, int, int, int, int]] = []
        self._now, self._count = 0.0, 0
        self._sends = [self._by_rank(lane, "source") for lane in program.lanes]
        self._waiting = [
            [[len(members) for members in rank] for rank in self._by_rank(lane, "target")] for lane in program.lanes
        ]
        self._frontier = [[-1] * program.ranks for _ in program.lanes]
        self._reducing: dict[tuple[int, int], float] = {}

    def _by_rank(self, rounds: tuple[tuple[int, ...], ...], end: str) -> list[list[list[int]]]:
        """For each rank and round the messages that have it as their `end`; equal rounds share their lists."""
        table: list[list[list[int]]] = [[] for _ in range(self._program.ranks)]
        for members, equal in groupby(rounds):
            mine: dict[int, list[int]] = defaultdict(list)
            for member in members:
                mine[getattr(self._program.classes[member], end)].append(member)
            times, nothing = sum(1 for _ in equal), list[int]()
            for rank, row in enumerate(table):
                row += [mine.get(rank, nothing)] * times
        return table

    def _begin(self) -> None:
        for lane in range(len(self._program.lanes)):
            for rank in range(self._program.ranks):
                self._advance(lane, rank)

    def _advance(self, lane: int, rank: int) -> None:
        """Release the sends of every round up to the first one that the rank still waits for."""
        waiting, rounds = self._waiting[lane][rank], len(self._program.lanes[lane])
        at = self._frontier[lane][rank]
        while at < rounds and (at < 0 or waiting[at] == 0):
            at += 1
            if at < rounds:
                for member in self._sends[lane][rank][at]:
                    self._push(self._now + self._program.classes[member].delay, START, (lane, at, member))
        self._frontier[lane][rank] = at

    def _push(self, when: float, kind: int, message: Key) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, kind, self._count, *message))

    def _arrived(self, kind: int, key: Key) -> None:
        """A message is there, or reduced: what that allows."""
        what = self._program.classes[key[2]]
        if kind == ARRIVE and what.reduce:
            self._push(self._reduced(key[0], what), REDUCED, key)
        else:
            self._waiting[key[0]][what.target][key[1]] -= 1
            self._advance(key[0], what.target)

    def _reduced(self, lane: int, what: MessageClass) -> float:
        begin = self._now
        if what.one_by_one:
            begin = max(begin, self._reducing.get((lane, what.target), 0.0))
            self._reducing[lane, what.target] = begin + what.reduce
        return begin + what.reduce

    def _finished(self) -> bool:
        ends = [len(rounds) for rounds in self._program.lanes]
        return all(at >= end for lane, end in zip(self._frontier, ends, strict=True) for at in lane)
