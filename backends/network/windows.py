"""Window-limited senders: a flow keeps at most its window on the way, so round trips bound its rate.

The window of a pair is its bandwidth-delay product, so already what an acknowledgement waits behind data matters. The
rate of a message of n packets with window w, packet time t and round trip R is n / (n t + floor((n-1)/w) max(0, R - w t)):
after each full window the sender stalls until the first acknowledgement is back. R is propagation and serialisation
both ways, the wait of acknowledgements behind data in service, and the standing queues of switches: a saturated switch
port holds what its flows have on the way beyond their rate times round trip (fixed-window flow control, Mo and Walrand
2000). Hosts serve their flows in turn and keep no queue in the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.network.sharing import Floats, Shares

_STEPS = 40
_CLOSE = 2e-3
_FULL = 1.0 - 1e-6


@dataclass(frozen=True)
class Windows:
    """Per flow class: `packets` of a message, `window` in packets, `round_trip` unloaded, `slowest` packet time.

    Matrices [link class, flow class]: `load` seconds a link is busy with data per packet of the flow; `queues` how
    often the flow or its acknowledgements pass the switch port of that link; `crossed` data only; `waits` seconds an
    acknowledgement waits there when data keep the link always busy.
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

    def rates(self, shares: Shares, copies: Floats) -> Floats:
        """Max-min fair rates under the caps that the windows set at the round trips those rates imply."""
        stalls = np.floor(np.maximum(self.packets - 1e-9, 0.0) / self.window)
        active = copies > 0
        rates = shares.rates(copies)
        if not (stalls[active] > 0).any():
            return rates
        queue = np.zeros(len(self.packet_time))
        on_the_way = np.where(stalls > 0, self.window, self.packets / 2)
        for _ in range(_STEPS):
            busy = self.load @ (rates * copies)
            trip = self.round_trip + queue @ self.queues + np.minimum(busy, 1.0) @ self.waits
            idle = np.maximum(trip - self.window * self.slowest, 0.0)
            caps = self.packets / (self.packets * self.slowest + stalls * idle)
            before, rates = rates, shares.rates(copies, caps)
            change = self._queue_change(rates, copies, trip, on_the_way)
            queue = np.maximum(queue + change, 0.0)
            if np.abs(rates - before)[active].max() <= _CLOSE * rates[active].max():
                break
        return rates

    def _queue_change(self, rates: Floats, copies: Floats, trip: Floats, on_the_way: Floats) -> Floats:
        """Newton steps on the queues: towards what is on the way beyond rate times round trip; away where there is room."""
        busy = self.load @ (rates * copies)
        ports = self.crossed * np.where(busy >= _FULL - _CLOSE, busy, 0.0)[:, None]
        fullest = ports.argmax(axis=0)
        beyond = np.where(ports.max(axis=0) > 0, np.maximum(on_the_way - rates * trip, 0.0), 0.0)
        grown = np.zeros(len(self.packet_time))
        np.add.at(grown, fullest, beyond * self.load[fullest, np.arange(len(fullest))] * copies)
        room = np.maximum(_FULL - _CLOSE - busy, 0.0) * trip[copies > 0].mean()
        return 0.5 * (grown - room)
