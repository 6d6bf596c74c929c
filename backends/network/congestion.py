"""DCQCN (Zhu et al., SIGCOMM 2015) as what it costs a message: one recovery period after the first drastic cut.

A new flow starts at line rate with alpha = 1, so while marks come back its rate is halved every cut interval, which
within tens of microseconds is next to nothing; it sends again when the rate timer first fires after the last cut,
half-way back to the rate before the cuts. Later cuts are mild, because alpha has decayed meanwhile. So a message that
is marked while it still has much to send is late by the rate timer less the queue that drains in its stead.

Whether it is marked follows from the queue: its port marks from `ecn_min` seconds of queue on, with a probability that
grows to `ecn_probability` at `ecn_max` and is 1 beyond (RED). A message within its window is sent in one burst, whose
queue grows by what its hosts send beyond the rate of the port; only marks that return before the burst has left the
host count. A longer message sees the standing queue of the windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.network.parameters import NetworkParameters
from backends.network.sharing import Floats
from backends.network.windows import Windows

_MARKS = 1.0


@dataclass(frozen=True)
class Dcqcn:
    """Marks and stalls per flow class; `hosts` [link class, flow class] are the seconds of the sender's own port."""

    windows: Windows
    hosts: Floats
    parameters: NetworkParameters

    def stalls(self, copies: Floats, queue: Floats) -> Floats:
        """Seconds by which each active class is late because it was cut; 0 where it is not."""
        windows = self.windows
        pace = 1.0 / np.maximum((self.hosts > 0).T @ (self.hosts @ copies), 1e-30)
        on_route = windows.crossed > 0
        growth = np.maximum((on_route * (windows.load @ (pace * copies))[:, None]).max(axis=0) - 1.0, 0.0)
        standing = (on_route * queue[:, None]).max(axis=0)
        late = self._probability(standing) * (windows.packets - windows.window)
        marks = np.where(windows.packets > windows.window, late, self._burst_marks(growth, pace))
        cut = (marks >= _MARKS) & (copies > 0)
        return np.where(cut, self.parameters.rate_timer - self.parameters.ecn_min, 0.0)

    def _probability(self, queue: Floats) -> Floats:
        known = self.parameters
        slope = known.ecn_probability / (known.ecn_max - known.ecn_min)
        rising = np.clip((queue - known.ecn_min) * slope, 0.0, 1.0)
        return np.where(queue >= known.ecn_max, 1.0, rising)

    def _burst_marks(self, growth: Floats, pace: Floats) -> Floats:
        """Marks that a message collects in time: it is sent at `pace`, its queue grows by `growth` seconds a second."""
        known, windows = self.parameters, self.windows
        line = (self.hosts.max(axis=0) * pace).clip(1e-12, 1.0)
        leaves = windows.packets / pace - known.cut_interval * np.log2(1.0 / line) - windows.round_trip
        last = np.maximum(leaves, 0.0) / (1.0 + growth)
        with np.errstate(divide="ignore", invalid="ignore"):
            begin, full = known.ecn_min / growth, known.ecn_max / growth
            rising = np.maximum(np.minimum(last, full) - begin, 0.0) ** 2 / (2 * (full - begin))
        certain = np.maximum(last - full, 0.0)
        return np.where(growth > 0, pace * (known.ecn_probability * rising + certain), 0.0)
