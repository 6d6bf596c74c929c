"""Writing runs: creating, ending and reopening them, and the policies and prompts they share."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import bindparam, insert, update
from sqlmodel import Session, col, select

from runs.digests import text_sha256
from runs.objective import Objective
from runs.store.encoding import clean, dump, refuse_secrets, stamp
from runs.store.errors import StoreError
from runs.store.part import Part, execute, now, run_row
from runs.store.records import NewRun, RunStatus
from runs.store.tables import PolicyRow, PromptRow, RunRow

_TRIES = 8


class RunPart(Part):
    """The methods of the store that write runs, policies and prompts."""

    def create_run(self, run: NewRun) -> str:
        """Store a run, in status running; its id, `YYYYMMDD-HHMMSS-xxxx` in UTC, sorts by the second of creation.

        Raises:
            BadInputError: settings or options hold a credential.
            StoreError: something is not JSON data, or the parent run does not exist.
        """
        refuse_secrets(run.target_settings, "target_settings")
        refuse_secrets(run.options, "options")
        created = run.created or datetime.now(UTC)
        with self._database.transaction() as session:
            run_id = _free_id(session, created)
            if run.parent is not None:
                run_row(session, run.parent)
            session.add(_new_run(run, run_id, stamp(created)))
        return run_id

    def finish_run(self, run_id: str, status: RunStatus, stop_reason: str = "") -> None:
        """End a run with the reason why it stopped.

        Raises:
            StoreError: `status` is running.
        """
        if status is RunStatus.RUNNING:
            raise StoreError(f"run {run_id} cannot end as running", "use reopen_run to continue a run")
        with self._database.transaction() as session:
            row = run_row(session, run_id)
            row.status, row.stop_reason, row.finished = status.value, clean(stop_reason), now()

    def reopen_run(
        self, run_id: str, *, options: dict[str, Any] | None = None, budgets: dict[str, Any] | None = None
    ) -> None:
        """Let an ended or interrupted run continue: status running, no end, no reason; what is not given stays.

        Raises:
            BadInputError: there is no such run, or the options hold a credential.
        """
        refuse_secrets(options or {}, "options")
        with self._database.transaction() as session:
            row = run_row(session, run_id)
            row.status, row.stop_reason, row.finished = RunStatus.RUNNING.value, "", None
            row.options = row.options if options is None else dump(options, "options")
            row.budgets = row.budgets if budgets is None else dump(budgets, "budgets")

    def set_objective(self, run_id: str, objective: Objective) -> None:
        """Replace the run's objective, for instance by itself with the baselines of trial 0."""
        with self._database.transaction() as session:
            run_row(session, run_id).objective = dump(objective.as_dict(), "objective")

    def set_option(self, run_id: str, name: str, value: Any) -> None:
        """Set one of the run's options to plain JSON data.

        Raises:
            BadInputError: the value holds a credential.
        """
        refuse_secrets({name: value}, "options")
        with self._database.transaction() as session:
            row = run_row(session, run_id)
            row.options = dump({**json.loads(row.options), name: value}, "options")

    def set_notes(self, run_id: str, text: str) -> None:
        """Replace the run's notes."""
        with self._database.transaction() as session:
            run_row(session, run_id).notes = clean(text)

    def add_policy(self, source: str, parent: str | None = None) -> str:
        """Store a policy once; the SHA-256 of its source. A policy that is known keeps its first parent."""
        with self._database.transaction() as session:
            return store_policy(session, source, parent)

    def add_prompt(self, text: str) -> str:
        """Store a prompt template once; the SHA-256 of its text, which is an LLM request's `prompt_hash`."""
        name = text_sha256(text)
        with self._database.transaction() as session:
            if session.get(PromptRow, name) is None:
                session.add(PromptRow(id=name, text=text, created=now()))
        return name

    def mark_interrupted(self) -> int:
        """Give every run that is still running the status interrupted; how many. For whoever just took the lock."""
        running, interrupted = RunStatus.RUNNING.value, RunStatus.INTERRUPTED.value
        with self._database.transaction() as session:
            statement = update(RunRow).where(col(RunRow.status) == running).values(status=interrupted)
            return int(session.connection().execute(statement).rowcount)


def store_policy(session: Session, source: str, parent: str | None) -> str:
    """Store a policy inside a transaction; the SHA-256 of its source."""
    kept = clean(source)
    name = text_sha256(kept)
    if execute(session, _POLICY_ID, {"name": name}).first() is None:
        execute(session, insert(PolicyRow), {"id": name, "source": kept, "parent": parent, "created": now()})
    return name


_POLICY_ID = select(PolicyRow.id).where(PolicyRow.id == bindparam("name"))


def _free_id(session: Session, created: datetime) -> str:
    moment = created.replace(tzinfo=UTC) if created.tzinfo is None else created.astimezone(UTC)
    for _ in range(_TRIES):
        run_id = f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if session.get(RunRow, run_id) is None:
            return run_id
    raise StoreError("no free run id was found", "try again in a second")


def _new_run(run: NewRun, run_id: str, created: str) -> RunRow:
    return RunRow(
        id=run_id,
        created=created,
        status=RunStatus.RUNNING.value,
        kind=run.kind,
        parent=run.parent,
        card=clean(run.card),
        workload=dump(run.workload, "workload"),
        environment=dump(run.environment, "environment"),
        framework=run.framework,
        space=dump(run.space.as_dict(), "space"),
        objective=dump(run.objective.as_dict(), "objective"),
        metrics=dump([asdict(spec) for spec in run.metrics], "metrics"),
        target=run.target,
        target_settings=dump(run.target_settings, "target_settings"),
        proposer=run.proposer,
        model=run.model,
        sandbox=run.sandbox,
        seed=run.seed,
        budgets=dump(run.budgets, "budgets"),
        tool_versions=dump(run.tool_versions, "tool_versions"),
        product_version=run.product_version,
        options=dump(run.options, "options"),
        notes=clean(run.notes),
        **_card_columns(run),
    )


def _card_columns(run: NewRun) -> dict[str, Any]:
    workload, environment = run.workload, run.environment
    return {
        "model_family": workload.get("model_family"),
        "phase": workload.get("phase"),
        "batch_size": workload.get("batch_size"),
        "seq_len": workload.get("seq_len"),
        "precision": workload.get("precision"),
        "framework_version": environment.get("framework_version"),
        "xpu_model": environment.get("gpu_model"),
        "total_count": environment.get("total_gpus"),
    }
