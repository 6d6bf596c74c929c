"""Which ranks are looked at where not all are: the first, the last, and others evenly between."""

from __future__ import annotations

from collections.abc import Iterable


def sampled_ranks(ranks: Iterable[int], count: int) -> list[int]:
    """`count` of the ranks in their order (all where there are no more), the first and the last among them."""
    ordered = sorted(set(ranks))
    if count >= len(ordered):
        return ordered
    if count == 1:
        return ordered[:1]
    return [ordered[round(index * (len(ordered) - 1) / (count - 1))] for index in range(count)]
