"""What an LLM is told of the user's limits and of a Pareto search: the front, its gaps, what is to be proposed."""

from __future__ import annotations

from collections.abc import Sequence

from ccl_search.pareto.front import Point
from ccl_search.pareto.guidance import Gap, Guidance
from ccl_search.proposers.base import ProposalContext
from runs.metric import MetricSpec


def limits_text(context: ProposalContext) -> str:
    """The limits on metrics, for the facts of the run; empty where there are none."""
    if not context.limits:
        return ""
    lines = [f"- {limit.text}" + (f" ({limit.spec.unit})" if limit.spec.unit else "") for limit in context.limits]
    head = "Limits on measured metrics (a trial that breaks one has no score and is no candidate):"
    return "\n".join(["\n", head, *lines])


def goal_text(context: ProposalContext) -> str:
    """What a Pareto search wants, for the facts of the run; empty for other searches."""
    if context.pareto is None:
        return ""
    names = ", ".join(f"{spec.name} ({spec.direction.value})" for spec in context.pareto.axes)
    return (
        f"\n\nThis is a Pareto search over {names}: what counts is the hypervolume of the front of all trials, not the "
        "best score. A config is worth a trial when no trial so far is at least as good in every one of these metrics."
    )


def front_text(context: ProposalContext) -> str:
    """The front so far with its hypervolume and gaps, for what changes from call to call; empty without a front."""
    guidance = context.pareto
    if guidance is None or not guidance.front:
        return ""
    limit = _values(guidance.reference, guidance.axes)
    lines = [
        "",
        "",
        f"Pareto front so far: hypervolume {guidance.hypervolume:.6g} up to {limit}; its members:",
        *(f"- {_point(point, guidance.axes)}" for point in guidance.front),
        *_gap_lines(guidance),
    ]
    return "\n".join(lines)


def task_text(context: ProposalContext) -> str:
    """The task of a Pareto search; empty for other searches and while nothing has succeeded."""
    if context.pareto is None or not context.pareto.front:
        return ""
    return (
        "improve the policy so that its config for this workload and environment is new and adds to the front: fill "
        "the widest gap, extend an end, or beat a member in every metric."
    )


def _gap_lines(guidance: Guidance) -> list[str]:
    if not guidance.gaps:
        return []
    return ["Widest gaps (what a config with the better of each value of both would add):"] + [
        _gap(gap, guidance.axes) for gap in guidance.gaps
    ]


def _gap(gap: Gap, axes: Sequence[MetricSpec]) -> str:
    return f"- between {_point(gap.one, axes)} and {_point(gap.other, axes)}: {gap.gain:.6g}"


def _point(point: Point, axes: Sequence[MetricSpec]) -> str:
    return f"trial {point.trial} ({_values(point.values, axes)})"


def _values(values: Sequence[float], axes: Sequence[MetricSpec]) -> str:
    return ", ".join(f"{spec.name} {value:.6g}" for spec, value in zip(axes, values, strict=True))
