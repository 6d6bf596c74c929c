"""The front of a stored run: which of its trials may be on it, its hypervolume with history, its knee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccl_search import constraints
from ccl_search.pareto.front import MAX_AXES, MIN_AXES, Point, check_axes, front
from ccl_search.pareto.knee import knee
from ccl_search.pareto.volume import history, reference_point, turned, volume
from runs.errors import BadInputError
from runs.metric import MetricSpec
from runs.trial import Fidelity, TrialState

if TYPE_CHECKING:
    from runs.objective import Objective
    from runs.store import RunRecord, Store, TrialRecord

REFERENCE = "reference_point"
"""The run's option that keeps its reference point: metric name to value in the metric's unit."""


@dataclass(frozen=True)
class RunFront:
    """The front of one run over `axes`; `candidates` in the order of trials, `members` from best to worst on axis 0.

    `history` has the hypervolume after each candidate. `fixed` says that the reference point is the one stored with
    the run, or given; otherwise it is made from the candidates there are and may still move. `fidelity` is that of
    all candidates, None where there is none. `infeasible` maps trials to the constraints they break.
    """

    run: RunRecord
    axes: tuple[MetricSpec, ...]
    candidates: tuple[Point, ...]
    members: tuple[Point, ...]
    reference: tuple[float, ...]
    fixed: bool
    hypervolume: float
    history: tuple[float, ...]
    knee: Point | None
    fidelity: Fidelity | None
    infeasible: Mapping[int, tuple[str, ...]]
    trials: Mapping[int, TrialRecord]


def of_run(
    store: Store, reference: str, axes: Sequence[MetricSpec] | None = None, limit: Mapping[str, float] | None = None
) -> RunFront:
    """The front of the run that `reference` means, over `axes` (None: the metrics of its objective).

    `limit` is a reference point, metric name to value; None takes the one stored with the run where it has the axes,
    else `reference_point` of the candidates.

    Raises:
        BadInputError: there is no such run, the axes make no front, or `limit` lacks an axis.
    """
    run = store.run(reference)
    wanted = tuple(axes) if axes is not None else tuple(term.spec for term in run.typed_objective().terms)
    check_axes(wanted)
    trials = {trial.number: trial for trial in store.trials(run.id)}
    candidates = eligible(list(trials.values()), constraints.limits_of(run))
    points = tuple(_points(candidates, wanted))
    bound, fixed = _reference(run, points, wanted, limit)
    members = front(points, wanted)
    return RunFront(
        run=run,
        axes=wanted,
        candidates=points,
        members=members,
        reference=bound,
        fixed=fixed,
        hypervolume=volume(members, wanted, bound) if members else 0.0,
        history=tuple(history(points, wanted, bound)) if points else (),
        knee=knee(members, wanted),
        fidelity=candidates[0].fidelity if candidates else None,
        infeasible=_infeasible(run, trials),
        trials=trials,
    )


def eligible(trials: Sequence[TrialRecord], limits: Sequence[constraints.Limit]) -> list[TrialRecord]:
    """Trials that may be ranked with each other: succeeded, within every limit, of one fidelity.

    As for the best trial, simulated ones count only where there is no measured one.
    """
    kept = [
        trial
        for trial in trials
        if trial.state is TrialState.SUCCEEDED and not constraints.violations(limits, trial.metrics)
    ]
    measured = [trial for trial in kept if trial.fidelity is Fidelity.MEASURED]
    return measured or kept


def reference_to_store(store: Store, run: RunRecord, objective: Objective) -> dict[str, float] | None:
    """The reference point to keep with a run that ends; None where it has one, or no front."""
    axes = tuple(term.spec for term in objective.terms)
    if not MIN_AXES <= len(axes) <= MAX_AXES or REFERENCE in run.options:
        return None
    points = _points(eligible(store.trials(run.id), constraints.limits_of(run)), axes)
    if not points:
        return None
    return {spec.name: value for spec, value in zip(axes, reference_point(points, axes), strict=True)}


def joint(fronts: Sequence[RunFront]) -> dict[str, list[int]]:
    """Which members of each run stay on the front of all runs together, by run id; the runs must be comparable."""
    axes = fronts[0].axes
    numbered = [(found.run.id, point) for found in fronts for point in found.members]
    renumbered = [Point(place, point.values) for place, (_, point) in enumerate(numbered)]
    kept: dict[str, list[int]] = {found.run.id: [] for found in fronts}
    for point in front(renumbered, axes):
        run, member = numbered[point.trial]
        kept[run].append(member.trial)
    return kept


def common_reference(fronts: Sequence[RunFront]) -> dict[str, float]:
    """The worst of the runs' reference points on every axis: one that all their hypervolumes can share."""
    axes = fronts[0].axes
    rows = [turned(found.reference, axes) for found in fronts if found.candidates]
    if not rows:
        return {}
    worst = turned([max(row[place] for row in rows) for place in range(len(axes))], axes)
    return {spec.name: float(value) for spec, value in zip(axes, worst, strict=True)}


def _points(trials: Sequence[TrialRecord], axes: Sequence[MetricSpec]) -> list[Point]:
    found = []
    for trial in trials:
        values = trial.values
        if all(spec.name in values for spec in axes):
            found.append(Point(trial.number, tuple(values[spec.name] for spec in axes)))
    return found


def _reference(
    run: RunRecord, points: Sequence[Point], axes: Sequence[MetricSpec], limit: Mapping[str, float] | None
) -> tuple[tuple[float, ...], bool]:
    stored = run.options.get(REFERENCE) or {}
    given = stored if limit is None and all(spec.name in stored for spec in axes) else limit
    if given is None:
        return (reference_point(points, axes) if points else ()), False
    lacking = [spec.name for spec in axes if spec.name not in given]
    if lacking:
        raise BadInputError(
            f"the reference point has no value for {', '.join(lacking)}", "give --reference NAME=VALUE for every axis"
        )
    return tuple(float(given[spec.name]) for spec in axes), True


def _infeasible(run: RunRecord, trials: Mapping[int, TrialRecord]) -> dict[int, tuple[str, ...]]:
    limits = constraints.limits_of(run)
    found = {
        number: constraints.violations(limits, trial.metrics)
        for number, trial in trials.items()
        if trial.state is TrialState.SUCCEEDED
    }
    return {number: broken for number, broken in found.items() if broken}
