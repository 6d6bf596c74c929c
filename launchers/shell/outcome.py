"""From what a job left to an `Execution`: the result file, the logs and the trace files, judged the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers.base import Handle
from launchers.shell.command import Command
from launchers.shell.evidence import NOTHING, Evidence
from launchers.shell.layout import Attempt
from launchers.shell.result import Result
from runs.trial import Execution, FailureClass, TrialState

_NO_PROGRAM = (126, 127)
_SIGNAL_BASE = 128


@dataclass(frozen=True)
class Verdict:
    """Why a job ended: no `failure` is success. `reason` says it in words, before the logs are quoted."""

    failure: FailureClass | None
    reason: str = ""


SUCCESS = Verdict(None)


@dataclass(frozen=True)
class Account:
    """What the job used: wall time in seconds, devices it held, and facts about it for the record."""

    seconds: float | None
    xpus: int
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def xpu_hours(self) -> float | None:
        """Device hours the job held; None where its time is not known."""
        return None if self.seconds is None else self.seconds * self.xpus / 3600


def judge_exit(code: int, stage: str, evidence: Evidence) -> Verdict:
    """What the exit code of a job's script means, with its logs."""
    if code == 0:
        return SUCCESS
    if stage == "setup":
        return Verdict(FailureClass.LAUNCH, f"the target's setup lines ended with exit code {code}")
    if evidence.failure is not None:
        return Verdict(evidence.failure, describe_exit(code))
    if code in _NO_PROGRAM:
        return Verdict(FailureClass.LAUNCH, f"{describe_exit(code)}: the program cannot be started")
    return Verdict(FailureClass.FRAMEWORK_ERROR, describe_exit(code))


def describe_exit(code: int) -> str:
    """An exit code in words; above 128 it names a signal, as shells do."""
    if code > _SIGNAL_BASE:
        return f"exit code {code} (signal {code - _SIGNAL_BASE})"
    return f"exit code {code}"


def execution(verdict: Verdict, evidence: Evidence, account: Account, handle: Handle, trace_dir: Path) -> Execution:
    """The `Execution` of a job that has ended."""
    if verdict.failure is None:
        missing = missing_traces(trace_dir, handle["trace_globs"], handle["trace_count"])
        if missing:
            verdict, evidence = Verdict(FailureClass.TRACE_MISSING, missing), NOTHING
    text = "\n".join(part for part in (verdict.reason, evidence.text) if part)
    state = {None: TrialState.SUCCEEDED, FailureClass.CANCELLED: TrialState.CANCELLED}
    return Execution(
        state.get(verdict.failure, TrialState.FAILED),
        trace_dir=trace_dir if trace_dir.is_dir() else None,
        failure=verdict.failure,
        evidence="" if verdict.failure is None else text,
        seconds=account.seconds,
        xpu_hours=account.xpu_hours,
        provenance=account.provenance,
    )


def missing_traces(trace_dir: Path, globs: Sequence[str], count: int | None) -> str:
    """Why the traces are not complete; empty where they are.

    A profiler switch that a version does not know leaves no trace and no error, so that only this check tells.
    """
    if not globs:
        return ""
    found = {path for pattern in globs for path in trace_dir.glob(pattern) if path.is_file()}
    if count is None and found:
        return ""
    if count is not None and len(found) >= count:
        return ""
    wanted = "at least one" if count is None else str(count)
    return f"{len(found)} trace files of {wanted} in {trace_dir} ({', '.join(globs)})"


def common_handle(launcher: str, attempt: Attempt, command: Command) -> Handle:
    """What every handle of a shell launcher holds."""
    return {
        "launcher": launcher,
        "attempt": attempt.number,
        "name": attempt.name,
        "mark": attempt.mark,
        "directory": str(attempt.directory),
        "job_dir": attempt.job_dir,
        "attempt_dir": attempt.attempt_dir,
        "local_dir": str(attempt.local_dir),
        "nodes": command.nodes,
        "per_node": command.per_node,
        "xpus": command.world_size,
        "trace_globs": list(command.trace_globs),
        "trace_count": command.trace_count,
        "argv": list(command.argv),
        "framework_version": command.framework_version,
        "notes": list(command.notes),
        "steps": dict(command.steps),
    }


def common_provenance(handle: Handle, result: Result | None) -> dict[str, Any]:
    """Facts for the record that every shell launcher has."""
    facts: dict[str, Any] = {name: handle[name] for name in ("launcher", "name", "argv", "framework_version", "notes")}
    facts |= handle.get("steps", {})
    if result is not None:
        facts |= {"started": result.started, "ended": result.ended, "host": result.host, "restarts": result.restarts}
    return facts
