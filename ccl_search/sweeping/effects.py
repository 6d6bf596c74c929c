"""What each knob does to a score over the configs of a sweep: mean, best and worst of each choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from runs.metric import Direction


@dataclass(frozen=True)
class Level:
    """One choice of a knob: how many configs have it, the mean of their values, the best and the worst."""

    choice: Any
    count: int
    mean: float
    best: float
    worst: float


@dataclass(frozen=True)
class Effect:
    """A knob's main effect. `spread`: the highest mean of a choice over the lowest, 1 for no effect, never below.

    `levels` from the best mean to the worst. In a grid cut by constraints choices of one knob go with choices of
    others, so a mean tells what goes along with a choice, not what it causes.
    """

    knob: str
    spread: float
    levels: tuple[Level, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        levels = [{name: getattr(level, name) for name in Level.__dataclass_fields__} for level in self.levels]
        return {"knob": self.knob, "spread": self.spread, "levels": levels}


def main_effects(rows: Sequence[tuple[Mapping[str, Any], float]], direction: Direction) -> list[Effect]:
    """The effects of all knobs that vary in `rows` (config, value), the largest first.

    A value is a metric in its unit; `direction` says which way it improves.
    """
    keys = list(dict.fromkeys(key for config, _ in rows for key in config))
    found = [_effect(key, rows, direction) for key in keys]
    return sorted((each for each in found if len(each.levels) > 1), key=lambda each: (-each.spread, each.knob))


def _effect(key: str, rows: Sequence[tuple[Mapping[str, Any], float]], direction: Direction) -> Effect:
    by_choice: dict[tuple[str, Any], list[float]] = {}
    for config, value in rows:
        if key in config:
            by_choice.setdefault((type(config[key]).__name__, config[key]), []).append(value)
    best, worst = (min, max) if direction is Direction.MINIMIZE else (max, min)
    levels = [
        Level(choice, len(values), fmean(values), best(values), worst(values))
        for (_, choice), values in by_choice.items()
    ]
    levels.sort(key=lambda level: level.mean, reverse=direction is Direction.MAXIMIZE)
    means = [level.mean for level in levels]
    lowest = min(means)
    return Effect(key, max(means) / lowest if lowest > 0 else 1.0, tuple(levels))
