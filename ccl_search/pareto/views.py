"""The front as a running search sees it: over what proposers are told of trials."""

from __future__ import annotations

from collections.abc import Sequence

from ccl_search.pareto.front import Point, front
from ccl_search.pareto.guidance import Guidance, guidance
from ccl_search.proposers.base import TrialView
from runs.metric import MetricSpec
from runs.objective import Objective
from runs.trial import TrialState


def guidance_of(history: Sequence[TrialView], objective: Objective) -> Guidance:
    """What the proposer of a Pareto search is told."""
    axes = axes_of(objective)
    points = [point_of(view, axes) for view in history]
    return guidance([point for point in points if point is not None], axes)


def growth(history: Sequence[TrialView], objective: Objective) -> list[float | None]:
    """For each trial how many trials up to it have added something to the front; None for one without a result.

    Whoever counts improvements sees one exactly where a trial is neither dominated by nor equal to an earlier one.
    """
    axes, count = axes_of(objective), 0
    members: tuple[Point, ...] = ()
    found: list[float | None] = []
    for view in history:
        point = point_of(view, axes)
        if point is not None:
            new = all(point.values != member.values for member in members)
            members = front((*members, point), axes)
            count += new and point in members
        found.append(None if point is None else float(count))
    return found


def axes_of(objective: Objective) -> tuple[MetricSpec, ...]:
    """The metrics of an objective."""
    return tuple(term.spec for term in objective.terms)


def point_of(view: TrialView, axes: Sequence[MetricSpec]) -> Point | None:
    """A trial's place; None when it did not succeed, breaks a limit, or lacks a metric."""
    if view.state is not TrialState.SUCCEEDED or view.violations:
        return None
    values = [view.metrics.get(spec.name) for spec in axes]
    known = tuple(value for value in values if value is not None)
    return Point(view.number, known) if len(known) == len(values) else None
