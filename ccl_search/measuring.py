"""From the trace files of an execution to metric values and a score. Nothing but the trace and the card is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.objective import Objective
from runs.trial import FailureClass

if TYPE_CHECKING:
    from ccl_search.problem import Problem
    from runs.plan import ParallelPlan


@dataclass(frozen=True)
class Measurement:
    """Metric values of one trial and its score; where there is no score, the failure and its evidence."""

    values: dict[str, MetricValue] = field(default_factory=dict)
    score: float | None = None
    failure: FailureClass | None = None
    evidence: str = ""

    @property
    def numbers(self) -> dict[str, float]:
        """The metrics that have a value."""
        return {name: found.value for name, found in self.values.items() if found.value is not None}


def measure(trace_dir: Path | None, problem: Problem, plan: ParallelPlan) -> Measurement:
    """All metrics of the trace, without a score yet."""
    from metrics.api import compute

    if trace_dir is None or not any(trace_dir.rglob("*")):
        return Measurement(failure=FailureClass.TRACE_MISSING, evidence=f"no trace files under {trace_dir}")
    try:
        values = compute(trace_dir, workload=problem.workload, environment=problem.environment, plan=plan)
    except BadInputError as error:
        return Measurement(failure=FailureClass.TRACE_MISSING, evidence=f"{error.message} ({error.hint})")
    except Exception as error:  # a trace that no reader was made for must not end a search that others wait for
        what = f"{type(error).__name__}: {error}"
        return Measurement(failure=FailureClass.METRIC_ERROR, evidence=f"the trace could not be read: {what}")
    return Measurement(values)


def score(measurement: Measurement, objective: Objective) -> Measurement:
    """The measurement with its score under `objective`, or with the metric that is missing for it."""
    if measurement.failure is not None:
        return measurement
    for term in objective.terms:
        found = measurement.values.get(term.spec.name)
        if found is None or found.value is None:
            reason = found.reason if found is not None else "the metric tool gave no answer"
            return Measurement(
                measurement.values, failure=FailureClass.METRIC_ERROR, evidence=f"{term.spec.name}: {reason}"
            )
    try:
        return Measurement(measurement.values, objective.score(measurement.numbers))
    except ValueError as error:
        return Measurement(measurement.values, failure=FailureClass.METRIC_ERROR, evidence=str(error))
