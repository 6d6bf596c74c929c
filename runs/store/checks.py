"""What may not be stored: outcomes that contradict themselves, paths that lead out of the home folder."""

from __future__ import annotations

import json
import math
from pathlib import PurePosixPath

from runs.errors import BadInputError
from runs.store.errors import StoreError
from runs.store.records import NewTrial, TrialOutcome
from runs.trial import FailureClass, TrialState


def check_proposal(trial: NewTrial) -> None:
    """Check that a new trial is queued, or refused with a reason.

    Raises:
        StoreError: it is neither.
    """
    if trial.state in (TrialState.RUNNING, TrialState.SUCCEEDED):
        raise StoreError(f"a new trial cannot be {trial.state.value}", "add it as queued, then begin an attempt")
    _check_class(trial.state, trial.failure)


def check_outcome(outcome: TrialOutcome) -> None:
    """Check that an outcome is final and does not contradict itself.

    Raises:
        StoreError: the state is not final, or does not go with the failure class or the score.
    """
    if not outcome.state.is_finished:
        raise StoreError(f"a trial cannot end as {outcome.state.value}", "use a final state")
    _check_class(outcome.state, outcome.failure)
    if outcome.score is not None and (outcome.state is not TrialState.SUCCEEDED or not math.isfinite(outcome.score)):
        raise StoreError(
            f"a {outcome.state.value} trial cannot have the score {outcome.score!r}",
            "only a succeeded trial has a score, a finite number",
        )
    if outcome.state is TrialState.SUCCEEDED and outcome.fidelity is None:
        raise StoreError("a succeeded trial needs a fidelity", "say whether its numbers are measured or simulated")


def check_relative(path: str) -> None:
    """Check that a path stays below the home folder.

    Raises:
        BadInputError: it is absolute, empty, or climbs with `..`.
    """
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise BadInputError(f"trace path {path!r} is not below the home folder", "give it relative to the home")


def objective_name(definition: str) -> str:
    """The name of an objective stored as JSON text."""
    return str(json.loads(definition)["name"])


def _check_class(state: TrialState, failure: FailureClass | None) -> None:
    wanted = {
        TrialState.PRUNED: failure is not None and failure.is_refusal,
        TrialState.FAILED: failure is not None and not failure.is_refusal and failure is not FailureClass.CANCELLED,
        TrialState.CANCELLED: failure is FailureClass.CANCELLED,
    }.get(state, failure is None)
    if not wanted:
        raise StoreError(
            f"a {state.value} trial cannot have the class {failure.value if failure else None!r}",
            "pruned goes with refusals, failed with errors, cancelled with cancelled, all others with none",
        )
