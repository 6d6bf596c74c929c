"""What the packet engines keep of messages under way, their packets, and the hosts that send them in turn."""

from __future__ import annotations

from math import ceil, inf

from backends.network.control import Dcqcn, Hpcc, Telemetry
from backends.network.parameters import NetworkParameters
from backends.network.port_queue import PortQueue, PortRecord
from backends.network.rounds import Key
from backends.network.trains import Way


class Flow:
    """One class of messages under way.

    `last` are the wire bytes of its last packet, `spread` the seconds by which copies come before or after the middle
    one.
    """

    __slots__ = ("acked", "control", "key", "last", "next_at", "packets", "sent", "spread", "way")

    def __init__(self, key: Key, way: Way, packets: int, last: float, control: Hpcc) -> None:
        self.key, self.way, self.packets, self.last, self.control = key, way, packets, last, control
        self.sent = self.acked = 0
        self.next_at = self.spread = 0.0

    def fits(self, line: float, payload: int) -> bool:
        """Whether its window, in proportion to its rate, leaves room for a packet."""
        share = self.control.rate / line
        return (self.sent - self.acked) * payload < max(self.way.window * share, 1.0)


class Train:
    """Packet `number` of every message of a flow; `half` seconds are between its middle and its last copy."""

    __slots__ = ("flow", "half", "hop", "number", "seen", "size")

    def __init__(self, flow: Flow, number: int, size: float) -> None:
        self.flow, self.number, self.size = flow, number, size
        self.hop, self.half = 0, 0.0
        self.seen: list[Telemetry] = []


class Host:
    """A sending port with its flows; `owed` seconds go to acknowledgements before the next packet."""

    __slots__ = ("_turn", "flows", "free", "owed", "queue", "wake")

    def __init__(self, queue: PortQueue) -> None:
        self.queue = queue
        self.flows: list[Flow] = []
        self._turn = 0
        self.free, self.owed, self.wake = 0.0, 0.0, inf

    def choose(self, now: float, payload: int) -> tuple[Flow | None, float]:
        """The next flow in turn that may send now, else None and when its rate lets one send (inf: none waits so)."""
        flows, soonest, stale = self.flows, inf, False
        line, count = self.queue.bandwidth, len(self.flows)
        for step in range(1, count + 1):
            at = (self._turn + step) % count
            flow = flows[at]
            if flow.sent < flow.packets and flow.fits(line, payload):
                if flow.next_at <= now:
                    self._turn = at
                    return flow, now
                soonest = min(soonest, flow.next_at)
            elif flow.acked >= flow.packets:
                stale = True
        if stale:
            self.flows = [flow for flow in flows if flow.acked < flow.packets]
            self._turn = 0
        return None, soonest


def in_packets(nbytes: float, known: NetworkParameters) -> tuple[int, float]:
    """How many packets a message is, and the wire bytes of the last one."""
    full, rest = divmod(nbytes, known.payload_bytes)
    return int(full) + (rest > 0), known.header_bytes + (rest if rest > 0 else known.payload_bytes)


class Message:
    """One message under way, times in ticks: `room` packets may be on the way, `next_at` is when its rate lets one go.

    `last` are the wire bytes of its last packet, `size` of the one sent last, `due` when its rate next changes by
    itself.
    """

    __slots__ = ("acked", "control", "due", "key", "last", "next_at", "packets", "payload", "room", "sent", "size",
                 "way")  # fmt: skip

    def __init__(self, key: Key, way: Way, known: NetworkParameters) -> None:
        self.key, self.way, self.payload = key, way, known.payload_bytes
        self.packets, self.last = in_packets(way.nbytes, known)
        self.size: float = known.payload_bytes + known.header_bytes
        self.sent = self.acked = self.next_at = 0
        self.room, self.due = 1, inf
        self.control: Hpcc | Dcqcn | None = None

    def widen(self, line: float) -> None:
        """The window in packets, in proportion to the rate; a packet may go while less than the window is under way."""
        share = self.control.rate / line if self.control is not None else 1.0
        self.room = max(ceil(int(self.way.window * share + 1e-6) / self.payload), 1)

    def pause(self, tick: float) -> int:
        """Ticks until its rate lets the next packet go."""
        assert self.control is not None
        return round(self.size / self.control.rate / tick)

    def retime(self, line: float, tick: float, now: int, marked: bool = False) -> None:
        """Bring a rate that timers change up to `now`, when a marked acknowledgement may have come."""
        if isinstance(self.control, Dcqcn):
            self.control.tick((now + 0.5) * tick)
            if marked:
                self.control.marked(now * tick)
            self.widen(line)
            self.due = self.control.timer / tick


class Packet:
    """Packet `number` of a message: it entered `port` as number `place` of its record and left it at tick `started`."""

    __slots__ = ("hop", "marked", "message", "number", "place", "port", "seen", "size", "started")

    def __init__(self, message: Message, number: int, size: float) -> None:
        self.message, self.number, self.size = message, number, size
        self.hop = self.place = self.started = 0
        self.port: PortRecord | None = None
        self.marked = False
        self.seen: list[Telemetry] = []


class HostQueue:
    """A sending port with its messages: busy until tick `free`; `due` says that this end is on the agenda.

    `wakes` is the tick of alarm number `alarm`, negative where none is set.
    """

    __slots__ = ("_turn", "alarm", "due", "free", "messages", "port", "wakes")

    def __init__(self, port: PortRecord) -> None:
        self.port = port
        self.messages: list[Message] = []
        self.free, self.due, self.wakes, self.alarm = 0, False, -1, 0
        self._turn = 0

    def choose(self, now: int, tick: float) -> Message | None:
        """The next message in turn that may send now; those that are done are dropped as they are met."""
        messages, count, found, done = self.messages, len(self.messages), -1, -1
        for step in range(1, count + 1):
            at = (self._turn + step) % count
            message = messages[at]
            if message.due <= now:
                message.retime(self.port.bandwidth, tick, now)
            if message.sent < message.packets and message.sent - message.acked < message.room:
                if message.next_at <= now:
                    found = at
                    break
            elif message.acked >= message.packets and (done < 0 or at < done):
                done = at
        chosen = messages[found] if found >= 0 else None
        if done >= 0:
            messages[done:] = [message for message in messages[done:] if message.acked < message.packets]
        if chosen is not None:
            self._turn = messages.index(chosen) if done >= 0 else found
        return chosen
