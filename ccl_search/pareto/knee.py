"""The knee: the member of a front where giving up a little of one metric stops buying much of another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ccl_search.pareto.front import Point, minimised
from runs.metric import MetricSpec

_FLAT = 1e-9


def knee(front: Sequence[Point], axes: Sequence[MetricSpec]) -> Point | None:
    """The member farthest inside the plane through the ends of the normalised front; the earliest trial of equals.

    Every axis is scaled so that the front's best value is 0 and its worst 1; the plane is `sum(x) = 1`, for two axes
    the line between the front's ends (Das 1999, "On characterizing the knee of the Pareto curve based on
    normal-boundary intersection"). None for a front that nowhere bulges inwards; a single point is its own knee.
    """
    if not front:
        return None
    rows = minimised(front, axes)
    low, span = rows.min(axis=0), rows.max(axis=0) - rows.min(axis=0)
    if not span.any():
        return min(front, key=lambda point: point.trial)
    scaled = (rows - low) / [width or 1.0 for width in span]
    depth = (1.0 - scaled.sum(axis=1)) / math.sqrt(len(axes))
    best = depth.max()
    if best <= _FLAT:
        return None
    return min((p for p, d in zip(front, depth, strict=True) if d >= best - _FLAT), key=lambda point: point.trial)
