"""A ledger in memory, and contexts to ask about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ccl_search.proposers.base import ProposalContext, TrialView
from runs import expressions, objective
from runs.ledger import LlmAttempt, LlmOutcome, LlmRequest, StoredCall
from runs.metric import Direction, MetricSpec
from runs.objective import Objective
from runs.space import ConfigSpace, Constraint, Knob
from runs.trial import FailureClass, TrialState

STEP_TIME = MetricSpec("avg_step_time", "1.0", "s", Direction.MINIMIZE, description="mean wall time of a step")
MFU = MetricSpec("mfu", "1.0", "%", Direction.MAXIMIZE)
NUM_XPUS = MetricSpec("num_xpus", "1.0", "devices", Direction.MINIMIZE)
GOOD = 'def generate_config(workload, environment):\n    return {"tp": 4, "pp": 1}\n'
SEED = 'def generate_config(workload, environment):\n    return {"tp": 1, "pp": 1}\n'
SPACE = ConfigSpace(
    "tiny",
    (Knob("tp", "int", (1, 2, 4), "tensor parallel degree"), Knob("pp", "int", (1, 2))),
    (Constraint("fits", expressions.parse("tp * pp <= environment.total_gpus"), "no more devices than there are"),),
    expressions.parse("tp * pp"),
)


@dataclass
class MemoryLedger:
    """Keeps rows as JSON text, so that what could not be stored fails here too."""

    requests: list[LlmRequest] = field(default_factory=list)
    attempts: dict[int, list[LlmAttempt]] = field(default_factory=dict)
    outcomes: dict[int, LlmOutcome] = field(default_factory=dict)

    def begin(self, request: LlmRequest) -> int:
        body = json.loads(json.dumps(request.request, allow_nan=False))
        self.requests.append(LlmRequest(**(asdict(request) | {"request": body})))
        return len(self.requests)

    def attempt(self, call_id: int, attempt: LlmAttempt) -> None:
        self.attempts.setdefault(call_id, []).append(attempt)

    def finish(self, call_id: int, outcome: LlmOutcome) -> None:
        self.outcomes[call_id] = outcome

    def find(self, run_id: str, iteration: int, turn: int, purpose: str) -> StoredCall | None:
        place = (run_id, iteration, turn, purpose)
        for index in range(len(self.requests), 0, -1):
            row = self.requests[index - 1]
            if (row.run_id, row.iteration, row.turn, row.purpose) == place:
                return StoredCall(index, row, "", self.outcomes.get(index))
        return None

    def everything(self) -> str:
        """All that is stored, as one text to search."""
        return repr((self.requests, self.attempts, self.outcomes))


def succeeded(number: int, config: dict[str, Any], score: float, **metrics: float) -> TrialView:
    """A trial with a score."""
    return TrialView(number, TrialState.SUCCEEDED, config, metrics, score, policy_source=SEED)


def failed(number: int, config: dict[str, Any] | None, failure: FailureClass, evidence: str) -> TrialView:
    """A trial without one."""
    state = TrialState.PRUNED if failure.is_refusal else TrialState.FAILED
    return TrialView(number, state, config, failure=failure, evidence=evidence)


def context(history: Sequence[TrialView] = (), **more: Any) -> ProposalContext:
    """A context of the tiny space, minimising step time."""
    values: dict[str, Any] = {
        "run_id": "run-1",
        "iteration": 1,
        "iterations": 14,
        "workload": {
            "model_family": "llama-3.1-8b",
            "batch_size": 32,
            "config_space": [k.as_dict() for k in SPACE.knobs],
        },
        "environment": {"gpu_model": "nvidia_a100_40gb", "total_gpus": 4, "gpu_memory_gb": 40.0},
        "space": SPACE,
        "objective": minimised(),
        "history": tuple(history),
        "current_policy": SEED,
    }
    return ProposalContext(**(values | more))


def minimised() -> Objective:
    return objective.build([STEP_TIME], None)


def maximised() -> Objective:
    return objective.build([MFU], None)


def composite() -> Objective:
    return objective.build([STEP_TIME, NUM_XPUS], [0.5, 0.5], {"avg_step_time": 1.5, "num_xpus": 16.0})
