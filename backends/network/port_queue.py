"""A first-in-first-out port as a fluid: trains of packets flow in during intervals, the port sends all the time."""

from __future__ import annotations

import heapq

from backends.network.trains import Port

POINT = 1e-12
"""Seconds; shorter trains arrive at once."""


class PortQueue:
    """What waits at a port, in seconds of its rate, integrated on demand; `given` are the bytes that arrived so far."""

    __slots__ = ("_changes", "_clock", "_inflow", "backlog", "bandwidth", "given", "port")

    def __init__(self, port: Port) -> None:
        self.port, self.bandwidth = port, port.bandwidth
        self.backlog, self.given = 0.0, 0.0
        self._clock, self._inflow = 0.0, 0.0
        self._changes: list[tuple[float, float]] = []

    def add(self, first: float, last: float, seconds: float) -> None:
        """Packets worth `seconds` flow in evenly from `first` to `last`; what is before the clock comes at once."""
        missed = self._clock - first
        if last <= self._clock:
            self.arrive(seconds)
            return
        flow = seconds / (last - first)
        if missed >= 0:
            self.arrive(missed * flow)
            self._inflow += flow
        else:
            heapq.heappush(self._changes, (first, flow))
        heapq.heappush(self._changes, (last, -flow))

    def arrive(self, seconds: float) -> None:
        """Packets worth `seconds` are there at once."""
        self.backlog += seconds
        self.given += seconds * self.bandwidth

    def at(self, when: float) -> float:
        """The backlog at `when`, seconds; the clock never goes back."""
        while self._changes and self._changes[0][0] <= when:
            moment, flow = heapq.heappop(self._changes)
            self._flow_until(moment)
            self._inflow = max(self._inflow + flow, 0.0) if self._changes else 0.0
        self._flow_until(when)
        return self.backlog

    def _flow_until(self, when: float) -> None:
        span = when - self._clock
        if span > 0:
            self.given += self._inflow * span * self.bandwidth
            self.backlog = max(self.backlog + (self._inflow - 1.0) * span, 0.0)
            self._clock = when
