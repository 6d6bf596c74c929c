"""Which points are on the front, and the one form in which points are compared: every axis minimised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MIN_AXES, MAX_AXES = 2, 4


@dataclass(frozen=True)
class Point:
    """A trial's values on the axes, each in the unit of its metric."""

    trial: int
    values: tuple[float, ...]


def check_axes(axes: Sequence[MetricSpec]) -> None:
    """Check that a front over these metrics means something.

    Raises:
        BadInputError: fewer than 2 or more than 4 axes, or one of them twice.
    """
    names = [spec.name for spec in axes]
    if not MIN_AXES <= len(names) <= MAX_AXES:
        raise BadInputError(
            f"a Pareto front needs {MIN_AXES} to {MAX_AXES} metrics, got {len(names)}: {', '.join(names) or 'none'}",
            "for example --objective step_time --objective num_xpus; `pareto` takes --x step_time --y num_xpus",
        )
    if len(set(names)) != len(names):
        raise BadInputError(f"a metric is an axis twice: {', '.join(names)}", "name each metric once")


def minimised(points: Sequence[Point], axes: Sequence[MetricSpec]) -> Floats:
    """Rows `(points, axes)` in which lower is better everywhere: maximised metrics change their sign.

    Raises:
        ValueError: a value is not finite.
    """
    import numpy as np

    rows = np.array([point.values for point in points], dtype=np.float64).reshape(len(points), len(axes))
    if not np.isfinite(rows).all():
        raise ValueError("a point of a front must be finite")
    return rows * signs(axes)


def signs(axes: Sequence[MetricSpec]) -> Floats:
    """1 for every minimised axis, -1 for every maximised one."""
    import numpy as np

    return np.array([-1.0 if spec.direction is Direction.MAXIMIZE else 1.0 for spec in axes])


def front(points: Sequence[Point], axes: Sequence[MetricSpec]) -> tuple[Point, ...]:
    """The points no other point dominates, by their values (best first on the first axis), then by trial.

    A point dominates another when it is at least as good on every axis and better on one; equal points do not
    dominate each other, so that all of them stay.
    """
    if not points:
        return ()
    rows = minimised(points, axes)
    kept = [(tuple(row), point) for row, point, stays in zip(rows, points, on_front(rows), strict=True) if stays]
    return tuple(point for _, point in sorted(kept, key=lambda pair: (pair[0], pair[1].trial)))


def on_front(rows: Floats) -> NDArray[np.bool_]:
    """For every row of minimised values, whether no other row dominates it."""
    import moocore  # type: ignore[import-untyped]

    found: NDArray[np.bool_] = moocore.is_nondominated(rows, keep_weakly=True)
    return found
