"""A first-in-first-out port: as a fluid, into which trains of packets flow during intervals, and packet by packet."""

from __future__ import annotations

import heapq
from bisect import bisect_right

from backends.network.trains import Port

POINT = 1e-12
"""Seconds; shorter trains arrive at once."""


class PortQueue:
    """What waits at a port that sends all the time, in seconds of its rate, integrated on demand.

    `given` are the bytes that arrived so far.
    """

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


class PortRecord:
    """A port packet by packet, in ticks: idle from `free` on; `entered` are the bytes up to and with each packet.

    `began` is when the last packet begins to leave, `order` the number of the event that found the port idle last.
    """

    __slots__ = ("_bytes", "_known", "_tick", "_times", "answer", "bandwidth", "began", "entered", "free", "latency",
                 "order")  # fmt: skip

    def __init__(self, port: Port, tick: float) -> None:
        self.bandwidth, self._tick = port.bandwidth, tick
        self.latency, self.answer = round(port.latency / tick), max(round(port.acknowledgement / tick), 1)
        self.free = self.began = self.order = 0
        self._bytes = 0.0
        self.entered: list[float] = []
        self._times: list[int] = []
        self._known: dict[float, int] = {}

    def took(self, size: float) -> int:
        """Ticks that `size` wire bytes keep the port busy."""
        known = self._known.get(size)
        if known is None:
            known = self._known[size] = max(round(size / self.bandwidth / self._tick), 1)
        return known

    def enter(self, now: int, size: float) -> tuple[int, int]:
        """A packet comes: its place in the record, and when it begins to leave; it has left when the port is free."""
        begins = now if now > self.free else self.free
        self.began, self.free = begins, begins + (self._known.get(size) or self.took(size))
        self._bytes += size
        self._times.append(now)
        self.entered.append(self._bytes)
        return len(self._times) - 1, begins

    def behind(self, place: int, began: int) -> float:
        """Bytes that waited behind packet `place` when it began to leave."""
        if self._times[place] == began:
            return 0.0
        return self.entered[bisect_right(self._times, began, lo=place) - 1] - self.entered[place]
