"""The hypervolume of a front: the part of the space it dominates, up to a reference point.

Zitzler and Thiele 1998, "Multiobjective optimization using evolutionary algorithms"; computed by the library moocore
with the algorithms its documentation names. Its unit is the product of the axes' units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccl_search.pareto.front import Point, front, minimised, signs
from runs.metric import MetricSpec

if TYPE_CHECKING:
    from ccl_search.pareto.front import Floats

_BEYOND = 0.1


def hypervolume(rows: Floats, reference: Floats) -> float:
    """The hypervolume of minimised rows `(points, axes)`; points not better than `reference` everywhere add nothing."""
    import moocore  # type: ignore[import-untyped]

    return float(moocore.hypervolume(rows, ref=reference)) if len(rows) else 0.0


def volume(points: Sequence[Point], axes: Sequence[MetricSpec], reference: Sequence[float]) -> float:
    """The hypervolume of points up to `reference`, both in the axes' own units and directions."""
    return hypervolume(minimised(points, axes), turned(reference, axes))


def turned(values: Sequence[float], axes: Sequence[MetricSpec]) -> Floats:
    """Values in the axes' units as one row of minimised values."""
    import numpy as np

    return np.array(values, dtype=np.float64) * signs(axes)


def reference_point(points: Sequence[Point], axes: Sequence[MetricSpec]) -> tuple[float, ...]:
    """A point worse than every one of `points`: the worst value of each axis, and a tenth of the axis's range beyond.

    Where all values of an axis are equal, it lies a tenth of the value (or 1, for a value of 0) beyond.
    """
    found = []
    for place, sign in enumerate(signs(axes)):
        values = [float(sign) * point.values[place] for point in points]
        worst, best = max(values), min(values)
        step = _BEYOND * ((worst - best) or abs(worst)) or 1.0
        found.append(float(sign) * (worst + step))
    return tuple(found)


def history(points: Sequence[Point], axes: Sequence[MetricSpec], reference: Sequence[float]) -> list[float]:
    """The hypervolume after each of `points`, in their order; it never falls."""
    limit = turned(reference, axes)
    found: list[float] = []
    kept: tuple[Point, ...] = ()
    for point in points:
        grown = front((*kept, point), axes)
        if grown != kept or not found:
            kept = grown
            found.append(hypervolume(minimised(kept, axes), limit))
        else:
            found.append(found[-1])
    return found
