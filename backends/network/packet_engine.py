"""Packet by packet, every message on its own: windows, congestion control, first-in-first-out ports, in whole ticks.

What it follows is the host of the reference: messages of a host take turns, skipping those whose window or rate does
not let them; acknowledgements go before data at the host and take their turn with them at the ports; a host that finds
nothing to send wakes when the first of its messages may send, and otherwise only when an acknowledgement comes. What a
packet leaves behind it when it leaves a port (marks, telemetry) is read off the port's record when it reaches the next.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

from backends.network.control import Dcqcn, Hpcc
from backends.network.parameters import CongestionControl, NetworkParameters
from backends.network.port_queue import PortRecord
from backends.network.rounds import ARRIVE, REDUCED, START, Key, Program, Rounds
from backends.network.sender import HostQueue, Message, Packet
from backends.network.trains import Trains
from runs.errors import CclSearchError

_FORTH, _BACK, _SENT, _WAKE = 3, 4, 5, 6
_BYTES, _QUEUE = 128, 80
"""Units in which telemetry counts what a port has sent and what waits there (Li et al. 2019, section 4)."""
_DRAWS = 1
"""Marks are drawn from one fixed sequence, so that an answer never depends on a run."""


class PacketEngine(Rounds):
    """One run of a program whose every message is a class of its own."""

    def __init__(self, program: Program, trains: Trains, parameters: NetworkParameters, draws: int = _DRAWS) -> None:
        super().__init__(program)
        self._trains, self._parameters = trains, parameters
        self._tick = parameters.tick or 1e-9
        self._ports = [PortRecord(port, self._tick) for port in trains.ports]
        self._hosts: dict[int, HostQueue] = {}
        self._agenda: list[tuple[int, int, int, int, int, Any]] = []
        self._time = self._since = 0
        self._wire = parameters.payload_bytes + parameters.header_bytes
        self._draw = Random(draws).random  # noqa: S311 - no secret
        self._chunks: dict[tuple[int, int], int] = {}
        self._expected = self._expectations()

    def run(self) -> float:
        """Seconds until every message of every lane is delivered."""
        self._begin()
        agenda, acts = self._agenda, self._acts()
        while agenda:
            self._time, self._since, _, _, kind, what = heapq.heappop(agenda)
            acts[kind](what)
        if not self._finished():
            raise CclSearchError("the packet simulation ended before its messages did", "report this collective")
        return self._now

    def _acts(self) -> list[Any]:
        acts: list[Any] = [None] * 7
        acts[START], acts[ARRIVE], acts[REDUCED] = self._join, self._delivered, self._ready
        acts[_FORTH], acts[_BACK], acts[_SENT], acts[_WAKE] = self._forth, self._back, self._sent, self._wake
        return acts

    def _push(self, when: float, kind: int, message: Key) -> None:
        self._at(max(round(when / self._tick), self._time), kind, message)

    def _at(self, when: int, kind: int, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (when, self._time, self._since, self._count, kind, what))

    def _pass(self, port: PortRecord, size: float, kind: int, packet: Packet) -> None:
        """Through a port to what is behind it.

        Of one moment events come in the order in which they were caused: by when their cause came, by when the cause
        of that came, and so on. What left a busy port was caused by the end of the packet before it, and that chain
        goes back to the packet that found the port idle.
        """
        before, now = port.began, self._time
        if now >= port.free:
            self._count += 1
            port.order, before = self._count, self._since
        packet.place, packet.started = port.enter(now, size)
        what = port.free + port.latency, port.began, before, port.order, kind, packet
        heapq.heappush(self._agenda, what)

    def _expectations(self) -> dict[tuple[int, int, int, int], list[tuple[int, int]]]:
        """Of each chunk (a launch begins one) and pair of ranks the rounds and classes of its messages, in order."""
        expected: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}
        for lane, rounds in enumerate(self._program.lanes):
            chunk = 0
            for at, members in enumerate(rounds):
                known = [self._program.classes[member] for member in members]
                chunk += any(what.delay > self._parameters.step_seconds for what in known)
                self._chunks[lane, at] = chunk
                for member, what in zip(members, known, strict=True):
                    expected.setdefault((lane, chunk, what.source, what.target), []).append((at, member))
        return expected

    def _delivered(self, key: Key) -> None:
        """A message counts for the first of its pair and size that is still awaited, not for the one that it was.

        ASTRA-sim matches by count, so that a message of a ring that others have overtaken holds nobody up.
        """
        self._now = self._time * self._tick
        lane, at, member = key
        what = self._program.classes[member]
        awaited = self._expected[lane, self._chunks[lane, at], what.source, what.target]
        first = next(one for one in awaited if self._program.classes[one[1]].work == what.work)
        awaited.remove(first)
        self._arrived(ARRIVE, (lane, *first))

    def _ready(self, key: Key) -> None:
        self._now = self._time * self._tick
        self._arrived(REDUCED, key)

    def _join(self, key: Key) -> None:
        way = self._trains.ways[key[2]]
        message = Message(key, way, self._parameters)
        message.next_at = self._time
        line = self._ports[way.hops[0][0]].bandwidth
        if self._parameters.congestion_control is CongestionControl.HPCC:
            message.control = Hpcc(line, way.window, way.trip, self._parameters)
        elif self._parameters.congestion_control is CongestionControl.DCQCN:
            message.control = Dcqcn(line, self._parameters)
        message.widen(line)
        number = way.hops[0][0]
        host = self._hosts.get(number)
        if host is None:
            host = self._hosts[number] = HostQueue(self._ports[number])
        host.messages.append(message)
        self._send(host)

    def _sent(self, host: HostQueue) -> None:
        host.due = False
        self._send(host)

    def _wake(self, what: tuple[HostQueue, int]) -> None:
        host, number = what
        if number == host.alarm:
            host.wakes = -1
            self._send(host)

    def _send(self, host: HostQueue) -> None:
        """The next packet in turn, if the port is idle; else when to look again."""
        now = self._time
        if now < host.free:
            if not host.due:
                host.due = True
                self._at(host.free, _SENT, host)
            return
        message = host.choose(now, self._tick)
        if message is not None:
            self._emit(host, message)
        elif host.wakes < 0:
            soonest = min((each.next_at for each in host.messages), default=-1)
            if soonest > now:
                self._alarm(host, soonest)

    def _alarm(self, host: HostQueue, when: int) -> None:
        host.wakes = when
        host.alarm += 1
        self._at(when, _WAKE, (host, host.alarm))

    def _emit(self, host: HostQueue, message: Message) -> None:
        message.sent += 1
        size = self._wire if message.sent < message.packets else message.last
        took = host.port.took(size)
        message.size = size
        message.next_at = self._time + (took if message.control is None else message.pause(self._tick))
        host.free = self._time + took
        host.due = True
        self._at(host.free, _SENT, host)
        self._at(host.free + host.port.latency, _FORTH, Packet(message, message.sent, size))

    def _forth(self, packet: Packet) -> None:
        """At the next port, or at the target."""
        if packet.port is not None and packet.message.control is not None:
            self._read(packet, packet.port)
        packet.hop += 1
        hops = packet.message.way.hops
        if packet.hop < len(hops):
            port = self._ports[hops[packet.hop][0]]
            packet.port = port
            self._pass(port, packet.size, _FORTH, packet)
        else:
            self._answer(packet)

    def _read(self, packet: Packet, port: PortRecord) -> None:
        """What waited behind the packet when it left `port`: for HPCC its telemetry, for DCQCN perhaps a mark."""
        waiting = port.behind(packet.place, packet.started)
        if isinstance(packet.message.control, Hpcc):
            sent = port.entered[packet.place] - packet.size
            figures = sent // _BYTES * _BYTES, waiting // _QUEUE * _QUEUE
            packet.seen.append((packet.started * self._tick, *figures, port.bandwidth))
        elif waiting > self._parameters.ecn_min * port.bandwidth and not packet.marked:
            packet.marked = self._draw() < self._parameters.marking(waiting / port.bandwidth)

    def _answer(self, packet: Packet) -> None:
        """The acknowledgement goes after what the host is sending, before its other data."""
        number = packet.message.way.back[0][0]
        port = self._ports[number]
        host = self._hosts.get(number)
        packet.hop = 0
        begins = self._time
        if host is not None:
            begins = max(begins, host.free)
            host.free = begins + port.answer
        self._at(begins + port.answer + port.latency, _BACK, packet)

    def _back(self, packet: Packet) -> None:
        packet.hop += 1
        back = packet.message.way.back
        if packet.hop == len(back):
            self._acknowledge(packet)
            return
        self._pass(self._ports[back[packet.hop][0]], self._parameters.ack_bytes, _BACK, packet)

    def _acknowledge(self, packet: Packet) -> None:
        message = packet.message
        message.acked = max(message.acked, packet.number)
        host = self._hosts[message.way.hops[0][0]]
        if message.acked == message.packets:
            self._at(self._time, ARRIVE, message.key)
        control = message.control
        if isinstance(control, Hpcc):
            self._steer(host, message, control, packet)
        elif control is not None and packet.marked:
            message.retime(host.port.bandwidth, self._tick, self._time, marked=True)
        self._send(host)

    def _steer(self, host: HostQueue, message: Message, control: Hpcc, packet: Packet) -> None:
        before = control.rate
        control.acknowledged(packet.number, message.sent, packet.seen)
        if control.rate != before:
            message.next_at += round(message.size / control.rate / self._tick) - round(
                message.size / before / self._tick
            )
            message.widen(host.port.bandwidth)
        if message.next_at < host.wakes:
            self._alarm(host, max(message.next_at, self._time))
