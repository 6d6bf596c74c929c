"""Slurm's commands. Each answers with rows, or with None where Slurm gave no answer: silence is never an empty list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launchers.shell.runner import Completed, Runner
from launchers.slurm.rows import (
    ACCOUNTING_FIELDS,
    QUEUE_FORMAT,
    AccountRow,
    ControlRecord,
    QueueRow,
    account_rows,
    control_record,
    queue_rows,
)
from launchers.slurm.settings import Polling

_UNKNOWN_ID = "Invalid job id specified"
_ACCOUNTING_OFF = ("accounting storage is disabled", "Slurm accounting storage is disabled")


@dataclass
class SlurmClient:
    """One cluster. `accounting` turns False for good once Slurm says that it keeps none."""

    runner: Runner
    polling: Polling
    accounting: bool = True
    calls: int = 0
    complaint: str = ""

    def queue(self, job_ids: Iterable[str]) -> list[QueueRow] | None:
        """What squeue knows of these jobs, ended ones included while it remembers them."""
        ids = sorted(set(job_ids))
        return self._queue("-j", ",".join(ids)) if ids else []

    def queue_by_name(self, names: Sequence[str]) -> list[QueueRow] | None:
        """Jobs of the user with these names."""
        return self._queue("--me", "-n", ",".join(names))

    def _queue(self, *which: str) -> list[QueueRow] | None:
        done = self._run("squeue", "-h", "-r", "-t", "all", *which, "-o", QUEUE_FORMAT)
        if not done.ok and _UNKNOWN_ID in done.err:
            return []
        return queue_rows(done.out) if done.ok else None

    def account(self, job_ids: Iterable[str], since_days: int) -> list[AccountRow] | None:
        """What sacct knows of these jobs and their steps, earlier starts included; None without accounting."""
        ids = sorted(set(job_ids))
        if not ids or not self.accounting:
            return None if ids else []
        fields = ",".join(ACCOUNTING_FIELDS)
        done = self._run("sacct", "-n", "-P", "-D", "-S", f"now-{since_days}days", "-j", ",".join(ids), "-o", fields)
        if any(text in done.err for text in _ACCOUNTING_OFF):
            self.accounting = False
        return account_rows(done.out) if done.ok else None

    def control(self, job_id: str) -> ControlRecord | None:
        """What the controller itself knows of a job; None where it does not answer or has forgotten it."""
        done = self._run("scontrol", "-o", "-d", "show", "job", job_id)
        return control_record(done.out) if done.ok else None

    def submit(self, arguments: Sequence[str], script: str) -> Completed:
        """Run sbatch."""
        self.calls += 1
        return self.runner.run(("sbatch", "--parsable", *arguments), script, self.polling.submit_timeout_s)

    def test(self, arguments: Sequence[str], script: str) -> Completed:
        """Ask sbatch whether the job could start, without submitting it."""
        self.calls += 1
        return self.runner.run(("sbatch", "--test-only", *arguments), script, self.polling.submit_timeout_s)

    def cancel(self, job_id: str, name: str, *options: str) -> Completed:
        """Run scancel for a job, if it still bears the name: ids are used again. Its exit code proves nothing."""
        return self._run("scancel", *options, "--name", name, job_id)

    def version(self) -> str:
        """The cluster's Slurm version, empty where it does not say."""
        done = self._run("sbatch", "--version")
        return done.out.strip().removeprefix("slurm ").strip() if done.ok else ""

    def _run(self, *argv: str) -> Completed:
        self.calls += 1
        done = self.runner.run(argv, timeout_s=self.polling.command_timeout_s)
        self.complaint = "" if done.ok else f"{argv[0]} on {self.runner.where}: {done.complaint}"
        return done
