"""The `local` target: jobs run on this machine as detached process groups, so that a new process can take them up."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchers.base import Handle, Job, JobState
from launchers.shell import processes
from launchers.shell.evidence import Evidence
from launchers.shell.layout import RESULT_FILE, SCRIPT_FILE, Attempt, attempt_of, required_command
from launchers.shell.logs import read_evidence
from launchers.shell.outcome import (
    Account,
    Verdict,
    common_handle,
    common_provenance,
    describe_exit,
    execution,
    judge_exit,
)
from launchers.shell.result import Result, parse_result
from launchers.shell.runner import LocalRunner, clean_environment
from launchers.shell.script import GRACE_S, Site, local_script
from runs.errors import BadInputError, TargetUnavailableError
from runs.trial import Execution, FailureClass

_GRACE_S = GRACE_S + 3.0
_CANCELLED_FILE = "cancelled"


@dataclass
class LocalLauncher:
    """Runs each job under bash in a session of its own. `site` is what the target file adds, `environment` too."""

    site: Site = field(default_factory=Site)
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = "local"

    def __post_init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def script(self, job: Job) -> str:
        """The exact script of a job; nothing is started.

        Raises:
            BadInputError: the job has no command, or it does not fit one machine.
        """
        command = required_command(job)
        if command.nodes > 1:
            raise BadInputError(
                f"trial {job.trial} needs {command.nodes} machines of {command.xpus_per_node} devices",
                "this machine is one node: choose configs of at most its devices, or a slurm target",
            )
        return local_script(attempt_of(job), command, self.site, job.time_limit_s)

    def submit(self, job: Job) -> Handle:
        """Start the job detached from this process.

        Raises:
            BadInputError: see `script`.
            TargetUnavailableError: the job's folder cannot be written or bash cannot be started.
        """
        text, attempt, command = self.script(job), attempt_of(job), required_command(job)
        runner = LocalRunner()
        files = {f"{attempt.attempt_dir}/{SCRIPT_FILE}": text}
        files |= {f"{attempt.job_dir}/{name}": content for name, content in command.files.items()}
        for path, content in files.items():
            written = runner.write(path, content)
            if not written.ok:
                raise TargetUnavailableError(f"{path} cannot be written: {written.complaint}", "check --home")
        return start_detached(self, common_handle(self.name, attempt, command), attempt)

    def poll(self, handle: Handle) -> JobState:
        """RUNNING while the script runs, FINISHED afterwards, UNKNOWN for what this machine never ran."""
        self._reap()
        if processes.runs(handle["pid"], handle["identity"]):
            return JobState.RUNNING
        return JobState.FINISHED if Path(handle["local_dir"]).is_dir() else JobState.UNKNOWN

    def cancel(self, handle: Handle) -> None:
        """End every process of the job: its session, and what left the session but kept the job's mark.

        Raises:
            TargetUnavailableError: a process cannot be killed.
        """
        mark = f"CCL_ATTEMPT={handle['mark']}"
        if self.poll(handle) is JobState.RUNNING:
            (Path(handle["local_dir"]) / _CANCELLED_FILE).touch()
        if not processes.runs(handle["pid"], handle["identity"]):
            # The pid may belong to a stranger by now: only the mark tells what is ours.
            ended = processes.end(lambda: processes.members(-1, mark), _GRACE_S)
        else:
            ended = processes.end(lambda: processes.members(handle["pid"], mark), _GRACE_S)
        self._reap()
        if not ended:
            raise TargetUnavailableError(
                f"processes of {handle['name']} do not end", f"look at them: ps -s {handle['pid']} -o pid,stat,args"
            )

    def collect(self, handle: Handle) -> Execution:
        """What the job left. One that ended without a result file was killed from outside."""
        folder = Path(handle["local_dir"])
        result = parse_result(LocalRunner().read(str(folder / RESULT_FILE)))
        evidence = read_evidence(folder, handle["per_node"])
        account = Account(_seconds(handle, result), handle["xpus"], common_provenance(handle, result))
        cancelled = (folder / _CANCELLED_FILE).exists()
        return execution(
            _verdict(result, evidence, cancelled), evidence, account, handle, Path(handle["directory"]) / "trace"
        )

    # --- processes of this launcher ---------------------------------------------------------------------------------

    def start(self, attempt: Attempt) -> int:
        """Start an attempt's script in a session of its own; the pid of its leader."""
        environment = {**clean_environment(os.environ), **self.environment}
        for name in ("LC_ALL", "SLURM_TIME_FORMAT"):
            environment.pop(name, None)
        with (attempt.local_dir / "job.out").open("wb") as out, (attempt.local_dir / "job.err").open("wb") as err:
            child = subprocess.Popen(
                ["bash", str(attempt.local_dir / SCRIPT_FILE)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )
        with self._lock:
            self._children[child.pid] = child
        return child.pid

    def _reap(self) -> None:
        with self._lock:
            for pid in [pid for pid, child in self._children.items() if child.poll() is not None]:
                del self._children[pid]


def start_detached(launcher: LocalLauncher, handle: Handle, attempt: Attempt) -> Handle:
    """Start the attempt's script and complete its handle with what a new process needs to find it again.

    Raises:
        TargetUnavailableError: bash cannot be started.
    """
    started = time.time()
    try:
        pid = launcher.start(attempt)
    except OSError as error:
        raise TargetUnavailableError(f"bash cannot be started: {error}", "install bash 4.3 or newer") from error
    found = {**handle, "pid": pid, "identity": processes.identity(pid), "submitted": started}
    (attempt.local_dir / "process.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def _verdict(result: Result | None, evidence: Evidence, cancelled: bool) -> Verdict:
    if result is None and cancelled:
        return Verdict(FailureClass.CANCELLED, "cancelled")
    if result is None:
        failure = evidence.failure or FailureClass.NODE_FAILURE
        return Verdict(failure, "the script was killed from outside and left no result")
    if result.reason == "time_limit":
        return Verdict(FailureClass.TIMEOUT, f"no end within the time limit, after {result.seconds:.0f} s")
    if result.reason == "signal":
        return Verdict(FailureClass.CANCELLED, f"told to end: {describe_exit(result.exit_code)}")
    return judge_exit(result.exit_code, result.stage, evidence)


def _seconds(handle: Handle, result: Result | None) -> float | None:
    if result is not None:
        return result.seconds
    folder = Path(handle["local_dir"])
    changed = [path.stat().st_mtime for path in folder.iterdir()] if folder.is_dir() else []
    return max(0.0, max(changed) - handle["submitted"]) if changed else None


def from_settings(settings: dict[str, Any]) -> LocalLauncher:
    """Build the launcher from a target's settings: `setup`, `env`, `launch_prefix` (see docs/targets.md).

    Raises:
        BadInputError: a setting is unknown.
    """
    unknown = sorted(set(settings) - {"setup", "env", "launch_prefix"})
    if unknown:
        raise BadInputError(f"local: unknown setting {', '.join(unknown)}", "known: env, launch_prefix, setup")
    return LocalLauncher(
        Site(settings.get("setup", ""), settings.get("env", {}), tuple(settings.get("launch_prefix", ())))
    )
