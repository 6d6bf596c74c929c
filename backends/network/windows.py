"""Window-limited senders: a flow keeps at most its window on the way, so round trips bound its rate.

The window of a pair is its bandwidth-delay product, so already what an acknowledgement waits behind data matters. A
message of n packets with window w, packet time t and round trip R takes n t + floor((n-1)/w) max(0, R - w t): after
each full window the sender stalls until the first acknowledgement is back. R is propagation and serialisation both
ways, the wait of acknowledgements behind data in service, and the standing queues of switches: a saturated switch port
holds what its flows have on the way beyond their rate times round trip (fixed-window flow control, Mo and Walrand
2000). Hosts serve their flows in turn and keep no queue in the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.network.sharing import Floats, Integers, Shares

_STEPS, _FEWEST, _WORK = 40, 6, 8000
_CLOSE = 2e-3
_QUEUE_CLOSE = 1e-2
_FULL = 1.0 - 1e-6


@dataclass(frozen=True)
class Windows:
    """Per flow class: `packets` of a message, `window` in packets, `round_trip` unloaded, `slowest` packet time.

    Matrices [link class, flow class]: `load` seconds a link is busy with data per packet of the flow; `queues` how
    often the flow or its acknowledgements pass the switch port of that link; `crossed` 1 / hop for data only; `waits`
    seconds an acknowledgement waits there when data keep the link always busy. `burst` seconds the first one waits
    behind the window of the flow the other way between the same two hosts, class `opposite` (-1: there is none).
    """

    packets: Floats
    window: Floats
    round_trip: Floats
    slowest: Floats
    load: Floats
    queues: Floats
    crossed: Floats
    waits: Floats
    packet_time: Floats
    burst: Floats
    opposite: Integers

    def rates(self, shares: Shares, copies: Floats) -> tuple[Floats, Floats]:
        """Max-min fair rates, capped by the windows at the round trips that these imply; and the queues in seconds."""
        stalls = np.floor(np.maximum(self.packets - 1e-9, 0.0) / self.window)
        active = copies > 0
        rates = shares.rates(copies)
        queue = np.zeros(len(self.packet_time))
        if not (stalls[active] > 0).any():
            return rates, queue
        mutual = np.where((self.opposite >= 0) & (copies[self.opposite] > 0), self.burst, 0.0)
        on_the_way = np.where(stalls > 0, self.window, self.packets / 2)
        for _ in range(max(_FEWEST, min(_STEPS, _WORK // len(rates)))):
            busy = self.load @ (rates * copies)
            trip = self.round_trip + mutual + queue @ self.queues + np.minimum(busy, 1.0) @ self.waits
            idle = np.maximum(trip - self.window * self.slowest, 0.0)
            caps = self.packets / (self.packets * self.slowest + stalls * idle)
            before, rates = rates, shares.rates(copies, caps)
            change = self._queue_change(shares, rates, copies, trip, on_the_way)
            settled = np.abs(rates - before)[active].max() <= _CLOSE * rates[active].max()
            moved = np.abs(np.maximum(queue + change, 0.0) - queue).max()
            queue = np.maximum(queue + change, 0.0)
            if settled and moved <= _QUEUE_CLOSE * trip[active].max():
                break
        return rates, queue

    def _queue_change(self, shares: Shares, rates: Floats, copies: Floats, trip: Floats, on_the_way: Floats) -> Floats:
        """Newton steps on the queues: up by what is on the way beyond rate times round trip, else down by the room.

        It stands at the first full port of a flow; later ones get no more than they can send.
        """
        busy = shares.load(rates * copies)
        ports = self.crossed * (busy >= _FULL - _CLOSE)[:, None]
        first = ports.argmax(axis=0)
        beyond = np.where(ports.max(axis=0) > 0, np.maximum(on_the_way - rates * trip, 0.0), 0.0)
        grown = np.zeros(len(self.packet_time))
        own = np.arange(len(first))
        met = np.maximum(self.queues[first, own], 1.0)
        np.add.at(grown, first, beyond / met * self.load[first, own] * copies)
        passes = np.maximum(self.queues[:, copies > 0].max(axis=1), 1.0)
        room: Floats = np.maximum(_FULL - _CLOSE - busy, 0.0) * trip[copies > 0].mean() / passes
        change: Floats = 0.5 * (grown - room)
        return change
