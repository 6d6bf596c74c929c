"""The control laws of a sender, acknowledgement by acknowledgement: HPCC and DCQCN.

HPCC (Li et al., SIGCOMM 2019): every acknowledgement brings each hop's time, bytes sent and queue; the fullest hop's
utilisation, averaged over the base round trip, divides the rate, so that the path runs at 95 %; the reference rate
moves once a round trip. DCQCN (Zhu et al., SIGCOMM 2015): a marked acknowledgement cuts the rate by alpha / 2, at most
once a cut interval; a timer brings it half-way back.
"""

from __future__ import annotations

from math import inf

from backends.network.parameters import NetworkParameters

Telemetry = tuple[float, float, float, float]
"""Of one hop: seconds, bytes the port has sent, bytes that wait, bytes/s of the port."""


class Hpcc:
    """Rate of one sender under HPCC, bytes/s."""

    __slots__ = ("_hops", "_line", "_load", "_lowest", "_reference", "_step", "_target", "_trip", "_until", "_window",
                 "rate")  # fmt: skip

    def __init__(self, line: float, window: float, trip: float, known: NetworkParameters) -> None:
        self.rate = self._line = self._reference = line
        self._window, self._trip, self._load = window, trip, 1.0
        self._target, self._step, self._lowest = known.target_load, known.rate_step, known.lowest_rate
        self._until = 0
        self._hops: list[Telemetry] = []

    def acknowledged(self, packet: int, sent: int, hops: list[Telemetry]) -> None:
        """Packet number `packet` (from 1) is acknowledged, `sent` have left so far."""
        if not self._until:
            self._until, self._hops = sent, hops
            return
        self._measure(hops)
        share = self._load / self._target
        self.rate = min(max(self._reference / share + self._step, self._lowest), self._line)
        if packet > self._until:
            self._reference, self._until = self.rate, max(self._until, sent)

    def _measure(self, hops: list[Telemetry]) -> None:
        fullest, span = 0.0, 0.0
        for (when, sent, queue, port), (before, had, waited, _) in zip(hops, self._hops, strict=True):
            passed = max(when - before, 1e-9)
            load = (sent - had) / passed / port + min(queue, waited) * self._line / port / self._window
            if load > fullest:
                fullest, span = load, passed
        self._hops = hops
        part = min(span / self._trip, 1.0)
        self._load = self._load * (1.0 - part) + fullest * part


class Dcqcn:
    """Rate of one sender under DCQCN, bytes/s."""

    __slots__ = (
        "_alpha",
        "_alpha_at",
        "_cut_at",
        "_known",
        "_line",
        "_marked",
        "_marked_alpha",
        "_rise_at",
        "_since",
        "_stage",
        "_target",
        "rate",
    )  # fmt: skip

    def __init__(self, line: float, known: NetworkParameters) -> None:
        self.rate = self._line = self._target = line
        self._known = known
        self._alpha, self._stage = 1.0, 0
        self._marked = self._marked_alpha = False
        self._alpha_at = self._cut_at = self._rise_at = inf

    @property
    def timer(self) -> float:
        """When the rate next changes by itself; inf while there was no mark."""
        return min(self._cut_at, self._rise_at)

    def marked(self, now: float) -> None:
        """A marked acknowledgement came."""
        self._marked = self._marked_alpha = True
        if self._cut_at == inf:
            self._marked_alpha = False
            self._alpha_at = now + self._known.alpha_interval
            self._cut_at = now + self._known.cut_interval
            self._target = self.rate

    def tick(self, now: float) -> None:
        """Let every timer up to `now` fire."""
        while self.timer <= now:
            self._weigh(min(self.timer, now))
            if self._cut_at <= self._rise_at:
                self._cut()
            else:
                self._rise()

    def _weigh(self, now: float) -> None:
        gain, interval = self._known.alpha_gain, self._known.alpha_interval
        if self._alpha_at <= now:
            times = int((now - self._alpha_at) / interval + 1e-9) + 1
            marked = gain if self._marked_alpha else 0.0
            self._alpha = (1.0 - gain) ** (times - 1) * ((1.0 - gain) * self._alpha + marked)
            self._marked_alpha = False
            self._alpha_at += times * interval

    def _cut(self) -> None:
        if self._marked:
            if self._stage:
                self._target = self.rate
            self.rate = max(self.rate * (1.0 - self._alpha / 2.0), self._known.lowest_rate)
            self._stage, self._marked = 0, False
            self._rise_at = self._cut_at + self._known.rate_timer
        self._cut_at += self._known.cut_interval

    def _rise(self) -> None:
        if self._stage:
            step = self._known.rate_step * (1 if self._stage == 1 else 2)
            self._target = min(self._target + step, self._line)
        self.rate = (self.rate + self._target) / 2.0
        self._stage += 1
        self._rise_at += self._known.rate_timer
