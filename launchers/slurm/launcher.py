"""`SlurmLauncher`: jobs in the queue of a cluster, on this host or behind a login node."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from launchers.base import Handle, Job, JobState
from launchers.shell.command import Command
from launchers.shell.evidence import NOTHING
from launchers.shell.layout import RESULT_FILE, SCRIPT_FILE, Attempt, attempt_of, fingerprint, required_command
from launchers.shell.logs import read_evidence
from launchers.shell.outcome import Account, common_handle, common_provenance, execution
from launchers.shell.result import Result, parse_result
from launchers.shell.runner import LocalRunner, Runner
from launchers.shell.script import Site, SrunOptions, slurm_script
from launchers.slurm.classify import Ending, classify
from launchers.slurm.client import SlurmClient
from launchers.slurm.rows import TERMINAL, AccountRow, covers
from launchers.slurm.settings import SlurmSettings
from launchers.slurm.submission import Submitter, header, request
from launchers.slurm.watch import View, Watch, Watched, latest
from runs.errors import TargetBusyError, TargetUnavailableError
from runs.trial import Execution

_CANCEL_S = 90.0
_KILL_AFTER_S = 30.0
_PAUSE_S = 0.3
_COLLECTED_FILE, _NEVER_FILE = "collected", "never-starts"


class SlurmLauncher:
    """Runs jobs through sbatch. One launcher serves all jobs of a search and asks Slurm about them at once."""

    name = "slurm"

    def __init__(
        self,
        settings: SlurmSettings,
        site: Site | None = None,
        runner: Runner | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self.site = site or Site()
        self.runner: Runner = runner or LocalRunner(bin_dir=settings.bin_dir)
        self.client = SlurmClient(self.runner, settings.polling)
        self.watch = Watch(self.client)
        self._sleep = sleep
        self._submitter = Submitter(self.client, settings, self._left_result, sleep)

    @cached_property
    def version(self) -> str:
        """The cluster's Slurm version."""
        return self.client.version()

    # --- submitting -------------------------------------------------------------------------------------------------

    def script(self, job: Job) -> str:
        """The exact script of a job; nothing is submitted.

        Raises:
            BadInputError: the job has no command.
        """
        attempt, command = attempt_of(job, self.settings.remote_directory), required_command(job)
        options = SrunOptions(attempt.name, self._srun_options())
        lines = header(command, self.settings, job.time_limit_s)
        return slurm_script(attempt, command, self.site, options, lines)

    def submit(self, job: Job) -> Handle:
        """Put the job into the queue, or take it over where an earlier process already did.

        Raises:
            TargetUnavailableError: Slurm cannot be reached, or refuses for a reason in the target file.
            BadInputError: the job has no command, or no node of the cluster can run it.
        """
        attempt, command = attempt_of(job, self.settings.remote_directory), required_command(job)
        script = self.script(job)
        self._write(attempt, command, script)
        mark = f"ccl:{fingerprint(command, attempt.job_dir)}"
        asks = request(command, self.settings, job.time_limit_s)
        job_id, number = self._submitter.submit(attempt, script, mark, asks)
        taken = replace(attempt, number=number)
        handle = common_handle(self.name, taken, command)
        handle |= {"job_id": job_id, "submitted": time.time(), "requeue": self.settings.requeue}
        handle |= {"held": self._held(job, command), "remote": self.settings.remote_directory is not None}
        self._watched(handle)
        return handle

    def _srun_options(self) -> tuple[str, ...]:
        cpus = self.settings.cpus_per_task
        own = () if cpus is None else (f"--cpus-per-task={cpus}",)
        return (*own, *self.settings.srun_extra)

    def _held(self, job: Job, command: Command) -> int:
        """Devices that the job keeps from others: whole nodes where they are exclusive."""
        per_node = self.settings.gpus_per_node or job.environment.xpus_per_node
        return command.nodes * per_node if self.settings.exclusive else command.world_size

    def _write(self, attempt: Attempt, command: Command, script: str) -> None:
        attempt.local_dir.mkdir(parents=True, exist_ok=True)
        files = {f"{attempt.attempt_dir}/{SCRIPT_FILE}": script}
        files |= {f"{attempt.job_dir}/{name}": text for name, text in command.files.items()}
        for path, text in files.items():
            written = self.runner.write(path, text)
            if not written.ok:
                kind = TargetBusyError if written.code is None else TargetUnavailableError
                raise kind(
                    f"{path} cannot be written on {self.runner.where}: {written.complaint}",
                    "set --home, or `remote_directory` in the target file, to a folder you may write to",
                )

    # --- watching ---------------------------------------------------------------------------------------------------

    def poll(self, handle: Handle) -> JobState:
        """What Slurm says now, or said a moment ago (see `Polling`).

        Raises:
            TargetUnavailableError: a job of an earlier process is asked about and Slurm does not answer at all.
        """
        fresh = not self.watch.knows(handle["job_id"])
        self._watched(handle)
        view = self.watch.view(handle["job_id"])
        if fresh and view.phase is JobState.UNKNOWN and not self.watch.answered:
            raise TargetUnavailableError(
                f"job {handle['job_id']} may still run, but Slurm does not answer: {self.client.complaint}",
                "`ccl-search resume` when the cluster is back",
            )
        if view.never:
            self._give_up(handle, view.never)
            return JobState.FINISHED
        return view.phase

    def _give_up(self, handle: Handle, reason: str) -> None:
        """Take a job that never starts out of the queue, and leave word of it for whoever collects it."""
        folder = Path(handle["local_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _NEVER_FILE).write_text(reason, encoding="utf-8")
        self.cancel(handle)

    def _watched(self, handle: Handle) -> None:
        if not self.watch.knows(handle["job_id"]):
            watched = Watched(
                handle["job_id"], handle["name"], handle["submitted"], handle["requeue"], lambda: self._result(handle)
            )
            self.watch.add(watched)

    def _result(self, handle: Handle) -> Result | None:
        return parse_result(self.runner.read(f"{handle['attempt_dir']}/{RESULT_FILE}"))

    def _left_result(self, attempt: Attempt) -> bool:
        """Whether an attempt ended with a result that nobody has collected: a repeat must run, not copy."""
        if (attempt.local_dir / _COLLECTED_FILE).exists():
            return False
        return parse_result(self.runner.read(f"{attempt.attempt_dir}/{RESULT_FILE}")) is not None

    # --- ending -----------------------------------------------------------------------------------------------------

    def cancel(self, handle: Handle) -> None:
        """Cancel the job and wait until Slurm says that it has ended: scancel's own answer proves nothing.

        Raises:
            TargetUnavailableError: that cannot be found out, or the job does not end.
        """
        self._watched(handle)
        before = self.watch.view(handle["job_id"])
        if before.phase is JobState.FINISHED:
            return
        started = time.monotonic()
        options: tuple[str, ...] = ()
        while time.monotonic() - started < _CANCEL_S:
            self.client.cancel(handle["job_id"], handle["name"], *options)
            if self._ends(handle):
                return
            if time.monotonic() - started > _KILL_AFTER_S:
                options = ("--full", "--signal=KILL")
        raise TargetUnavailableError(
            f"job {handle['job_id']} was cancelled, but Slurm does not say that it has ended",
            f"run `scancel {handle['job_id']}` there",
        )

    def _ends(self, handle: Handle, seconds: float = 10.0) -> bool:
        """Whether the job ends within a few seconds. Silence is no end; accounting or result file may tell."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.watch.refresh()
            if self.watch.view(handle["job_id"]).phase is JobState.FINISHED:
                return True
            self._sleep(_PAUSE_S)
        return False

    # --- collecting -------------------------------------------------------------------------------------------------

    def collect(self, handle: Handle) -> Execution:
        """What the job left: class, evidence, device hours, and where it ran.

        Raises:
            TargetBusyError: the job's files cannot be fetched from the cluster.
        """
        self._watched(handle)
        view = self.watch.view(handle["job_id"])
        directory = Path(handle["directory"])
        if handle["remote"]:
            shutil.rmtree(directory / "trace", ignore_errors=True)  # of an earlier attempt
            fetched = self.runner.fetch(handle["job_dir"], directory)
            if not fetched.ok:
                raise TargetBusyError(
                    f"the files of job {handle['job_id']} cannot be fetched: {fetched.complaint}",
                    "check the connection and the free space here",
                )
        ending = self._ending(handle, view)
        Path(handle["local_dir"]).mkdir(parents=True, exist_ok=True)
        (Path(handle["local_dir"]) / _COLLECTED_FILE).touch()
        account = Account(_seconds(ending), handle["held"], self._provenance(handle, ending))
        return execution(classify(ending), ending.evidence, account, handle, directory / "trace")

    def _ending(self, handle: Handle, view: View) -> Ending:
        control, result = self.client.control(handle["job_id"]), self._result(handle)
        clear = view.state == "COMPLETED" and result is not None and result.exit_code == 0 and control is not None
        rows = self._account(handle, 0.0 if clear else self.settings.polling.accounting_s)
        job = latest(rows, handle["job_id"], handle["name"])
        steps = [row for row in rows if row.step and covers(row.job_id, handle["job_id"])]
        own = [row for row in steps if job is None or row.submitted >= job.submitted]
        state = job.state if view.state not in TERMINAL and job is not None else view.state
        folder = Path(handle["local_dir"])
        evidence = read_evidence(folder, handle["per_node"]) if folder.is_dir() else NOTHING
        never = LocalRunner().read(str(folder / _NEVER_FILE)) or ""
        return Ending(state, view.reason, job, tuple(own), control, result, evidence, view.lost, never)

    def _account(self, handle: Handle, patience_s: float) -> list[AccountRow]:
        """The accounting's rows, once those of the job's last start are final, steps too; it lags behind the queue."""
        since, job_id = int((time.time() - handle["submitted"]) / 86400) + 2, handle["job_id"]
        deadline = time.monotonic() + patience_s
        while True:
            rows = self.client.account([job_id], since) or []
            job = latest(rows, job_id, handle["name"])
            settled = job is not None and all(row.state in TERMINAL for row in _of_last_start(rows, job_id, job))
            if settled or not self.client.accounting or time.monotonic() >= deadline:
                return rows
            self._sleep(_PAUSE_S)

    def _provenance(self, handle: Handle, ending: Ending) -> dict[str, Any]:
        facts = common_provenance(handle, ending.result)
        rows = [source for source in (ending.job, ending.control) if source is not None]
        nodes = next((row.node_list for row in rows if row.node_list not in ("", "(null)", "None assigned")), None)
        facts |= {"job_id": handle["job_id"], "slurm_version": self.version, "slurm_state": ending.state}
        facts |= {"nodes": nodes or (ending.result.nodes if ending.result else None)}
        facts |= {"accounting": self.client.accounting, "where": self.runner.where}
        if ending.control is not None:
            facts["restarts"] = ending.control.restarts
        return facts


def _of_last_start(rows: list[AccountRow], job_id: str, newest: AccountRow) -> list[AccountRow]:
    """Rows of a job, without those of starts that Slurm put back into the queue: they stay `REQUEUED` for ever."""
    return [row for row in rows if covers(row.job_id, job_id) and row.submitted >= newest.submitted]


def _seconds(ending: Ending) -> float | None:
    """Wall time of the job: the script's own, to fractions of a second; Slurm's where it left no result."""
    if ending.result is not None:
        return ending.result.seconds
    sources = (ending.job, ending.control)
    return next((source.seconds for source in sources if source is not None and source.seconds is not None), None)
