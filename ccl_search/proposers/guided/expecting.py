"""What is expected of an untried config: its step, the metrics that follow from it, and the score they would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ccl_search.proposers.base import ProposalContext, TrialView
from ccl_search.proposers.guided.envelope import Envelope
from runs.metric import Direction, MetricSpec
from runs.objective import Objective, Term
from runs.space import Config

if TYPE_CHECKING:
    from ccl_search.constraints import Limit

_STEP_METRICS = ("avg_step_time", "step_time_p50", "step_time_p95")
_LIMIT_ERROR = 0.2
_OF_POLICIES = ("portability",)
_PER_DEVICE = ("tokens_per_s_per_xpu", "mfu")


@dataclass(frozen=True)
class Candidate:
    """A valid config with its raw estimate and its place among configs."""

    config: Config
    key: str
    envelope: Envelope
    devices: int


@dataclass(frozen=True)
class Expectation:
    """A candidate with its likely `step` in seconds, and metrics and score for the step it may hope for.

    `excess` is how far the user's limits would be broken, each relative to its bound; 0 where all should hold.
    """

    candidate: Candidate
    step: float
    metrics: tuple[float, ...]
    promise: float
    excess: float


@dataclass(frozen=True)
class Expecting:
    """Turns steps into metrics with what the trials of `context` show; `metrics` are in the order of the objective.

    Limits are held against estimates that are `boldness` standard deviations kinder: an estimate that is off must not
    shut out a whole region before a trial has shown it.
    """

    context: ProposalContext
    boldness: float = 0.0
    _scales: dict[str, float] = field(default_factory=dict)

    def of(self, candidate: Candidate, expected: Envelope, step: float, hoped: float) -> Expectation:
        """The expectation of a candidate with an envelope in seconds, a likely and a hoped-for step."""
        terms = _complete(self.context.objective)
        values = {term.spec.name: self._metric(term.spec, candidate, expected, hoped) for term in terms}
        return Expectation(
            candidate=candidate,
            step=step,
            metrics=tuple(values[term.spec.name] for term in terms),
            promise=_promise(Objective(terms), values),
            excess=sum(self._excess(limit, candidate, expected, step) for limit in self.context.limits),
        )

    def _excess(self, limit: Limit, candidate: Candidate, expected: Envelope, step: float) -> float:
        value = self._metric(limit.spec, candidate, expected, step)
        if limit.spec.name != "num_xpus":
            value *= math.exp(-limit.margin_sign * self.boldness * _LIMIT_ERROR)
        beyond = limit.excess(value)
        return max(0.0, beyond) / (abs(limit.bound) or 1.0)

    def _metric(self, spec: MetricSpec, candidate: Candidate, expected: Envelope, step: float) -> float:
        name = spec.name
        if name in _STEP_METRICS:
            return step
        if name == "num_xpus":
            return float(candidate.devices)
        if name == "peak_memory_gb":
            return expected.memory_gb
        if name in _OF_POLICIES:
            return self._scale(name, lambda t: 1.0)
        if name in _PER_DEVICE:
            return self._scale(name, lambda t: t.metrics["avg_step_time"] * t.metrics.get("num_xpus", 1.0)) / (
                step * candidate.devices
            )
        if spec.direction is Direction.MAXIMIZE:
            return self._scale(name, lambda t: t.metrics["avg_step_time"]) / step
        return self._scale(name, lambda t: 1 / t.metrics["avg_step_time"]) * step

    def _scale(self, name: str, factor: Callable[[TrialView], float]) -> float:
        """The mean of a recorded metric times `factor`; 1 where no trial has it."""
        if name not in self._scales:
            known = [trial.metrics[name] * factor(trial) for trial in _with(self.context.history, name)]
            self._scales[name] = sum(known) / len(known) if known else 1.0
        return self._scales[name]


def _complete(objective: Objective) -> tuple[Term, ...]:
    """The terms, with baselines that are not known yet counting as 1."""
    return tuple(
        Term(term.spec, term.weight, 1.0 if term.baseline is None else term.baseline) for term in objective.terms
    )


def _with(history: Sequence[TrialView], name: str) -> list[TrialView]:
    return [trial for trial in history if name in trial.metrics and trial.metrics.get("avg_step_time", 0.0) > 0]


def _promise(objective: Objective, values: dict[str, float]) -> float:
    """The score; the worst there is where a ratio of the composite has no value (a metric of 0)."""
    try:
        return objective.score(values)
    except ValueError:
        return -math.inf
