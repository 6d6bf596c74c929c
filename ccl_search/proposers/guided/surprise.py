"""How far estimates are off, and how sure that is: a Gaussian process over the log ratio of measured to estimated.

Configs are near each other when few knobs differ and counts differ by few doublings; a switch (schedule, recomputation,
compilation) moves a config less far than a doubled degree does. The covariance of two errors is
`s2 * exp(-d / reach)` plus a share all have in common (Rasmussen and Williams 2006, chapter 2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runs.space import ConfigSpace, Knob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_SPREAD = 0.30
_COMMON = 0.15
_NOISE = 0.01
_REACH = 3.0
_DOUBLING = 0.7
_SWITCH = 0.25
_NUMBERED = ("topology",)
"""Knobs whose numbers are names: another server topology is as far as a doubling, whichever it is."""


@dataclass(frozen=True)
class Surprise:
    """The error expected at each config, as natural logarithm, and its standard deviation."""

    mean: Floats
    deviation: Floats


def coordinates(configs: Sequence[Mapping[str, Any]], space: ConfigSpace) -> Floats:
    """Rows whose city-block distance is the distance of configs: `(len(configs), coordinates)`."""
    import numpy as np

    width = sum(len(_coordinates(knob, knob.choices[0])) for knob in space.knobs)
    rows = [[value for knob in space.knobs for value in _coordinates(knob, config.get(knob.key))] for config in configs]
    return np.array(rows, dtype=np.float64).reshape(len(configs), width)


def regress(where: Floats, tried: Floats, errors: Sequence[float]) -> Surprise:
    """The posterior at the rows of `where`, given `errors` at the rows of `tried`."""
    import numpy as np

    if not len(errors):
        prior = math.sqrt(_SPREAD**2 + _COMMON**2)
        return Surprise(np.zeros(len(where)), np.full(len(where), prior))
    inside = _covariance(tried, tried) + _NOISE**2 * np.eye(len(errors))
    across = _covariance(where, tried)
    solved = np.linalg.solve(inside, across.T)
    variance = _SPREAD**2 + _COMMON**2 - np.einsum("ij,ji->i", across, solved)
    return Surprise(solved.T @ np.array(errors), np.sqrt(np.maximum(variance, 0.0)))


def _covariance(one: Floats, other: Floats) -> Floats:
    import numpy as np

    distance = np.abs(one[:, None, :] - other[None, :, :]).sum(axis=2)
    found: Floats = _SPREAD**2 * np.exp(-distance / _REACH) + _COMMON**2
    return found


def _coordinates(knob: Knob, value: Any) -> list[float]:
    if knob.key in _NUMBERED:
        return [_DOUBLING / 2 * (choice == value) for choice in knob.choices]
    if knob.type == "int" and type(value) is int and value > 0:
        return [_DOUBLING * math.log2(value)]
    if knob.type == "int":
        return [0.0]
    return [_SWITCH / 2 * (choice == value) for choice in knob.choices]
