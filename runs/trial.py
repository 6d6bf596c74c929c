"""What can become of a trial: its states, its failure classes, and the `Execution` a launcher hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class TrialState(StrEnum):
    """Where a trial is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PRUNED = "pruned"
    CANCELLED = "cancelled"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen to the trial by itself."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING)


class FailureClass(StrEnum):
    """Why a trial did not succeed. What happens next hangs on the group it is in (the properties below)."""

    INVALID_CONFIG = "invalid_config"
    DUPLICATE = "duplicate"
    PREDICTED_OOM = "predicted_oom"
    SCREENED = "screened"
    POLICY_ERROR = "policy_error"
    PROPOSAL_FAILED = "proposal_failed"
    OOM = "oom"
    FRAMEWORK_ERROR = "framework_error"
    TIMEOUT = "timeout"
    LAUNCH = "launch"
    QUEUE_TIMEOUT = "queue_timeout"
    NODE_FAILURE = "node_failure"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    TRACE_MISSING = "trace_missing"
    METRIC_ERROR = "metric_error"

    @property
    def is_refusal(self) -> bool:
        """The proposal was refused before a launch: the trial is `pruned` and cost nothing."""
        return self in _REFUSALS

    @property
    def is_config_property(self) -> bool:
        """The config itself is to blame: it is remembered and not launched again."""
        return self in _OF_THE_CONFIG

    @property
    def is_transient(self) -> bool:
        """The machines are to blame: retried within a limit, never held against the config."""
        return self in _TRANSIENT


_REFUSALS = frozenset(
    {FailureClass.INVALID_CONFIG, FailureClass.DUPLICATE, FailureClass.PREDICTED_OOM, FailureClass.SCREENED}
)
_OF_THE_CONFIG = frozenset({FailureClass.OOM, FailureClass.FRAMEWORK_ERROR, FailureClass.TIMEOUT})
_TRANSIENT = frozenset(
    {FailureClass.LAUNCH, FailureClass.QUEUE_TIMEOUT, FailureClass.NODE_FAILURE, FailureClass.PREEMPTED}
)


class Fidelity(StrEnum):
    """Whether numbers were measured on machines or simulated. The two are never ranked together."""

    MEASURED = "measured"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class Execution:
    """What a launcher collected from one attempt.

    `state` is succeeded, failed or cancelled; a failed one has a `failure` and `evidence` (the first real error
    line, per rank where known). `seconds` is wall time of the job; `xpu_hours` what it occupied (None if unknown,
    0.0 for a simulation). `provenance` names backend, versions, calibration, job ids.
    """

    state: TrialState
    trace_dir: Path | None = None
    failure: FailureClass | None = None
    evidence: str = ""
    fidelity: Fidelity = Fidelity.MEASURED
    seconds: float | None = None
    xpu_hours: float | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
