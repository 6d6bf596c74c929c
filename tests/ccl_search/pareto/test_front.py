"""The exact front against its definition, point by point; ties, maximised metrics, bad axes, speed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccl_search.pareto.front import Point, check_axes, front, minimised
from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec
from tests.timing import cpu_seconds

Rows = list[tuple[float, ...]]


def axes(*directions: Direction) -> tuple[MetricSpec, ...]:
    return tuple(MetricSpec(f"m{place}", "1", "u", direction) for place, direction in enumerate(directions))


def points(rows: Sequence[Sequence[float]]) -> list[Point]:
    return [Point(number, tuple(map(float, row))) for number, row in enumerate(rows)]


def dominates(one: Sequence[float], other: Sequence[float], directions: Sequence[Direction]) -> bool:
    """The definition: nowhere worse and somewhere better."""
    better = [a < b if d is Direction.MINIMIZE else a > b for a, b, d in zip(one, other, directions, strict=True)]
    worse = [a > b if d is Direction.MINIMIZE else a < b for a, b, d in zip(one, other, directions, strict=True)]
    return any(better) and not any(worse)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[Direction, ...], Rows]:
    directions = tuple(draw(st.lists(st.sampled_from(Direction), min_size=2, max_size=4)))
    row = st.tuples(*[st.integers(-3, 3).map(float) for _ in directions])
    return directions, draw(st.lists(row, max_size=14))


@given(cases())
@settings(max_examples=80, deadline=None)
def test_the_front_is_what_no_other_point_dominates(case: tuple[tuple[Direction, ...], Rows]) -> None:
    directions, rows = case
    wanted = {number for number, row in enumerate(rows) if not any(dominates(other, row, directions) for other in rows)}

    assert {point.trial for point in front(points(rows), axes(*directions))} == wanted


def test_equal_points_all_stay() -> None:
    found = front(points([(1, 2), (1, 2), (2, 1), (2, 2)]), axes(Direction.MINIMIZE, Direction.MINIMIZE))

    assert [point.trial for point in found] == [0, 1, 2]


def test_a_point_that_is_equal_on_one_axis_and_worse_on_the_other_goes() -> None:
    found = front(points([(1, 5), (1, 6)]), axes(Direction.MINIMIZE, Direction.MINIMIZE))

    assert [point.trial for point in found] == [0]


def test_maximised_metrics_are_turned_round_and_keep_their_values() -> None:
    found = front(points([(10, 1), (20, 2), (15, 3)]), axes(Direction.MAXIMIZE, Direction.MINIMIZE))

    assert [point.values for point in found] == [(20.0, 2.0), (10.0, 1.0)]


def test_values_that_are_not_finite_are_no_points() -> None:
    with pytest.raises(ValueError, match="finite"):
        minimised(points([(1, float("nan"))]), axes(Direction.MINIMIZE, Direction.MINIMIZE))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_front_has_two_to_four_axes(count: int) -> None:
    with pytest.raises(BadInputError, match=f"2 to 4 metrics, got {count}"):
        check_axes(axes(*[Direction.MINIMIZE] * count))


def test_an_axis_stands_once() -> None:
    with pytest.raises(BadInputError, match="twice: m0, m0"):
        check_axes(axes(Direction.MINIMIZE) * 2)


@pytest.mark.parametrize(("count", "dimensions"), [(10_000, 2), (10_000, 3), (1_000, 4)])
def test_large_fronts_take_less_than_a_second(count: int, dimensions: int) -> None:
    cloud = np.random.default_rng(count).random((count, dimensions))
    sphere = 1 - cloud / np.linalg.norm(cloud, axis=1)[:, None]
    for rows in (cloud, sphere):
        given_points = points(rows.tolist())
        assert cpu_seconds(lambda: front(given_points, axes(*[Direction.MINIMIZE] * dimensions))) < 1.0  # noqa: B023
        assert front(given_points, axes(*[Direction.MINIMIZE] * dimensions))
