"""The tables as SQLModel classes, for reading and writing rows; migrations, not these classes, make the tables.

JSON columns hold text (see `runs.store.encoding`), moments are UTC text, costs are decimal text: exact in every
database, and readable from the `sqlite3` shell.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Table
from sqlmodel import Field, SQLModel


class MetaRow(SQLModel, table=True):
    """A fact about the store itself."""

    __tablename__ = "meta"
    name: str = Field(primary_key=True)
    value: str


class MigrationRow(SQLModel, table=True):
    """A migration that was applied; the highest version is the schema's."""

    __tablename__ = "schema_migrations"
    version: int = Field(primary_key=True)
    name: str
    applied: str
    product_version: str


class RunRow(SQLModel, table=True):
    """A run, with the card columns that the views show."""

    __tablename__ = "runs"
    id: str = Field(primary_key=True)
    created: str
    finished: str | None = None
    status: str
    kind: str
    parent: str | None = Field(default=None, foreign_key="runs.id")
    card: str
    workload: str
    environment: str
    framework: str
    space: str
    objective: str
    metrics: str
    target: str
    target_settings: str
    proposer: str
    model: str | None = None
    sandbox: str
    seed: int | None = Field(default=None, sa_type=BigInteger)
    budgets: str
    tool_versions: str
    product_version: str
    options: str
    stop_reason: str = ""
    notes: str = ""
    model_family: str | None = None
    phase: str | None = None
    framework_version: str | None = None
    batch_size: int | None = Field(default=None, sa_type=BigInteger)
    seq_len: int | None = Field(default=None, sa_type=BigInteger)
    precision: str | None = None
    xpu_model: str | None = None
    total_count: int | None = Field(default=None, sa_type=BigInteger)


class PolicyRow(SQLModel, table=True):
    """A policy, by the SHA-256 of its source."""

    __tablename__ = "policies"
    id: str = Field(primary_key=True)
    source: str
    parent: str | None = None
    created: str


class PromptRow(SQLModel, table=True):
    """A prompt template, by the SHA-256 of its text."""

    __tablename__ = "prompts"
    id: str = Field(primary_key=True)
    text: str
    created: str


class TrialRow(SQLModel, table=True):
    """A trial. `tp` to `micro_batch_size` repeat the plan for the views."""

    __tablename__ = "trials"
    id: int | None = Field(default=None, primary_key=True)
    run_id: str = Field(foreign_key="runs.id")
    number: int
    iteration: int
    state: str
    failure: str | None = None
    evidence: str = ""
    config: str | None = None
    config_key: str | None = None
    plan: str | None = None
    num_xpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    cp: int | None = None
    micro_batch_size: int | None = None
    card: str = ""
    script: str = ""
    policy_id: str | None = Field(default=None, foreign_key="policies.id")
    rationale: str = ""
    score: float | None = None
    objective: str | None = None
    fidelity: str | None = None
    backend: str | None = None
    provenance: str = "{}"
    proposed: str
    launched: str | None = None
    finished: str | None = None
    proposer_seconds: float | None = None
    launch_seconds: float | None = None
    metrics_seconds: float | None = None
    overhead_seconds: float | None = None
    xpu_hours: float | None = None


class AttemptRow(SQLModel, table=True):
    """One launch of a trial."""

    __tablename__ = "attempts"
    id: int | None = Field(default=None, primary_key=True)
    trial_id: int = Field(foreign_key="trials.id")
    number: int
    state: str
    handle: str | None = None
    failure: str | None = None
    evidence: str = ""
    seconds: float | None = None
    xpu_hours: float | None = None
    provenance: str = "{}"
    started: str
    finished: str | None = None


class ScoreRow(SQLModel, table=True):
    """A score a trial was given, with the objective that gave it."""

    __tablename__ = "scores"
    id: int | None = Field(default=None, primary_key=True)
    trial_id: int = Field(foreign_key="trials.id")
    objective: str
    definition: str
    score: float
    created: str


class MetricRow(SQLModel, table=True):
    """A metric value, or the reason why there is none."""

    __tablename__ = "metric_values"
    id: int | None = Field(default=None, primary_key=True)
    trial_id: int = Field(foreign_key="trials.id")
    name: str
    version: str
    unit: str
    value: float | None = None
    reason: str | None = None
    detail: str | None = None
    warnings: str = "[]"
    retracted: bool = False
    retracted_reason: str = ""
    created: str


class TraceRow(SQLModel, table=True):
    """A trace file of a trial."""

    __tablename__ = "trace_files"
    id: int | None = Field(default=None, primary_key=True)
    trial_id: int = Field(foreign_key="trials.id")
    path: str
    size: int = Field(sa_type=BigInteger)
    sha256: str
    kept: bool = True
    reason: str = ""
    dropped: str | None = None


class LlmCallRow(SQLModel, table=True):
    """A request to an LLM and, once it came, the answer."""

    __tablename__ = "llm_calls"
    id: int | None = Field(default=None, primary_key=True)
    run_id: str = Field(foreign_key="runs.id")
    trial_id: int | None = Field(default=None, foreign_key="trials.id")
    iteration: int
    turn: int
    purpose: str
    model: str
    request_sha256: str
    request: str
    prompt_hash: str
    response: str | None = None
    stop_reason: str | None = None
    stop_category: str | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    price_id: str | None = None
    cost_usd: str | None = None
    error: str | None = None
    created: str
    finished: str | None = None


class LlmAttemptRow(SQLModel, table=True):
    """One HTTP attempt at a request."""

    __tablename__ = "llm_attempts"
    id: int | None = Field(default=None, primary_key=True)
    call_id: int = Field(foreign_key="llm_calls.id")
    number: int
    recorded: str
    seconds: float
    http_status: int | None = None
    request_id: str | None = None
    error_type: str | None = None
    error_message: str | None = None


class ScreeningRow(SQLModel, table=True):
    """What a screen decided about a trial's proposal."""

    __tablename__ = "screenings"
    id: int | None = Field(default=None, primary_key=True)
    trial_id: int = Field(foreign_key="trials.id")
    verdict: str
    reason: str
    predicted: str
    expected: str
    score: float | None = None
    threshold: float | None = None
    factor: float | None = None
    reference: int | None = None
    candidates: int = 1
    backend: str = ""
    backend_version: str = ""
    calibration: str = ""
    seconds: float | None = None
    created: str


def table_of(row: type[SQLModel]) -> Table:
    """The table itself, for statements that make no objects."""
    return SQLModel.metadata.tables[str(row.__tablename__)]
