"""Interval sets against a model that marks every instant."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics import intervals
from metrics.intervals import Spans

raw = st.lists(st.tuples(st.integers(-20, 60), st.integers(-3, 25)), max_size=12)


def arrays(pairs: list[tuple[int, int]]) -> Spans:
    return np.array([s for s, _ in pairs], np.int64), np.array([s + d for s, d in pairs], np.int64)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for start, duration in pairs for t in range(start, start + duration)}


def covered(spans: Spans) -> set[int]:
    return {t for s, e in zip(spans[0].tolist(), spans[1].tolist(), strict=True) for t in range(s, e)}


def check_merged(spans: Spans) -> None:
    assert (spans[1] > spans[0]).all()
    assert (spans[0][1:] > spans[1][:-1]).all()


@given(raw)
def test_union_covers_what_any_interval_covers(pairs: list[tuple[int, int]]) -> None:
    found = intervals.union(*arrays(pairs))
    check_merged(found)
    assert covered(found) == instants(pairs)
    assert intervals.length(found) == len(instants(pairs))


@given(raw, raw)
def test_intersection_and_difference(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    one, other = intervals.union(*arrays(a)), intervals.union(*arrays(b))
    both, only = intervals.intersect(one, other), intervals.subtract(one, other)
    check_merged(both)
    check_merged(only)
    assert covered(both) == instants(a) & instants(b)
    assert covered(only) == instants(a) - instants(b)


@given(raw, st.integers(-25, 70), st.integers(0, 60))
def test_clip(pairs: list[tuple[int, int]], start: int, width: int) -> None:
    found = intervals.clip(intervals.union(*arrays(pairs)), start, start + width)
    assert covered(found) == instants(pairs) & set(range(start, start + width))


@given(raw, st.integers(-(10**15), 10**15))
def test_shift_moves_and_changes_nothing_else(pairs: list[tuple[int, int]], by: int) -> None:
    here, there = intervals.union(*arrays(pairs)), intervals.union(*arrays([(s + by, d) for s, d in pairs]))
    assert (here[0] + by).tolist() == there[0].tolist()
    assert (here[1] + by).tolist() == there[1].tolist()
