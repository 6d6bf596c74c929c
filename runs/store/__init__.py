"""The store: every run, trial, policy, metric value and LLM call in one SQLite file, written by one process.

Importing this package is cheap; `Store` is loaded (with sqlmodel, about 0.8 s) when it is first named, so code that
starts the CLI says `from runs.store import Store` inside the function that opens it. Records and errors cost nothing.

    Store.open(home=None, url=None, *, write=False, metric_columns=None, product_version="") -> Store
        a context manager; `write=True` takes the writer lock and creates or migrates the store; `close()` frees it
    resolve_home(home=None) -> Path                       --home, else CCL_SEARCH_HOME, else ./ccl-runs
    resolve_url(home, url=None) -> str                    url, else CCL_SEARCH_STORE_URL, else the SQLite file in home

    store.home, store.url, store.ledger (runs.ledger.LlmLedger)
    store.run_dir(run_id) -> Path                         a writer makes it when it is missing
    store.trial_dir(run_id, number) -> Path               home/runs/<run_id>/trials/<number>, the same
    store.transaction()                                   context manager: everything inside is one transaction

    store.create_run(NewRun) -> run_id                    status running
    store.finish_run(run_id, status, stop_reason="")      finished | interrupted | failed | cancelled
    store.reopen_run(run_id, *, options=None, budgets=None)                       running again, for resume
    store.set_objective(run_id, objective)                once the baselines of trial 0 are known
    store.set_notes(run_id, text); store.set_option(run_id, name, value)

    store.add_trial(run_id, NewTrial) -> number           queued; a refusal is added as pruned, with its class, at once
    store.prepare_trial(run_id, number, *, plan=None, card="", script="", num_xpus=None)   what will be launched
    store.begin_attempt(run_id, number, *, card="", script="") -> attempt         the trial runs
    store.set_handle(run_id, number, attempt, handle)     committed before anybody waits
    store.finish_attempt(run_id, number, attempt, execution)
    store.finish_trial(run_id, number, TrialOutcome)      state, metrics, score, traces: one transaction
    store.rescore_trial(run_id, number, *, objective, score, metrics=())   old scores stay in `scores`; None: no score
    store.add_metric_values(run_id, number, values)
    store.retract(name, version, reason) -> count         flags values of a bad tool version
    store.add_trace_files(run_id, number, files); store.drop_trace_file(run_id, number, path, reason)
    store.add_policy(source, parent=None) -> sha256; store.add_prompt(text) -> sha256

    store.list_runs(status=None, kind=None, limit=None) -> list[RunRecord]        newest first
    store.run(reference) -> RunRecord                     an id, a unique beginning of one, or `latest`
    store.trials(run_id, states=None) -> list[TrialRecord]; store.trial(run_id, number) -> TrialRecord
    store.best(run_id, fidelity=None) -> TrialRecord | None
    store.attempts(run_id, number) -> list[AttemptRecord]
    store.scores(run_id, number) -> list[ScoreRecord]
    store.metric_values(run_id, number) -> list[MetricRecord]                     all versions, retracted ones too
    store.retracted_values(run_id) -> dict[int, list[MetricRecord]]               of all trials, by trial
    store.trace_files(run_id, number) -> list[TraceFile]
    store.screenings(run_id) -> dict[int, Screening]      decisions of a screen, by trial
    store.policy(sha256) -> PolicyRecord; store.prompt(sha256) -> str
    store.llm_calls(run_id, iteration=None) -> list[LlmCallRecord]
    store.totals(run_id) -> RunTotals                     an unknown part makes a total None, never 0
    store.query(sql, parameters=()) -> list[dict]         plain SQL, read only
    store.check() -> list[str]; store.backup(path); store.writer_pid() -> int | None
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runs.store.errors import StoreError, StoreLockedError
from runs.store.home import resolve_home, resolve_url
from runs.store.records import (
    AttemptRecord,
    LlmCallRecord,
    MetricRecord,
    NewRun,
    NewTrial,
    PolicyRecord,
    RunRecord,
    RunStatus,
    RunTotals,
    ScoreRecord,
    Timings,
    TraceFile,
    TrialOutcome,
    TrialRecord,
)

if TYPE_CHECKING:
    from runs.store.store import Store

__all__ = [
    "AttemptRecord",
    "LlmCallRecord",
    "MetricRecord",
    "NewRun",
    "NewTrial",
    "PolicyRecord",
    "RunRecord",
    "RunStatus",
    "RunTotals",
    "ScoreRecord",
    "Store",
    "StoreError",
    "StoreLockedError",
    "Timings",
    "TraceFile",
    "TrialOutcome",
    "TrialRecord",
    "resolve_home",
    "resolve_url",
]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from runs.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
