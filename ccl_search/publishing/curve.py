"""The search curve: score and best score so far by trial, as a table for the README and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 320, 80, 30, 40


@dataclass(frozen=True)
class CurvePoint:
    """A trial of the curve: its number, its score (None: it has none), and the best score up to it."""

    trial: int
    score: float | None
    best: float | None


def points(scores: Sequence[tuple[int, float | None]]) -> list[CurvePoint]:
    """The curve of trials given by number and score, in order."""
    best: float | None = None
    found = []
    for trial, score in scores:
        if score is not None and (best is None or score > best):
            best = score
        found.append(CurvePoint(trial, score, best))
    return found


def svg(curve: Sequence[CurvePoint], objective: str) -> str:
    """A picture: every scored trial as a dot, the best so far as a line. The same curve gives the same text."""
    scored = [point for point in curve if point.score is not None]
    values = [point.score for point in scored if point.score is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    last = max((point.trial for point in curve), default=0)
    plot = _Plot(low, high, last)
    dots = "".join(
        f'<circle cx="{plot.x(p.trial)}" cy="{plot.y(p.score)}" r="4" fill="#4878a8"/>\n'
        for p in scored
        if p.score is not None
    )
    steps = " ".join(f"{plot.x(p.trial)},{plot.y(p.best)}" for p in curve if p.best is not None)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{_LEFT}" y="18">score by trial: {escape(objective)} (higher is better)</text>\n'
        f'<text x="4" y="{plot.y(high)}">{high:.6g}</text>\n<text x="4" y="{plot.y(low)}">{low:.6g}</text>\n'
        f'<text x="{plot.x(0)}" y="{_HEIGHT - 12}">0</text>\n'
        f'<text x="{plot.x(last)}" y="{_HEIGHT - 12}" text-anchor="end">{last}</text>\n'
        f'<polyline points="{steps}" fill="none" stroke="#c04828" stroke-width="2"/>\n{dots}</svg>\n'
    )


@dataclass(frozen=True)
class _Plot:
    low: float
    high: float
    last: int

    def x(self, trial: int) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 20) * trial / max(1, self.last), 1)

    def y(self, value: float | None) -> float:
        span = self.high - self.low or 1.0
        share = ((value or 0.0) - self.low) / span
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP), 1)
