"""The knee by hand: where a front bulges, and where it does not."""

from __future__ import annotations

import pytest

from ccl_search.pareto.front import Point
from ccl_search.pareto.knee import knee
from runs.metric import Direction, MetricSpec

DOWN = MetricSpec("a", "1", "s", Direction.MINIMIZE)
UP = MetricSpec("b", "1", "s", Direction.MAXIMIZE)


def knee_of(rows: list[tuple[float, ...]], *axes: MetricSpec) -> int | None:
    found = knee([Point(number, row) for number, row in enumerate(rows)], axes or (DOWN,) * len(rows[0]))
    return found.trial if found else None


def test_the_point_farthest_inside_the_line_of_the_ends() -> None:
    assert knee_of([(0, 10), (1, 2), (3, 1), (10, 0)]) == 1


def test_scales_do_not_matter() -> None:
    assert knee_of([(0, 10_000), (0.1, 2_000), (0.3, 1_000), (1, 0)]) == 1


def test_maximised_axes_are_turned_round() -> None:
    assert knee_of([(0, 0), (1, 8), (3, 9), (10, 10)], DOWN, UP) == 1


@pytest.mark.parametrize("rows", [[(0, 1), (1, 0)], [(0, 2), (1, 1), (2, 0)], [(0, 4), (3, 3), (4, 0)]])
def test_a_front_that_does_not_bulge_has_none(rows: list[tuple[float, ...]]) -> None:
    assert knee_of(rows) is None


def test_a_single_point_is_its_own_and_an_empty_front_has_none() -> None:
    assert knee_of([(3, 4)]) == 0
    assert knee([], (DOWN, DOWN)) is None


def test_three_axes() -> None:
    assert knee_of([(0, 1, 1), (1, 0, 1), (1, 1, 0), (0.2, 0.2, 0.2)]) == 3


def test_the_earlier_trial_of_equals() -> None:
    assert knee_of([(0, 10), (10, 0), (1, 1), (1, 1)]) == 2
