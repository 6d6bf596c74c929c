"""Choosing for a Pareto search: the candidate that promises to add most hypervolume to the front."""

from __future__ import annotations

from collections.abc import Sequence

from ccl_search.pareto.front import Point, minimised, on_front
from ccl_search.pareto.guidance import Guidance
from ccl_search.pareto.volume import hypervolume, reference_point, turned
from ccl_search.proposers.guided.expecting import Expectation


def gains(expectations: Sequence[Expectation], guidance: Guidance) -> list[float]:
    """The hypervolume each expectation would add to the front if it came true; 0 for one that another one beats.

    The reference point is worse than everything on the front and everything that may come onto it, so that ends of
    the front nobody has tried yet count too.
    """
    import numpy as np

    hoped = [Point(place, found.metrics) for place, found in enumerate(expectations)]
    rows = minimised(hoped, guidance.axes)
    promising = [place for place, stays in enumerate(on_front(rows)) if stays]
    reference = reference_point([*guidance.front, *(hoped[place] for place in promising)], guidance.axes)
    limit, known = turned(reference, guidance.axes), minimised(guidance.front, guidance.axes)
    reached = hypervolume(known, limit)
    found = [0.0] * len(expectations)
    for place in promising:
        found[place] = hypervolume(np.vstack([known, rows[place]]), limit) - reached
    return found
