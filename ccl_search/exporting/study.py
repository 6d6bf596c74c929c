"""A run as an Optuna study in an SQLite file, for `optuna.load_study(study_name=RUN, storage="sqlite:///FILE")`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search import constraints
from runs.metric import MetricSpec
from runs.trial import TrialState

if TYPE_CHECKING:
    import optuna

    from runs.store import RunRecord, Store, TrialRecord


def write(store: Store, run: RunRecord, path: Path) -> None:
    """Write the study, named like the run.

    Its objectives are the metrics of the run's objective, in their own units and directions. Refused trials are
    pruned, those that broke or have no value failed; knobs that a trial lacks or that are outside the space are left
    out of its parameters and all of the config is in the user attribute `config`.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = [term.spec for term in run.typed_objective().terms]
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.absolute()}")
    try:
        study = optuna.create_study(
            storage=storage, study_name=run.id, directions=[spec.direction.value for spec in axes]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([spec.name for spec in axes])
        for name, value in _about(run).items():
            study.set_user_attr(name, value)
        limits = constraints.limits_of(run)
        for trial in store.trials(run.id):
            study.add_trial(_trial(run, trial, axes, limits))
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _about(run: RunRecord) -> dict[str, Any]:
    return {
        "run_id": run.id, "workload": run.workload, "environment": run.environment, "framework": run.framework,
        "objective": run.objective, "target": run.target, "proposer": run.proposer,
    }  # fmt: skip


def _trial(
    run: RunRecord, trial: TrialRecord, axes: Sequence[MetricSpec], limits: Sequence[constraints.Limit]
) -> optuna.trial.FrozenTrial:
    import optuna

    params, distributions = _params(run, trial)
    values = [trial.values.get(spec.name) for spec in axes]
    known = [value for value in values if value is not None]
    complete = trial.state is TrialState.SUCCEEDED and len(known) == len(values)
    state = optuna.trial.TrialState.COMPLETE if complete else _state(trial)
    return optuna.trial.create_trial(
        state=state,
        values=known if complete else None,
        params=params,
        distributions=distributions,
        user_attrs=_attributes(trial),
        constraints=_excesses(trial, limits) if complete else None,
    )


def _state(trial: TrialRecord) -> optuna.trial.TrialState:
    import optuna

    return optuna.trial.TrialState.PRUNED if trial.state is TrialState.PRUNED else optuna.trial.TrialState.FAIL


def _params(run: RunRecord, trial: TrialRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    import optuna

    config = trial.config or {}
    knobs = [knob for knob in run.config_space().knobs if knob.key in config and knob.allows(config[knob.key])]
    distributions = {knob.key: optuna.distributions.CategoricalDistribution(knob.choices) for knob in knobs}
    return {knob.key: config[knob.key] for knob in knobs}, distributions


def _attributes(trial: TrialRecord) -> dict[str, Any]:
    return {
        "trial": trial.number, "config": trial.config, "state": trial.state.value, "score": trial.score,
        "failure": trial.failure.value if trial.failure else None, "evidence": trial.evidence[:2000],
        "metrics": trial.values, "policy_sha256": trial.policy_id,
        "fidelity": trial.fidelity.value if trial.fidelity else None,
    }  # fmt: skip


def _excesses(trial: TrialRecord, limits: Sequence[constraints.Limit]) -> dict[str, float] | None:
    """Optuna's constraints: above 0 where a limit is broken; a value that is not known breaks it."""
    values = trial.values
    found = {
        limit.text: limit.excess(values[limit.spec.name]) if limit.spec.name in values else 1.0 for limit in limits
    }
    return found or None
