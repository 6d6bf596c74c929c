"""What a proposer is told of a Pareto search: the front so far, its hypervolume, and where it has gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ccl_search.pareto.front import Point, front, minimised
from ccl_search.pareto.volume import hypervolume, reference_point, turned
from runs.metric import MetricSpec

if TYPE_CHECKING:
    from ccl_search.pareto.front import Floats

_MOST_GAPS = 3
_MOST_PAIRS = 60


@dataclass(frozen=True)
class Gap:
    """Two neighbours on the front, and the hypervolume that a point with the better of each of their values adds."""

    one: Point
    other: Point
    gain: float


@dataclass(frozen=True)
class Guidance:
    """The state of a Pareto search. `reference` and all values are in the units of `axes`."""

    axes: tuple[MetricSpec, ...]
    front: tuple[Point, ...]
    reference: tuple[float, ...]
    hypervolume: float
    gaps: tuple[Gap, ...]


def guidance(points: Sequence[Point], axes: Sequence[MetricSpec]) -> Guidance:
    """The front over `points`, with its largest gaps, widest first. Without points there is only the list of axes."""
    if not points:
        return Guidance(tuple(axes), (), (), 0.0, ())
    reference = reference_point(points, axes)
    members = front(points, axes)
    limit = turned(reference, axes)
    reached = hypervolume(minimised(members, axes), limit)
    return Guidance(tuple(axes), members, reference, reached, _gaps(members, axes, limit, reached))


def _gaps(members: Sequence[Point], axes: Sequence[MetricSpec], limit: Floats, reached: float) -> tuple[Gap, ...]:
    import numpy as np

    rows = minimised(members, axes)
    found = []
    for one, other in _neighbours(rows):
        corner = np.minimum(rows[one], rows[other])
        gain = hypervolume(np.vstack([rows, corner]), limit) - reached
        if gain > 0:
            found.append(Gap(members[one], members[other], gain))
    return tuple(sorted(found, key=lambda gap: -gap.gain)[:_MOST_GAPS])


def _neighbours(rows: Floats) -> Iterable[tuple[int, int]]:
    """Pairs of rows that follow each other on some axis, each pair once."""
    pairs: dict[tuple[int, int], None] = {}
    for axis in range(rows.shape[1]):
        order = [int(row) for row in rows[:, axis].argsort(kind="stable")]
        pairs |= {(min(pair), max(pair)): None for pair in pairwise(order)}
    return list(pairs)[:_MOST_PAIRS]
