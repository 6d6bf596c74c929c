"""What the packet engine keeps of messages under way, their packets, and the hosts that send them in turn."""

from __future__ import annotations

from math import inf

from backends.network.control import Dcqcn, Hpcc, Telemetry
from backends.network.port_queue import PortQueue
from backends.network.rounds import Key
from backends.network.trains import Way


class Flow:
    """One class of messages under way.

    `last` are the wire bytes of its last packet, `spread` the seconds by which copies come before or after the middle
    one, `endures` the expected marks until it is marked.
    """

    __slots__ = ("acked", "control", "endures", "key", "last", "marks", "next_at", "packets", "sent", "spread",
                 "way")  # fmt: skip

    def __init__(self, key: Key, way: Way, packets: int, last: float) -> None:
        self.key, self.way, self.packets, self.last = key, way, packets, last
        self.sent = self.acked = 0
        self.next_at = self.marks = self.spread = 0.0
        self.endures = inf
        self.control: Hpcc | Dcqcn | None = None

    def fits(self, line: float, payload: int) -> bool:
        """Whether its window, in proportion to its rate, leaves room for a packet."""
        share = self.control.rate / line if self.control is not None else 1.0
        return (self.sent - self.acked) * payload < max(self.way.window * share, 1.0)


class Train:
    """Packet `number` of every message of a flow; `half` seconds are between its middle and its last copy."""

    __slots__ = ("flow", "half", "hop", "marks", "number", "seen", "size")

    def __init__(self, flow: Flow, number: int, size: float) -> None:
        self.flow, self.number, self.size = flow, number, size
        self.hop, self.half, self.marks = 0, 0.0, 0.0
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
