"""Sets of half-open time intervals as integer nanosecond arrays: union, intersection, difference, clipping, length.

A `Spans` is a pair of int64 arrays (starts, ends). *Merged* spans are sorted, disjoint and not touching, and hold no
empty interval; every function here returns merged spans and, unless it says so, needs merged spans.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Spans = tuple[Ints, Ints]


def no_spans() -> Spans:
    """The empty set."""
    empty = np.empty(0, np.int64)
    return empty, empty


def union(starts: Ints, ends: Ints) -> Spans:
    """The merged union of any intervals, in any order; those with `end <= start` hold no time and are ignored."""
    keep = ends > starts
    if not keep.any():
        return no_spans()
    starts, ends = starts[keep], ends[keep]
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.empty(len(starts), bool)
    opens[0] = True
    np.greater(starts[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(starts)) - 1
    return starts[first], reach[last]


def length(spans: Spans) -> int:
    """Total time, in the unit of the input."""
    return int((spans[1] - spans[0]).sum())


def _sweep(a: Spans, b: Spans, wanted: int) -> Spans:
    """Where `1·[in a] + 2·[in b]` equals `wanted`."""
    points = np.concatenate([a[0], a[1], b[0], b[1]])
    change = np.concatenate([_deltas(a, 1), _deltas(b, 2)])
    order = np.argsort(points, kind="stable")
    points, level = points[order], np.cumsum(change[order])
    hits = np.flatnonzero((level[:-1] == wanted) & (points[1:] > points[:-1]))
    return union(points[hits], points[hits + 1])


def _deltas(spans: Spans, weight: int) -> Ints:
    count = len(spans[0])
    return np.repeat(np.array([weight, -weight], np.int64), count)


def intersect(a: Spans, b: Spans) -> Spans:
    """Time in both."""
    return _sweep(a, b, 3) if len(a[0]) and len(b[0]) else no_spans()


def subtract(a: Spans, b: Spans) -> Spans:
    """Time in `a` that is not in `b`."""
    if not len(a[0]) or not len(b[0]):
        return a
    return _sweep(a, b, 1)


def clip(spans: Spans, start: int, end: int) -> Spans:
    """The part inside `[start, end)`; linear only in the spans that touch the window."""
    first = int(np.searchsorted(spans[1], start, "right"))
    last = int(np.searchsorted(spans[0], end, "left"))
    if first >= last:
        return no_spans()
    return np.maximum(spans[0][first:last], start), np.minimum(spans[1][first:last], end)
