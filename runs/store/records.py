"""What goes into the store (`NewRun`, `NewTrial`, `TrialOutcome`) and what comes out: frozen, plain, no database."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from runs.ledger import LlmAttempt, LlmOutcome, LlmRequest
from runs.metric import Direction, MetricSpec, MetricValue
from runs.objective import Objective, Term
from runs.plan import ParallelPlan
from runs.screening import Screening
from runs.space import ConfigSpace
from runs.trial import FailureClass, Fidelity, TrialState


class RunStatus(StrEnum):
    """Where a run is in its life. `INTERRUPTED`: its process ended without saying so; it can be resumed."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to be created. `workload` and `environment` are the dicts a policy receives; `card` is YAML text.

    `metrics` are all metric tools of the run, those of the objective included. `budgets` maps a budget's name to
    its limit. `options` is whatever else a resume needs, as plain JSON data. `created` is now unless given.
    """

    card: str
    workload: dict[str, Any]
    environment: dict[str, Any]
    framework: str
    space: ConfigSpace
    objective: Objective
    target: str
    proposer: str
    metrics: tuple[MetricSpec, ...] = ()
    target_settings: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    sandbox: str = ""
    seed: int | None = None
    budgets: dict[str, Any] = field(default_factory=dict)
    tool_versions: dict[str, str] = field(default_factory=dict)
    product_version: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    kind: str = "search"
    parent: str | None = None
    created: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A proposal: its policy, the config it gave (None when it gave none), and the ledger rows that led to it.

    `state` is queued; a refused proposal is `PRUNED` with the class in `failure`, one without a config `FAILED`.
    `proposer_seconds` is what the proposal took, `screening` what a screen said of it.
    """

    iteration: int
    policy_source: str | None = None
    parent_policy: str | None = None
    config: dict[str, Any] | None = None
    rationale: str = ""
    llm_calls: tuple[int, ...] = ()
    state: TrialState = TrialState.QUEUED
    failure: FailureClass | None = None
    evidence: str = ""
    plan: ParallelPlan | None = None
    num_xpus: int | None = None
    proposer_seconds: float | None = None
    proposed: datetime | None = None
    screening: Screening | None = None


@dataclass(frozen=True)
class Timings:
    """Seconds of a trial by kind; None where not known. `launch` includes waiting for the machines."""

    proposer: float | None = None
    launch: float | None = None
    metrics: float | None = None
    overhead: float | None = None


@dataclass(frozen=True)
class TraceFile:
    """A trace file. `path` is relative to the store's home, `size` in bytes.

    One that was dropped has `kept` False, the reason, and when (None: before stores kept that).
    """

    path: str
    size: int
    sha256: str
    kept: bool = True
    reason: str = ""
    dropped: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """How a trial ended. A succeeded one has no `failure`; every other one has.

    `score` belongs to `objective` (the run's own where None). `xpu_hours` None: the sum of the attempts, where all
    of them are known. `timings` that are None keep what the store already knows.
    """

    state: TrialState
    failure: FailureClass | None = None
    evidence: str = ""
    metrics: tuple[MetricValue, ...] = ()
    score: float | None = None
    objective: Objective | None = None
    fidelity: Fidelity | None = None
    backend: str | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    timings: Timings = Timings()
    xpu_hours: float | None = None
    traces: tuple[TraceFile, ...] = ()
    finished: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as stored; JSON columns are plain data, `config_space` and `typed_objective` make them objects again."""

    id: str
    created: datetime
    finished: datetime | None
    status: RunStatus
    kind: str
    parent: str | None
    card: str
    workload: dict[str, Any]
    environment: dict[str, Any]
    framework: str
    space: dict[str, Any]
    objective: dict[str, Any]
    metrics: list[dict[str, Any]]
    target: str
    target_settings: dict[str, Any]
    proposer: str
    model: str | None
    sandbox: str
    seed: int | None
    budgets: dict[str, Any]
    tool_versions: dict[str, str]
    product_version: str
    options: dict[str, Any]
    stop_reason: str
    notes: str

    def config_space(self) -> ConfigSpace:
        """The space of the run; `BadInputError` where this version cannot read it."""
        return ConfigSpace.from_dict(self.space)

    def typed_objective(self) -> Objective:
        """The objective of the run, with the metric specs frozen at its creation."""
        frozen = {spec["name"]: spec for spec in self.metrics}
        return Objective(tuple(_term(term, frozen.get(term["metric"], {})) for term in self.objective["terms"]))


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial as stored, with its policy's source and its current metric values (newest version, not retracted)."""

    run_id: str
    number: int
    iteration: int
    state: TrialState
    failure: FailureClass | None
    evidence: str
    config: dict[str, Any] | None
    config_key: str | None
    plan: dict[str, Any] | None
    num_xpus: int | None
    card: str
    script: str
    policy_id: str | None
    policy_source: str
    rationale: str
    score: float | None
    objective: str | None
    metrics: dict[str, MetricValue]
    fidelity: Fidelity | None
    backend: str | None
    provenance: dict[str, Any]
    proposed: datetime
    launched: datetime | None
    finished: datetime | None
    timings: Timings
    xpu_hours: float | None

    @property
    def values(self) -> dict[str, float]:
        """Metrics that have a value, by name, in their units."""
        return {name: metric.value for name, metric in self.metrics.items() if metric.value is not None}

    def parallel_plan(self) -> ParallelPlan | None:
        """The plan as an object, None where the trial has none."""
        return None if self.plan is None else ParallelPlan.from_dict(self.plan)


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """One launch of a trial; `handle` is what its launcher needs to find the job again."""

    number: int
    state: TrialState
    handle: dict[str, Any] | None
    failure: FailureClass | None
    evidence: str
    seconds: float | None
    xpu_hours: float | None
    provenance: dict[str, Any]
    started: datetime
    finished: datetime | None


@dataclass(frozen=True, kw_only=True)
class ScoreRecord:
    """A score a trial had or has; the newest is the current one. `definition` is the objective as plain data."""

    objective: str
    definition: dict[str, Any]
    score: float
    created: datetime


@dataclass(frozen=True, kw_only=True)
class MetricRecord:
    """A metric value as stored; a retracted one counts no more."""

    value: MetricValue
    retracted: bool
    retracted_reason: str
    created: datetime


@dataclass(frozen=True, kw_only=True)
class PolicyRecord:
    """A policy, stored once for all trials that share it; `id` is the SHA-256 of its UTF-8 source."""

    id: str
    source: str
    parent: str | None
    created: datetime


@dataclass(frozen=True, kw_only=True)
class LlmCallRecord:
    """A call of an LLM with its attempts. `outcome` None: sent, but no answer was recorded."""

    id: int
    request: LlmRequest
    request_sha256: str
    outcome: LlmOutcome | None
    attempts: tuple[LlmAttempt, ...]
    trial: int | None
    created: datetime
    finished: datetime | None


@dataclass(frozen=True, kw_only=True)
class RunTotals:
    """Sums over a run. A total is None when a part of it is unknown; `known_*` is the sum of the known parts.

    `unknown_cost_calls` counts LLM calls without a cost, `unknown_hours_trials` launched and finished trials without
    accelerator hours. Tokens are the known ones.
    """

    trials: dict[TrialState, int]
    llm_calls: int
    llm_cost_usd: Decimal | None
    known_llm_cost_usd: Decimal
    unknown_cost_calls: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    xpu_hours: float | None
    known_xpu_hours: float
    unknown_hours_trials: int


def _term(term: dict[str, Any], frozen: dict[str, Any]) -> Term:
    spec = MetricSpec(
        name=term["metric"],
        version=term["version"],
        unit=term["unit"],
        direction=Direction(term["direction"]),
        label=frozen.get("label", ""),
        description=frozen.get("description", ""),
        formats=tuple(frozen.get("formats", ())),
        phases=tuple(frozen.get("phases", ())),
        aliases=tuple(frozen.get("aliases", ())),
    )
    return Term(spec, term["weight"], term["baseline"])
