"""HPCC packet by packet with alike messages folded, where one by one (`packet_engine`) they are too many.

A train is one packet of every message of a class. At a port its copies arrive within an interval, wait for what is
there, and leave one after another; the sender of the class sees the middle one, a message is there with the last.
What folding loses is the spread between alike messages.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import Any

from backends.network.control import Hpcc
from backends.network.parameters import NetworkParameters
from backends.network.port_queue import POINT, PortQueue
from backends.network.rounds import ARRIVE, START, Key, Program, Rounds
from backends.network.sender import Flow, Host, Train, in_packets
from backends.network.trains import Trains
from runs.errors import CclSearchError


class TrainEngine(Rounds):
    """One run of a program whose classes stand for several messages each."""

    def __init__(self, program: Program, trains: Trains, parameters: NetworkParameters) -> None:
        super().__init__(program)
        self._trains, self._known = trains, parameters
        self._queues = [PortQueue(port) for port in trains.ports]
        self._hosts: dict[int, Host] = {}
        self._agenda: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._wire = float(parameters.payload_bytes + parameters.header_bytes)
        self._ticks = 1.0 / (parameters.tick or 1e-9)

    def run(self) -> float:
        """Seconds until every message of every lane is delivered."""
        self._begin()
        while self._events or self._agenda:
            soon = self._events[0][0] if self._events else inf
            if self._agenda and self._agenda[0][0] < soon:
                self._now, _, act, what = heapq.heappop(self._agenda)
                act(what)
            else:
                self._now, kind, _, lane, at, member = heapq.heappop(self._events)
                self._handle(kind, (lane, at, member))
        if not self._finished():
            raise CclSearchError("the packet simulation ended before its messages did", "report this collective")
        return self._now

    def _handle(self, kind: int, key: Key) -> None:
        if kind != START:
            self._arrived(kind, key)
            return
        self._join(self._flow(key))

    def _at(self, when: float, act: Callable[[Any], None], what: Any) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self._on_tick(when), self._count, act, what))

    def _on_tick(self, when: float) -> float:
        """Events of one moment must compare as equal, or symmetric senders drift apart by rounding."""
        return round(when * self._ticks) / self._ticks

    def _took(self, size: float, queue: PortQueue) -> float:
        """Seconds that one packet of `size` wire bytes keeps a port busy."""
        if size == self._wire:
            return queue.port.packet
        return max(round(size / queue.bandwidth * self._ticks), 1) / self._ticks

    def _flow(self, key: Key) -> Flow:
        way = self._trains.ways[key[2]]
        count, last = in_packets(way.nbytes, self._known)
        line = self._queues[way.hops[0][0]].bandwidth
        return Flow(key, way, count, last, Hpcc(line, way.window, way.trip, self._known))

    def _join(self, flow: Flow) -> None:
        port = flow.way.hops[0][0]
        host = self._hosts.get(port)
        if host is None:
            host = self._hosts[port] = Host(self._queues[port])
        host.flows.append(flow)
        self._send(host)

    def _send(self, host: Host) -> None:
        """The next packet of the flow whose turn it is, if the host is idle and any flow may send."""
        if host.free > self._now:
            return
        flow, soonest = host.choose(self._now, self._known.payload_bytes)
        if flow is not None:
            self._emit(host, flow)
        elif soonest < inf and (soonest < host.wake or host.wake <= self._now):
            host.wake = soonest
            self._at(soonest, self._send, host)

    def _emit(self, host: Host, flow: Flow) -> None:
        flow.sent += 1
        train = Train(flow, flow.sent, self._wire if flow.sent < flow.packets else flow.last)
        took = self._took(train.size, host.queue)
        more = max(took * (flow.way.hops[0][1] - 1.0), 0.0)
        train.half = more / 2
        pause = train.size / flow.control.rate
        flow.next_at = self._on_tick(self._now + pause)
        train.half = max(train.half, min(flow.spread, pause / 2))
        host.free = self._on_tick(self._now + took + more + host.owed)
        host.owed = 0.0
        self._depart(train, self._now + took + more / 2, host.queue)
        self._at(host.free, self._send, host)

    def _depart(self, train: Train, when: float, queue: PortQueue) -> None:
        """The middle of a train has left a port; one that is spread in time is announced to the next port."""
        reach, flow, ahead = when + queue.port.latency, train.flow, train.hop + 1
        if train.half > POINT and ahead < len(flow.way.hops):
            port, copies = flow.way.hops[ahead]
            there = self._queues[port]
            there.add(reach - train.half, reach + train.half, self._took(train.size, there) * copies)
        self._at(reach, self._reach, train)

    def _reach(self, train: Train) -> None:
        """A train is at the next port, or at its target."""
        train.hop += 1
        flow = train.flow
        if train.hop == len(flow.way.hops):
            self._answer(train)
            return
        port, copies = flow.way.hops[train.hop]
        queue = self._queues[port]
        took = self._took(train.size, queue)
        whole = took * copies
        if train.half > POINT:
            waits = max(queue.at(self._now) - took / 2, 0.0)
        else:
            waits = queue.at(self._now) + max(whole - took, 0.0) / 2
            queue.arrive(whole)
        train.half = max(train.half, (whole - took) / 2)
        self._at(self._now + waits, self._leave, train)

    def _leave(self, train: Train) -> None:
        """Its turn at a port: what waits behind it is what telemetry tells."""
        queue = self._queues[train.flow.way.hops[train.hop][0]]
        took = self._took(train.size, queue)
        backlog = queue.at(self._now)
        waiting = max(backlog - took, 0.0)
        sent = queue.given - backlog * queue.bandwidth
        train.seen.append((self._now, sent, waiting * queue.bandwidth, queue.bandwidth))
        self._depart(train, self._now + took, queue)

    def _answer(self, train: Train) -> None:
        """The acknowledgement goes ahead of its host's own data, then takes its turn at the ports on the way back."""
        port, copies = train.flow.way.back[0]
        known = self._queues[port].port
        host, wait = self._hosts.get(port), 0.0
        if host is not None:
            wait = min(max(host.free - self._now, 0.0), known.packet)
            host.owed += known.acknowledgement * copies
        train.hop = 0
        self._at(self._now + wait + known.acknowledgement + known.latency, self._return, train)

    def _return(self, train: Train) -> None:
        train.hop += 1
        back = train.flow.way.back
        if train.hop == len(back):
            self._acknowledge(train)
            return
        port, copies = back[train.hop]
        queue = self._queues[port]
        took = queue.port.acknowledgement
        wait = queue.at(self._now)
        queue.arrive(took * copies)
        self._at(self._now + wait + took + queue.port.latency, self._return, train)

    def _acknowledge(self, train: Train) -> None:
        flow = train.flow
        if flow.acked >= flow.packets:
            return
        flow.acked = max(flow.acked, train.number)
        flow.spread = train.half
        if flow.acked == flow.packets:
            self._push(self._on_tick(self._now + train.half), ARRIVE, flow.key)
        else:
            self._steer(flow, train)
        self._send(self._hosts[flow.way.hops[0][0]])

    def _steer(self, flow: Flow, train: Train) -> None:
        before = flow.control.rate
        flow.control.acknowledged(train.number, flow.sent, train.seen)
        pause = self._wire / flow.control.rate - self._wire / before
        flow.next_at = self._on_tick(flow.next_at + pause)
