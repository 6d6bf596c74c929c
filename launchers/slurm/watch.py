"""One look at the queue for all jobs: squeue, then sacct for what squeue no longer lists, then result files."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from launchers.base import JobState
from launchers.shell.result import Result
from launchers.slurm.client import SlurmClient
from launchers.slurm.rows import RUNNING, TERMINAL, AccountRow, QueueRow, covers, whole_row

_GROWTH = 1.5
_JITTER = 0.1
_REQUEUE_S = 150.0
_DAY_S = 86400.0
_MAY_COME_BACK = frozenset({"PREEMPTED", "NODE_FAIL"})
_WAITS_AGAIN = frozenset({"PENDING", "REQUEUED"})
NEVER_STARTS = frozenset(
    {
        "PartitionNodeLimit", "PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit", "DependencyNeverSatisfied",
        "JobHeldUser", "JobHeldAdmin", "BadConstraints", "InvalidQOS", "InvalidAccount", "PartitionDown",
        "PartitionInactive", "AccountNotAllowed", "QOSNotAllowed", "QOSMaxNodePerJobLimit", "QOSMaxGRESPerJob",
        "QOSMaxCpuPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit", "AssocMaxGRESPerJob",
        "job requeued in held state", "launch failed requeued held", "Reservation deleted",
    }
)  # fmt: skip
"""Reasons for waiting that do not go away by themselves."""


@dataclass(frozen=True)
class Watched:
    """A job that is watched: what identifies it, since when, and whether Slurm may start it again."""

    job_id: str
    name: str
    submitted: float
    requeue: bool
    result: Callable[[], Result | None]


@dataclass(frozen=True)
class View:
    """The last that was seen of a job. `lost` and `never` are verdicts in words, `state` is Slurm's word."""

    phase: JobState
    state: str = ""
    reason: str = ""
    lost: str = ""
    never: str = ""


_NOT_SEEN = View(JobState.UNKNOWN)


class Watch:
    """Asks Slurm about all its jobs at once, less often the longer nothing changes.

    Safe to use from several threads; they share the answers.
    """

    def __init__(
        self,
        client: SlurmClient,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.answered = True
        self._clock, self._now = clock, now
        self._lock = threading.RLock()
        self._jobs: dict[str, Watched] = {}
        self._views: dict[str, View] = {}
        self._since: dict[str, tuple[str, float]] = {}
        self._pause = client.polling.first_s
        self._due = 0.0

    def add(self, job: Watched) -> None:
        """Watch a job from now on; the next question is asked soon."""
        with self._lock:
            self._jobs[job.job_id] = job
            self._views[job.job_id] = _NOT_SEEN
            self._soon()

    def knows(self, job_id: str) -> bool:
        """Whether the job is watched."""
        return job_id in self._jobs

    def view(self, job_id: str) -> View:
        """The last that was seen of a watched job, after a question to Slurm if one is due."""
        with self._lock:
            if self._views[job_id].phase is not JobState.FINISHED and self._clock() >= self._due:
                self.refresh()
            return self._views[job_id]

    def refresh(self) -> None:
        """Ask now, about every job that has not ended."""
        with self._lock:
            open_jobs = [job for job in self._jobs.values() if self._views[job.job_id].phase is not JobState.FINISHED]
            before = dict(self._views)
            self._views.update(self._look(open_jobs))
            if before == self._views:
                self._pause = min(self._pause * _GROWTH, self.client.polling.longest_s)
            else:
                self._pause = self.client.polling.first_s
            self._due = self._clock() + self._pause * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311

    def _soon(self) -> None:
        self._pause = self.client.polling.first_s
        self._due = min(self._due, self._clock())

    def _look(self, jobs: list[Watched]) -> dict[str, View]:
        rows = self.client.queue(job.job_id for job in jobs)
        arrays: dict[str, list[QueueRow]] = defaultdict(list)
        for row in rows or ():
            arrays[row.job_id.partition("_")[0]].append(row)
        own = {job.job_id: self._own(job, arrays[job.job_id.partition("_")[0]]) for job in jobs}
        found = {job.job_id: self._listed(job, whole_row(own[job.job_id])) for job in jobs if own[job.job_id]}
        missing = [job for job in jobs if job.job_id not in found]
        if not missing:
            self.answered = True
            return found
        accounts = self.client.account((job.job_id for job in missing), self._days(missing))
        self.answered = rows is not None or accounts is not None
        for job in missing:
            newest = latest(accounts or [], job.job_id, job.name)
            found[job.job_id] = self._absent(job, newest, rows is not None)
        return found

    def _own(self, job: Watched, rows: list[QueueRow]) -> list[QueueRow]:
        """The job's rows, one unless it is an array. The name guards against an id that was given away again."""
        return [row for row in rows if row.name == job.name and covers(row.job_id, job.job_id)]

    def _listed(self, job: Watched, row: QueueRow) -> View:
        if row.state in TERMINAL:
            return self._ended(job, View(JobState.FINISHED, row.state, row.reason))
        if row.state in RUNNING:
            return self._kept(job, View(JobState.RUNNING, row.state, row.reason))
        view = self._kept(job, View(JobState.QUEUED, row.state, row.reason))
        waits = self._seconds_as(job, row.reason)
        if row.reason in NEVER_STARTS and waits >= self.client.polling.never_starts_s:
            return replace(view, never=row.reason)
        return view

    def _absent(self, job: Watched, row: AccountRow | None, answered: bool) -> View:
        """A job that squeue does not list (or squeue gave no answer): accounting, then the result file, then time."""
        if row is not None and row.state in TERMINAL:
            return self._ended(job, View(JobState.FINISHED, row.state))
        if job.requeue and row is not None and row.state in _WAITS_AGAIN:
            return View(JobState.QUEUED, row.state)
        result = job.result()
        if result is not None:
            return View(JobState.FINISHED, "COMPLETED" if result.exit_code == 0 else "FAILED")
        if row is not None:
            phase = JobState.RUNNING if row.state in RUNNING else JobState.QUEUED
            return View(phase, row.state)
        last = self._views[job.job_id]
        if not answered:
            return replace(last, phase=JobState.UNKNOWN)
        silent = self._seconds_as(job, "absent")
        if silent < self.client.polling.absence_s:
            return View(JobState.UNKNOWN, last.state)
        return View(JobState.FINISHED, last.state, lost=f"Slurm has not known the job for {silent:.0f} s")

    def _ended(self, job: Watched, view: View) -> View:
        """A job that may be requeued is not at its end before Slurm had time to put it back into the queue."""
        if job.requeue and view.state in _MAY_COME_BACK and self._seconds_as(job, view.state) < _REQUEUE_S:
            return View(JobState.QUEUED, view.state, view.reason)
        return view

    def _kept(self, job: Watched, view: View) -> View:
        self._seconds_as(job, view.reason)
        return view

    def _seconds_as(self, job: Watched, condition: str) -> float:
        """How long the job has been in this condition, as far as this process saw."""
        known, since = self._since.get(job.job_id, ("", 0.0))
        if known != condition:
            self._since[job.job_id] = (condition, self._clock())
            return 0.0
        return self._clock() - since

    def _days(self, jobs: list[Watched]) -> int:
        oldest = min(job.submitted for job in jobs)
        return int((self._now() - oldest) / _DAY_S) + 2


def latest(rows: list[AccountRow], job_id: str, name: str) -> AccountRow | None:
    """The newest row of the job itself; rows of another job that had the id are left out by their name.

    Of several tasks one that has not ended counts, else one that did not complete.
    """
    own = [row for row in rows if covers(row.job_id, job_id) and not row.step and row.name == name]
    return max(own, key=lambda row: (row.submitted, row.state not in TERMINAL, row.state != "COMPLETED"), default=None)
