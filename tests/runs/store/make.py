"""What the tests of the store put into it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from runs import objective
from runs.metric import Direction, MetricSpec, MetricValue
from runs.plan import ParallelPlan
from runs.space import ConfigSpace
from runs.store import NewRun, NewTrial, Store, TrialOutcome
from runs.store.home import DATABASE_NAME
from runs.trial import Fidelity, TrialState

STEP = MetricSpec("avg_step_time", "1.0", "s", Direction.MINIMIZE, label="Step time", aliases=("step",))
MFU = MetricSpec("mfu", "2.1", "1", Direction.MAXIMIZE, formats=("kineto",))
SPACE = ConfigSpace.from_dict(
    {
        "name": "small",
        "world_size": "tp * dp",
        "knobs": [{"key": "tp", "choices": [1, 2, 4]}, {"key": "dp", "choices": [1, 2, 4]}],
        "constraints": ["tp * dp <= environment.total_gpus"],
    }
)
WORKLOAD = {"model_family": "llama-3.1-8b", "phase": "training", "batch_size": 8, "seq_len": 1024, "precision": "bf16"}
ENVIRONMENT = {"gpu_model": "nvidia_a100", "total_gpus": 8, "framework": "torchtitan", "framework_version": "0.2"}
POLICY = "def generate_config(workload, environment):\n    return {'tp': 2, 'dp': 4}\n"


def new_run(**changes: Any) -> NewRun:
    """A search over SPACE for the step time."""
    fields: dict[str, Any] = {
        "card": "version: 1\n",
        "workload": WORKLOAD,
        "environment": ENVIRONMENT,
        "framework": "torchtitan",
        "space": SPACE,
        "objective": objective.build([STEP], None),
        "metrics": (STEP, MFU),
        "target": "dry-run",
        "proposer": "random",
        "seed": 7,
    }
    return NewRun(**{**fields, **changes})


def success(seconds: float, **changes: Any) -> TrialOutcome:
    """A simulated trial whose step took `seconds`."""
    fields: dict[str, Any] = {
        "state": TrialState.SUCCEEDED,
        "metrics": (MetricValue.of(STEP, seconds),),
        "score": -seconds,
        "fidelity": Fidelity.SIMULATED,
        "backend": "flow",
    }
    return TrialOutcome(**{**fields, **changes})


def add_success(store: Store, run_id: str, seconds: float, **changes: Any) -> int:
    """A trial of `run_id` that has succeeded; its number."""
    plan = ParallelPlan("torchtitan", tp=2, dp_shard=4, micro_batch_size=2)
    number = store.add_trial(run_id, NewTrial(iteration=0, policy_source=POLICY, config={"tp": 2, "dp": 4}, plan=plan))
    store.finish_trial(run_id, number, success(seconds, **changes))
    return number


def raw(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows read past the product, on a connection of their own."""
    connection = sqlite3.connect(home / DATABASE_NAME)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
