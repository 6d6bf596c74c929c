"""Hypervolume against an exact oracle (unit cells counted one by one), its reference point, its history."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccl_search.pareto.front import Point, front
from ccl_search.pareto.volume import history, reference_point, volume
from runs.metric import Direction, MetricSpec
from tests.timing import cpu_seconds

LIMIT = 6


def axes(dimensions: int, *maximised: int) -> tuple[MetricSpec, ...]:
    ways = [Direction.MAXIMIZE if place in maximised else Direction.MINIMIZE for place in range(dimensions)]
    return tuple(MetricSpec(f"m{place}", "1", "u", way) for place, way in enumerate(ways))


def points(rows: list[tuple[int, ...]]) -> list[Point]:
    return [Point(number, tuple(map(float, row))) for number, row in enumerate(rows)]


def cells(rows: list[tuple[int, ...]], dimensions: int) -> int:
    """How many unit cells of the box below LIMIT some integer point dominates: the hypervolume by counting."""
    return sum(
        any(all(value <= place for value, place in zip(row, cell, strict=True)) for row in rows)
        for cell in itertools.product(range(LIMIT), repeat=dimensions)
    )


@given(st.data(), st.integers(2, 4))
@settings(max_examples=60, deadline=None)
def test_it_is_the_number_of_dominated_cells(data: st.DataObject, dimensions: int) -> None:
    row = st.tuples(*[st.integers(0, LIMIT + 1)] * dimensions)
    rows = data.draw(st.lists(row, max_size=6))

    found = volume(points(rows), axes(dimensions), [float(LIMIT)] * dimensions)

    assert found == pytest.approx(cells(rows, dimensions))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_maximised_axis_counts_the_same_cells(rows: list[tuple[int, int]]) -> None:
    turned = [(-a, b) for a, b in rows]

    found = volume(points(turned), axes(2, 0), [float(-LIMIT), float(LIMIT)])

    assert found == pytest.approx(cells(list(rows), 2))


def test_two_points_by_hand() -> None:
    assert volume(points([(1, 3), (2, 1)]), axes(2), [4.0, 4.0]) == pytest.approx(3 * 1 + 2 * 2)


def test_points_not_better_than_the_reference_add_nothing() -> None:
    assert volume(points([(4, 1), (5, 0)]), axes(2), [4.0, 4.0]) == 0.0


def test_the_reference_lies_a_tenth_of_the_range_beyond_the_worst() -> None:
    assert reference_point(points([(1, 10), (3, 30)]), axes(2, 1)) == pytest.approx((3.2, 8.0))


def test_the_reference_of_a_single_point_is_worse_than_it() -> None:
    assert reference_point(points([(10, 10)]), axes(2, 1)) == pytest.approx((11.0, 9.0))
    assert reference_point(points([(0, 0)]), axes(2, 1)) == pytest.approx((1.0, -1.0))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=10))
@settings(max_examples=60, deadline=None)
def test_history_is_the_volume_of_every_beginning_and_never_falls(rows: list[tuple[int, int]]) -> None:
    given_points, limit = points(list(rows)), (10.0, 10.0)

    found = history(given_points, axes(2), limit)

    assert found == pytest.approx([volume(given_points[: end + 1], axes(2), limit) for end in range(len(given_points))])
    assert found == sorted(found)


@pytest.mark.parametrize(("count", "dimensions"), [(10_000, 2), (10_000, 3), (1_000, 4)])
def test_front_and_volume_of_large_sets_take_less_than_a_second(count: int, dimensions: int) -> None:
    cloud = np.abs(np.random.default_rng(count).normal(size=(count, dimensions)))
    sphere = 1 - cloud / np.linalg.norm(cloud, axis=1)[:, None]
    given_points = [Point(number, tuple(row)) for number, row in enumerate(sphere.tolist())]

    members = front(given_points, axes(dimensions))
    found = volume(members, axes(dimensions), [1.1] * dimensions)
    spent = cpu_seconds(lambda: volume(front(given_points, axes(dimensions)), axes(dimensions), [1.1] * dimensions))

    assert spent < 1.0
    assert len(members) == count
    assert 0 < found < 1.1**dimensions
