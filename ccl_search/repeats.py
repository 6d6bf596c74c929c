"""Measuring a config several times: K executions, the mean of their values, and what their spread allows to say.

The first repeat lies where every trial's execution lies; the others in `repeats/1`, `repeats/2` and so on, each with
its own `trace` folder. A metric's value is the mean over the repeats, with the single values in its detail. Spread is
always largest minus smallest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search import measuring
from ccl_search.loop.execution import AttemptLog, Executor
from ccl_search.measuring import Measurement
from launchers.base import Handle, Job
from runs.metric import MetricSpec, MetricValue
from runs.objective import Objective
from runs.trial import Execution, Fidelity, TrialState

if TYPE_CHECKING:
    from ccl_search.problem import Problem
    from runs.plan import ParallelPlan
    from runs.store import AttemptRecord, RunRecord, TrialRecord

DETAIL = "repeats"
"""The key of a metric value's detail that holds the values of the single repeats, in their order."""

IDENTICAL = (
    "repeats of a dry run are identical: the simulation has no noise, and their spread of 0 says nothing about "
    "measurements"
)
MEASURED_ONCE = (
    "every config was measured once: independent measurements of one config have been recorded to spread by 3.6 % in "
    "the median and 13.9 % at most, so a smaller difference may be noise; --repeats K measures each config K times"
)


def folder(trial_dir: Path, repeat: int) -> Path:
    """Where a repeat (counted from 0) leaves its files."""
    return trial_dir if repeat == 0 else trial_dir / "repeats" / str(repeat)


def execute(
    job: Job, executor: Executor, log: AttemptLog, count: int, done: Sequence[Execution] = ()
) -> list[Execution]:
    """Run `job` until it has been executed `count` times; `done` are executions made before.

    The first one that does not succeed ends it and is the last of the list.

    Raises:
        TargetUnavailableError: the target cannot be used at all.
    """
    if count == 1 and not done:
        return [executor.execute(job, log)]
    found = list(done)
    while len(found) < count and all(execution.state is TrialState.SUCCEEDED for execution in found):
        repeat = len(found)
        found.append(executor.execute(job_of(job, repeat), marked(log, repeat)))
    return found


def job_of(job: Job, repeat: int) -> Job:
    """The job of one repeat, in a folder of its own, which is made."""
    directory = folder(job.directory, repeat)
    directory.mkdir(parents=True, exist_ok=True)
    return replace(job, directory=directory)


def marked(log: AttemptLog, repeat: int) -> AttemptLog:
    """A log whose attempts say which repeat they are, so that a resumed search goes on with the next one."""
    return _MarkedLog(log, repeat)


def done(attempts: Sequence[AttemptRecord], trial_dir: Path, fidelity: Fidelity) -> list[Execution]:
    """The executions that an earlier process brought to their end: those to be measured, and a last that failed.

    A failure of the machines is none of them: it is to be tried again. `fidelity` is that of attempts that say none.
    """
    ended = [found for found in attempts if found.state is TrialState.SUCCEEDED]
    last = attempts[-1] if attempts else None
    if last is not None and last.failure is not None and not last.failure.is_transient:
        ended.append(last)
    return [_execution(found, trial_dir, fidelity) for found in ended]


def _execution(attempt: AttemptRecord, trial_dir: Path, fidelity: Fidelity) -> Execution:
    said = dict(attempt.provenance)
    place = folder(trial_dir, said.pop("repeat", 0)) / "trace"
    return Execution(
        attempt.state,
        failure=attempt.failure,
        evidence=attempt.evidence,
        trace_dir=place if attempt.state is TrialState.SUCCEEDED else None,
        fidelity=Fidelity(said.pop("fidelity", fidelity)),
        seconds=attempt.seconds,
        xpu_hours=attempt.xpu_hours,
        provenance=said,
    )


def combined(executions: Sequence[Execution]) -> Execution:
    """One execution for all repeats: times and accelerator-hours are sums, None where one of them is not known.

    A config that fails in any repeat has failed, except where the machines were to blame: then the repeats that
    succeeded count.
    """
    if len(executions) == 1:
        return executions[0]
    last, good = executions[-1], succeeded(executions)
    hours = _sum([execution.xpu_hours for execution in executions])
    seconds = _sum([execution.seconds for execution in executions])
    if last.state is not TrialState.SUCCEEDED and not (good and last.failure is not None and last.failure.is_transient):
        evidence = f"repeat {len(executions)}: {last.evidence}"
        return replace(last, evidence=evidence, seconds=seconds, xpu_hours=hours)
    provenance = {**good[0].provenance, "repeats": len(good)}
    return replace(good[0], seconds=seconds, xpu_hours=hours, provenance=provenance)


def succeeded(executions: Sequence[Execution]) -> list[Execution]:
    """Those that can be measured."""
    return [execution for execution in executions if execution.state is TrialState.SUCCEEDED]


def measure(executions: Sequence[Execution], problem: Problem, plan: ParallelPlan) -> Measurement:
    """The metrics of every repeat that succeeded, as their mean; without a score yet."""
    return mean([measuring.measure(execution.trace_dir, problem, plan) for execution in succeeded(executions)])


def mean(measurements: Sequence[Measurement]) -> Measurement:
    """One measurement for several. A metric that one of them lacks has no mean; a failure of one is the failure."""
    if len(measurements) == 1:
        return measurements[0]
    for number, found in enumerate(measurements, 1):
        if found.failure is not None:
            return replace(found, evidence=f"repeat {number}: {found.evidence}")
    shared = [name for name in measurements[0].values if all(name in found.values for found in measurements)]
    return Measurement({name: _mean_value([found.values[name] for found in measurements]) for name in shared})


def spread(value: MetricValue | None) -> float | None:
    """Largest minus smallest of a metric's repeats, in its unit; None where it was measured once."""
    singles = _singles(value)
    return max(singles) - min(singles) if singles else None


def score_spread(metrics: Mapping[str, MetricValue], objective: Objective) -> float | None:
    """Largest minus smallest score that the single repeats would have; None where the config was measured once.

    A metric without single values (one that was told, say) counts with its value in every repeat.
    """
    rows = {term.spec.name: _singles(metrics.get(term.spec.name)) for term in objective.terms}
    count = min((len(values) for values in rows.values() if values), default=0)
    fixed = {name: metrics[name].value for name in rows if not rows[name] and name in metrics}
    if not count or objective.needs_baseline or any(not rows[n] and fixed.get(n) is None for n in rows):
        return None
    try:
        scores = [objective.score(_repeat(rows, fixed, k)) for k in range(count)]
    except ValueError:
        return None
    return max(scores) - min(scores)


def _repeat(rows: Mapping[str, list[float]], fixed: Mapping[str, float | None], k: int) -> dict[str, float]:
    return {name: values[k] if values else float(fixed[name] or 0.0) for name, values in rows.items()}


def within(difference: float, *spreads: float | None) -> bool:
    """Whether a difference is no larger than the largest of the spreads that are known; False where none is."""
    known = [found for found in spreads if found is not None]
    return bool(known) and abs(difference) <= max(known)


def same_values(one: TrialRecord, other: TrialRecord, axes: Sequence[MetricSpec]) -> bool:
    """Whether two trials cannot be told apart on any of the axes, given the spreads of their repeats.

    Without any spread nothing is known, and they are told apart.
    """
    spreads = [(spread(one.metrics.get(spec.name)), spread(other.metrics.get(spec.name))) for spec in axes]
    if all(found is None for pair in spreads for found in pair):
        return False
    a, b = one.values, other.values
    return all(
        spec.name in a and spec.name in b and within(a[spec.name] - b[spec.name], 0.0, *pair)
        for spec, pair in zip(axes, spreads, strict=True)
    )


def ties(best: TrialRecord, trials: Sequence[TrialRecord], objective: Objective) -> list[int]:
    """Numbers of the other trials whose score is below the best one by no more than the measured spread."""
    own = score_spread(best.metrics, objective)
    return [
        trial.number
        for trial in trials
        if trial.number != best.number
        and trial.fidelity is best.fidelity
        and trial.score is not None
        and best.score is not None
        and within(best.score - trial.score, own, score_spread(trial.metrics, objective))
    ]


def steady_scores(scores: Sequence[tuple[float | None, float | None]]) -> list[float | None]:
    """Scores, each with its spread, in which an improvement inside the measured spread is none.

    Such a score becomes that of the best before it, so that whoever counts improvements does not count it.
    """
    best: tuple[float, float | None] | None = None
    found: list[float | None] = []
    for score, width in scores:
        if score is not None and (best is None or score > best[0]):
            if best is not None and within(score - best[0], width, best[1]):
                score = best[0]
            else:
                best = (score, width)
        found.append(score)
    return found


def warnings(run: RunRecord, best: TrialRecord | None) -> list[str]:
    """What must be said about noise with the result of a run."""
    count = run.options.get("settings", {}).get("repeats", 1)
    if best is None:
        return []
    if best.fidelity is Fidelity.SIMULATED:
        return [IDENTICAL] if count > 1 else []
    return [MEASURED_ONCE] if count == 1 else []


@dataclass(frozen=True)
class _MarkedLog:
    log: AttemptLog
    repeat: int

    def begin(self) -> int:
        return self.log.begin()

    def submitted(self, attempt: int, handle: Handle) -> None:
        self.log.submitted(attempt, handle)

    def finished(self, attempt: int, execution: Execution) -> None:
        provenance = {**execution.provenance, "repeat": self.repeat, "fidelity": execution.fidelity.value}
        self.log.finished(attempt, replace(execution, provenance=provenance))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _mean_value(values: Sequence[MetricValue]) -> MetricValue:
    notes = tuple(dict.fromkeys(note for value in values for note in value.warnings))
    first = values[0]
    for number, value in enumerate(values, 1):
        if value.value is None:
            return replace(first, value=None, reason=f"repeat {number}: {value.reason}", warnings=notes)
    singles = [value.value for value in values if value.value is not None]
    average = singles[0] if len(set(singles)) == 1 else math.fsum(singles) / len(singles)
    detail: dict[str, Any] = {**(first.detail or {}), DETAIL: singles}
    return replace(first, value=average, detail=detail, warnings=notes)


def _singles(value: MetricValue | None) -> list[float]:
    found = (value.detail or {}).get(DETAIL) if value is not None else None
    return [float(single) for single in found] if isinstance(found, list) and len(found) > 1 else []
