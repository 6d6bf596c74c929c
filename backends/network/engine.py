"""The event loop: classes of messages that start when their ranks may, share links, drain, and arrive."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from backends.network.sharing import Floats
from runs.errors import CclSearchError

Solver = Callable[[Floats], tuple[Floats, Floats | None]]
_SAME_TIME = 1e-13
_MANY, _TOGETHER = 64, 0.004
_START, _ARRIVE, _REDUCED = 0, 1, 2


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


class Engine:
    """One run of a program.

    `rates` gives packets/s of a copy of each class when so many copies of each are active, and, or None, the seconds by
    which congestion control makes each late.
    """

    def __init__(self, program: Program, rates: Solver) -> None:
        self._program, self._solve = program, rates
        self._events: list[tuple[float, int, int, int, int, int]] = []
        self._active: dict[tuple[int, int, int], float] = {}
        self._copies = np.zeros(len(program.classes))
        self._known: dict[bytes, tuple[Floats, Floats | None]] = {}
        self._late: dict[tuple[int, int, int], float] = {}
        self._begun: dict[tuple[int, int, int], float] = {}
        self._rate: Floats | None = None
        self._since, self._next_drain, self._changed = 0.0, inf, False
        self._now, self._count = 0.0, 0
        self._sends = [self._by_rank(lane, "source") for lane in program.lanes]
        received = [self._by_rank(lane, "target") for lane in program.lanes]
        self._waiting = [[[len(members) for members in rank] for rank in lane] for lane in received]
        self._frontier = [[-1] * program.ranks for _ in program.lanes]
        self._lines: dict[tuple[int, int], deque[tuple[int, int, int]]] = {}
        self._reducing: dict[tuple[int, int], float] = {}

    def _by_rank(self, rounds: tuple[tuple[int, ...], ...], end: str) -> list[list[list[int]]]:
        table: list[list[list[int]]] = [[[] for _ in rounds] for _ in range(self._program.ranks)]
        for index, members in enumerate(rounds):
            for member in members:
                table[getattr(self._program.classes[member], end)][index].append(member)
        return table

    def run(self) -> float:
        """Seconds until every message of every lane is delivered."""
        for lane in range(len(self._program.lanes)):
            for rank in range(self._program.ranks):
                self._advance(lane, rank)
        while self._events or self._active:
            self._step()
        ends = [len(rounds) for rounds in self._program.lanes]
        if any(at < end for lane, end in zip(self._frontier, ends, strict=True) for at in lane):
            raise CclSearchError("the network simulation ended before its messages did", "report this collective")
        return float(self._now)

    def _advance(self, lane: int, rank: int) -> None:
        """Release the sends of every round up to the first one that the rank still waits for."""
        waiting, rounds = self._waiting[lane][rank], len(self._program.lanes[lane])
        at = self._frontier[lane][rank]
        while at < rounds and (at < 0 or waiting[at] == 0):
            at += 1
            if at < rounds:
                for member in self._sends[lane][rank][at]:
                    self._push(self._now + self._program.classes[member].delay, _START, (lane, at, member))
        self._frontier[lane][rank] = at

    def _push(self, when: float, kind: int, message: tuple[int, int, int]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, kind, self._count, *message))

    def _step(self) -> None:
        """On to the next event or drained message; what is left of the active ones is kept as of `_since`."""
        if self._changed:
            self._progress()
        event = self._events[0][0] if self._events else inf
        if min(self._next_drain, event) == inf:
            raise CclSearchError("the network simulation stands still", "report this collective")
        if self._next_drain <= event:
            self._drain_until(min(self._next_drain + self._together(), max(event, self._next_drain)))
        else:
            self._now = max(self._now, event)
            while self._events and self._events[0][0] <= self._now + _SAME_TIME:
                _, kind, _, lane, at, member = heapq.heappop(self._events)
                self._handle(kind, (lane, at, member))

    def _together(self) -> float:
        """Of many flows those that drain within a little of the elapsed time go at once, each at its own moment.

        The others speed up only after the last of them, so that grouping never makes anything faster.
        """
        return _TOGETHER * self._now if len(self._active) > _MANY else 0.0

    def _progress(self) -> None:
        """Bring what is left up to now, and find the rates and the next drain of the changed set."""
        if self._rate is not None:
            for key, left in self._active.items():
                begun = self._begun.pop(key, self._since)
                self._active[key] = left - (self._now - begun) * self._rate[key[2]] if begun < self._now else left
        self._begun.clear()
        self._since, self._changed = self._now, False
        self._rate = rates = self._rates()
        soonest = min((left / rates[key[2]] for key, left in self._active.items()), default=inf)
        self._next_drain = self._now + max(soonest, 0.0)

    def _drain_until(self, until: float) -> None:
        rates = self._rate
        assert rates is not None
        self._now = until
        ends = [(self._since + left / rates[key[2]], key) for key, left in self._active.items()]
        for when, key in ends:
            if when <= until + _SAME_TIME:
                self._drain(when, key)

    def _drain(self, when: float, key: tuple[int, int, int]) -> None:
        del self._active[key]
        self._copies[key[2]] -= 1
        self._changed = True
        self._push(when + self._program.classes[key[2]].tail + self._late.pop(key, 0.0), _ARRIVE, key)
        line = self._line(key)
        line.popleft()
        if line:
            self._send(line[0])

    def _line(self, key: tuple[int, int, int]) -> deque[tuple[int, int, int]]:
        """The messages that wait for the connection of `key`, the one being sent first."""
        lane = 0 if self._program.in_order else key[0]
        return self._lines.setdefault((lane, self._program.classes[key[2]].connection), deque())

    def _send(self, key: tuple[int, int, int]) -> None:
        self._active[key] = self._program.classes[key[2]].work
        self._begun[key] = self._now
        self._copies[key[2]] += 1
        self._changed = True

    def _handle(self, kind: int, key: tuple[int, int, int]) -> None:
        what = self._program.classes[key[2]]
        if kind == _START:
            line = self._line(key)
            line.append(key)
            if len(line) == 1:
                self._send(key)
        elif kind == _ARRIVE and what.reduce:
            self._push(self._reduced(key[0], what), _REDUCED, key)
        else:
            self._waiting[key[0]][what.target][key[1]] -= 1
            self._advance(key[0], what.target)

    def _reduced(self, lane: int, what: MessageClass) -> float:
        begin = self._now
        if what.one_by_one:
            begin = max(begin, self._reducing.get((lane, what.target), 0.0))
            self._reducing[lane, what.target] = begin + what.reduce
        return begin + what.reduce

    def _rates(self) -> Floats:
        key = self._copies.tobytes()
        if key not in self._known:
            rates, late = self._solve(self._copies)
            self._known[key] = rates, late if late is not None and late.any() else None
        rates, late = self._known[key]
        if late is not None:
            for message in self._active:
                self._late[message] = max(self._late.get(message, 0.0), late[message[2]])
        return rates
