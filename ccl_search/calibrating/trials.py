"""Measured trials of a stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccl_search.calibrating.measurements import Measurement, Measurements, merged
from runs.errors import BadInputError
from runs.trial import Fidelity, TrialState

if TYPE_CHECKING:
    from runs.store import RunRecord, Store, TrialRecord

METRIC = "avg_step_time"


def read_run(store: Store, reference: str) -> Measurements:
    """The distinct measured configs of a run: trials that succeeded and have a step time.

    Raises:
        BadInputError: there is no such run, a trial of it is simulated, or it is no training run.
    """
    from runs.card import parse_card

    run = store.run(reference)
    card = parse_card(run.card, run.id).card
    workload, environment = card.workload(), card.environment()
    if not workload.is_training:
        raise BadInputError(f"run {run.id} is no training run", "only training steps are calibrated")
    dropped: dict[str, list[str]] = {}
    used: list[TrialRecord] = []
    for trial in store.trials(run.id):
        reason = _unusable(run, trial)
        if reason is None:
            used.append(trial)
        else:
            dropped.setdefault(reason, []).append(f"trial {trial.number}")
    stack = f"{run.framework} {workload.model.model_family}"
    stack += f" ({environment.framework_version})" if environment.framework_version else ""
    found = []
    for trial in used:
        plan = trial.parallel_plan()
        assert plan is not None
        found.append(
            Measurement(stack, workload, environment, plan, (trial.values[METRIC],), (f"trial {trial.number}",))
        )
    days = [trial.finished.date().isoformat() for trial in used if trial.finished is not None]
    reasons = {reason: tuple(rows) for reason, rows in dropped.items()}
    return Measurements(f"run {run.id}", merged(found), reasons, None, max(days, default=None))


def _unusable(run: RunRecord, trial: TrialRecord) -> str | None:
    """Why a trial is left out; BadInputError where it is simulated."""
    if trial.fidelity is Fidelity.SIMULATED:
        raise BadInputError(
            f"trial {trial.number} of run {run.id} is simulated", "never calibrate on a simulation: name a measured run"
        )
    if trial.state is not TrialState.SUCCEEDED:
        return f"{trial.state.value}: {trial.failure.value}" if trial.failure else trial.state.value
    if trial.plan is None:
        return "no plan"
    value = trial.values.get(METRIC)
    return None if value is not None and value > 0 else f"no {METRIC}"
