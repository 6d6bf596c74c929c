"""The front of one run or several as plain data: what `pareto --json` prints and the tables and plots are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccl_search import comparing, repeats
from ccl_search.pareto.of_run import RunFront, common_reference, joint, of_run
from runs.errors import BadInputError
from runs.metric import MetricSpec

if TYPE_CHECKING:
    from ccl_search.pareto.front import Point
    from runs.store import Store

_SAME_AXES = "name the axes with --x and --y"


def fronts_of(
    store: Store,
    references: Sequence[str],
    axes: Sequence[MetricSpec] | None = None,
    limit: Mapping[str, float] | None = None,
) -> list[RunFront]:
    """The fronts of several runs up to one reference point (see `of_run`), ready to be laid over each other.

    Raises:
        BadInputError: the runs do different work, or their objectives have different metrics and no axes are given.
    """
    found = [of_run(store, reference, axes, limit) for reference in references]
    reasons = comparing.differences([front.run for front in found])
    if reasons:
        raise BadInputError(
            f"these runs do different work and share no front: {'; '.join(reasons)}", "compare runs of the same work"
        )
    names = {tuple(spec.name for spec in front.axes) for front in found}
    if len(names) > 1:
        shown = " and ".join(", ".join(axes) for axes in sorted(names))
        raise BadInputError(f"the objectives of these runs have different metrics: {shown}", _SAME_AXES)
    shared = common_reference(found) if len(found) > 1 and limit is None else None
    return [of_run(store, front.run.id, front.axes, shared) for front in found] if shared else found


def document(store: Store, fronts: Sequence[RunFront]) -> dict[str, Any]:
    """The fronts as plain data.

    With several runs, `joint` lists the members that stay on the front of all together; it is None where measured
    and simulated runs, or two backends, meet, which are never ranked together.
    """
    together = joint(fronts) if len(fronts) > 1 and len({_kind(front) for front in fronts}) == 1 else None
    return {
        "axes": [_axis(spec) for spec in fronts[0].axes],
        "runs": [_run(store, front) for front in fronts],
        "joint": together,
    }


def _axis(spec: MetricSpec) -> dict[str, Any]:
    return {"metric": spec.name, "unit": spec.unit, "direction": spec.direction.value, "label": spec.label}


def _run(store: Store, front: RunFront) -> dict[str, Any]:
    names = [spec.name for spec in front.axes]
    members = {point.trial for point in front.members}
    return {
        "run_id": front.run.id,
        "proposer": front.run.proposer,
        "objective": front.run.objective["name"],
        "fidelity": front.fidelity.value if front.fidelity else None,
        "backend": _backend(front),
        "front": [_member(store, front, point) for point in front.members],
        "dominated": [_plain(point, names) for point in front.candidates if point.trial not in members],
        "infeasible": {str(number): list(broken) for number, broken in front.infeasible.items()},
        "knee": front.knee.trial if front.knee else None,
        "hypervolume": front.hypervolume if front.candidates else None,
        "reference_point": dict(zip(names, front.reference, strict=False)) or None,
        "reference_point_fixed": front.fixed,
        "hypervolume_history": [
            {"trial": point.trial, "hypervolume": reached}
            for point, reached in zip(front.candidates, front.history, strict=True)
        ],
    }


def _member(store: Store, front: RunFront, point: Point) -> dict[str, Any]:
    trial = front.trials[point.trial]
    return {
        **_plain(point, [spec.name for spec in front.axes]),
        "config": trial.config,
        "score": trial.score,
        "policy_sha256": trial.policy_id,
        "policy_path": str(store.trial_dir(front.run.id, point.trial) / "policy.py"),
        "indistinguishable": _indistinguishable(front, point),
    }


def _plain(point: Point, names: Sequence[str]) -> dict[str, Any]:
    return {"trial": point.trial, "values": dict(zip(names, point.values, strict=True))}


def _indistinguishable(front: RunFront, point: Point) -> list[int]:
    """Other candidates whose every difference from `point` lies inside the spread of the repeats."""
    own = front.trials[point.trial]
    others = (front.trials[other.trial] for other in front.candidates if other.trial != point.trial)
    return [other.number for other in others if repeats.same_values(own, other, front.axes)]


def _kind(front: RunFront) -> tuple[str | None, str | None]:
    return (front.fidelity.value if front.fidelity else None, _backend(front))


def _backend(front: RunFront) -> str | None:
    return front.trials[front.candidates[0].trial].backend if front.candidates else None
