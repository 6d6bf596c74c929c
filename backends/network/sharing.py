"""Max-min fair rates: every flow as fast as it can be without slowing one that is no faster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_TOLERANCE = 1e-9


class Shares:
    """Links of capacity 1 and flows that use them: entry e = flow `flow[e]` takes `cost[e]` of `link[e]` per unit rate.

    Entries of `background` (acknowledgements) take capacity too, but a full link does not hold back a flow that only
    has background on it. Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).
    """

    def __init__(
        self, flow: Integers, link: Integers, cost: Floats, background: npt.NDArray[np.bool_], flows: int, links: int
    ) -> None:
        self._flow, self._link, self._cost = flow, link, cost
        self._data_flow, self._data_link = flow[~background], link[~background]
        self._flows, self._links = flows, links

    def rates(self, copies: Floats, caps: Floats | None = None) -> Floats:
        """Rate of one copy of each flow when `copies` of it are active; 0 for those without; `caps` bounds each."""
        rate = np.zeros(self._flows)
        filling = copies > 0
        weight = self._cost * copies[self._flow]
        while filling.any():
            load = np.bincount(self._link, weight * filling[self._flow], self._links)
            used = np.bincount(self._link, weight * rate[self._flow], self._links)
            with np.errstate(divide="ignore", invalid="ignore"):
                level = np.where(load > 0, np.maximum(1.0 - used, 0.0) / load, np.inf)
            lowest = float(level.min(initial=np.inf))
            full = level <= lowest * (1 + _TOLERANCE)
            stopped = np.zeros(self._flows, dtype=bool)
            stopped[self._data_flow[full[self._data_link]]] = True
            stopped &= filling
            if caps is not None and (bound := filling & (caps <= lowest)).any():
                rate[bound] = caps[bound]  # the level only rises from here, so all of them stay at their caps
                filling &= ~bound
                continue
            if not stopped.any():
                stopped[self._flow[full[self._link]]] = True
                stopped &= filling
            rate[stopped] = lowest
            filling &= ~stopped
        return rate

    def load(self, rate: Floats) -> Floats:
        """How full each link is when the flows have these total rates."""
        return np.bincount(self._link, self._cost * rate[self._flow], self._links).astype(np.float64)
