"""The event loop: classes of messages that start when their ranks may, share links, drain, and arrive."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from math import inf

import numpy as np

from backends.network.rounds import ARRIVE, START, Key, Program, Rounds
from backends.network.sharing import Floats
from runs.errors import CclSearchError

Solver = Callable[[Floats], tuple[Floats, Floats | None]]
_SAME_TIME = 1e-13
_TOGETHER = 0.004
MANY = 64
"""Active messages beyond which drains are grouped."""


class Engine(Rounds):
    """One run of a program whose messages share the links as fluids.

    `rates` gives packets/s of a copy of each class when so many copies of each are active, and, or None, the seconds by
    which congestion control makes each late.
    """

    def __init__(self, program: Program, rates: Solver) -> None:
        super().__init__(program)
        self._solve = rates
        self._active: dict[Key, float] = {}
        self._copies = np.zeros(len(program.classes))
        self._known: dict[bytes, tuple[Floats, Floats | None]] = {}
        self._late: dict[Key, float] = {}
        self._begun: dict[Key, float] = {}
        self._rate: Floats | None = None
        self._since, self._next_drain, self._changed = 0.0, inf, False
        self._lines: dict[tuple[int, int], deque[Key]] = {}

    def run(self) -> float:
        """Seconds until every message of every lane is delivered."""
        self._begin()
        while self._events or self._active:
            self._step()
        if not self._finished():
            raise CclSearchError("the network simulation ended before its messages did", "report this collective")
        return float(self._now)

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
        return _TOGETHER * self._now if len(self._active) > MANY else 0.0

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

    def _drain(self, when: float, key: Key) -> None:
        del self._active[key]
        self._copies[key[2]] -= 1
        self._changed = True
        self._push(when + self._program.classes[key[2]].tail + self._late.pop(key, 0.0), ARRIVE, key)
        line = self._line(key)
        line.popleft()
        if line:
            self._send(line[0])

    def _line(self, key: Key) -> deque[Key]:
        """The messages that wait for the connection of `key`, the one being sent first."""
        lane = 0 if self._program.in_order else key[0]
        return self._lines.setdefault((lane, self._program.classes[key[2]].connection), deque())

    def _send(self, key: Key) -> None:
        self._active[key] = self._program.classes[key[2]].work
        self._begun[key] = self._now
        self._copies[key[2]] += 1
        self._changed = True

    def _handle(self, kind: int, key: Key) -> None:
        if kind != START:
            self._arrived(kind, key)
            return
        line = self._line(key)
        line.append(key)
        if len(line) == 1:
            self._send(key)

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
