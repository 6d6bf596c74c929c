"""Getting a job into the queue exactly once: options, pre-flight, look-up by name, retries of what passes by itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from launchers.shell.command import Command
from launchers.shell.layout import Attempt, job_name
from launchers.shell.quoting import slurm_path
from launchers.shell.runner import Completed
from launchers.slurm.client import SlurmClient
from launchers.slurm.rows import TERMINAL, QueueRow
from launchers.slurm.settings import SlurmSettings
from runs.errors import BadInputError, TargetBusyError, TargetUnavailableError

_PAUSES_S = (2.0, 5.0, 15.0, 30.0)
_LOOKED_UP_ATTEMPTS = 5
_SECOND_OPINIONS = 1


class Refusal(StrEnum):
    """What a refusal of sbatch calls for."""

    RETRY = "retry"
    WAIT = "wait"
    TARGET = "target"
    JOB = "job"


REFUSALS: tuple[tuple[str, Refusal, str], ...] = (
    ("Unable to contact slurm controller", Refusal.RETRY, "is slurmctld down? ask `scontrol ping`"),
    ("Socket timed out", Refusal.RETRY, "the controller is overloaded; try later"),
    ("Slurm temporarily unable to accept job", Refusal.RETRY, "the controller's queue is full; try later"),
    ("Resource temporarily unavailable", Refusal.RETRY, "the login node is out of processes; try later"),
    ("WallDurationPerJobLimit", Refusal.TARGET, "lower --time-limit, or set another `qos` or `partition`"),
    ("PerJobLimit", Refusal.JOB, "the QOS or account allows no job of this size: see `sacctmgr show qos`"),
    ("MaxGRESPerJob", Refusal.JOB, "the QOS or account allows no job of this size: see `sacctmgr show qos`"),
    ("MaxTRESPerJob", Refusal.JOB, "the QOS or account allows no job of this size: see `sacctmgr show qos`"),
    ("MinGRES", Refusal.JOB, "the QOS takes only larger jobs: see `sacctmgr show qos`"),
    ("QOSMaxSubmitJobPerUserLimit", Refusal.WAIT, "lower --parallel: the QOS limits the jobs in the queue"),
    ("AssocMaxSubmitJobLimit", Refusal.WAIT, "lower --parallel: the account limits the jobs in the queue"),
    ("Job violates accounting/QOS policy", Refusal.WAIT, "see `sacctmgr show qos` for the limits of the QOS"),
    ("invalid partition specified", Refusal.TARGET, "set `partition` in the target file; `sinfo -s` lists them"),
    ("Invalid partition name", Refusal.TARGET, "set `partition` in the target file; `sinfo -s` lists them"),
    ("Invalid account", Refusal.TARGET, "set `account` in the target file; `sacctmgr show assoc user=$USER`"),
    ("Invalid qos", Refusal.TARGET, "set `qos` in the target file; `sacctmgr show assoc user=$USER format=qos`"),
    ("User's group not permitted", Refusal.TARGET, "choose a partition you may use"),
    ("Invalid feature specification", Refusal.TARGET, "set `constraint` in the target file; `sinfo -o %f`"),
    ("does not look like a batch script", Refusal.TARGET, "report this: the script lacks its first line"),
    ("unrecognized option", Refusal.TARGET, "mend `extra` in the target file"),
    ("invalid option", Refusal.TARGET, "mend `extra` in the target file"),
    ("Requested node configuration is not available", Refusal.JOB, "no such nodes there: see `sinfo -o '%n %G %m'`"),
    ("Memory specification can not be satisfied", Refusal.JOB, "lower `memory` in the target file"),
    ("Requested time limit is invalid", Refusal.JOB, "lower --time-limit or choose another partition or QOS"),
    ("Node count specification invalid", Refusal.JOB, "the partition has fewer nodes than the config needs"),
)  # fmt: skip
"""Texts of sbatch (22.05.8), what to do, and the hint."""


def refusal(text: str) -> tuple[Refusal, str]:
    """What a complaint of sbatch calls for; an unknown one is the job's own fault."""
    for part, kind, hint in REFUSALS:
        if part in text:
            return kind, hint
    return Refusal.JOB, "run the script in the trial's folder by hand to see more"


def header(command: Command, settings: SlurmSettings, time_limit_s: float) -> list[str]:
    """The `#SBATCH` lines: everything but paths, which go on sbatch's own command line."""
    return [f"#SBATCH {_batch_word(option)}" for option in request(command, settings, time_limit_s)]


def request(command: Command, settings: SlurmSettings, time_limit_s: float) -> list[str]:
    """What a job asks of Slurm. The command line of sbatch has it as well as the script: variables such as
    `SBATCH_TIMELIMIT` of the user's or the site's stand over the script, the command line stands over both.

    Raises:
        BadInputError: an option of the target file has a line break.
    """
    options = [
        f"--nodes={command.nodes}",
        f"--ntasks-per-node={command.tasks_per_node}",
        f"--time={minutes(time_limit_s)}",
    ]
    options += _gpu_options(command, settings)
    named = ("account", "partition", "qos", "constraint", "reservation", "cpus_per_task")
    options += [
        f"--{name.replace('_', '-')}={value}" for name in named if (value := getattr(settings, name)) is not None
    ]
    options += [f"--mem={settings.memory}"] if settings.memory else []
    options += ["--exclusive"] if settings.exclusive else []
    options += ["--requeue" if settings.requeue else "--no-requeue", "--open-mode=append"]
    options += settings.extra
    for option in options:
        if "\n" in option:
            raise BadInputError(f"the sbatch option {option!r} has a line break", "mend `extra` in the target file")
    return options


def arguments(attempt: Attempt, mark: str) -> list[str]:
    """Options on sbatch's command line: the name, the mark that tells the job again, and the paths."""
    folder = attempt.attempt_dir
    return [
        f"--job-name={attempt.name}",
        f"--comment={mark}",
        f"--output={slurm_path(folder)}/job.out",
        f"--error={slurm_path(folder)}/job.err",
        f"--chdir={attempt.job_dir}",
    ]


def minutes(seconds: float) -> int:
    """Slurm's time limit: whole minutes, at least one."""
    return max(1, math.ceil(seconds / 60))


def _gpu_options(command: Command, settings: SlurmSettings) -> list[str]:
    kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
    given = {
        "gpus-per-node": [f"--gpus-per-node={kind}{command.xpus_per_node}"],
        "gres": [f"--gres=gpu:{kind}{command.xpus_per_node}"],
        "none": [],
    }
    return given[settings.gpu_request]


def _batch_word(option: str) -> str:
    """An option as a `#SBATCH` line takes it: quoted where it holds blanks or quotes."""
    if not any(character in option for character in " \t'\"\\#"):
        return option
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass
class Submitter:
    """Submits jobs to one cluster. `sleep` and the pauses are for what passes by itself.

    `left_result` says whether an attempt left a result nobody has collected: a completed job is taken over only then.
    """

    client: SlurmClient
    settings: SlurmSettings
    left_result: Callable[[Attempt], bool]
    sleep: Callable[[float], None] = time.sleep
    pauses_s: tuple[float, ...] = _PAUSES_S

    def submit(self, attempt: Attempt, script: str, mark: str, asks: Sequence[str] = ()) -> tuple[str, int]:
        """Submit, or take the job that an earlier try already put into the queue: (job id, number of its attempt).

        `asks` is what the job asks of Slurm (`request`).

        Raises:
            TargetBusyError: Slurm gives no answer, or takes no more jobs just now.
            TargetUnavailableError: Slurm refuses for a reason in the target file.
            BadInputError: this job cannot run on the cluster.
        """
        found = self._earlier(attempt, mark)
        if found is not None:
            return found
        options = [*asks, *arguments(attempt, mark)]
        if self.settings.preflight:
            self._check(options, script)
        for pause in (*self.pauses_s, None):
            done = self.client.submit(options, script)
            if done.ok and done.out.strip():
                return job_id(done.out), attempt.number
            kind = Refusal.RETRY if done.code is None else refusal(done.err)[0]
            if pause is None or kind not in (Refusal.RETRY, Refusal.WAIT):
                raise _error(done)
            self.sleep(pause)
            found = self._earlier(attempt, mark)
            if found is not None:
                return found
        raise _error(done)

    def _check(self, options: list[str], script: str) -> None:
        """Only refusals that waiting cannot mend count: a full QOS is no reason not to queue.

        Asked again before a job is refused: a controller that has just started does not know its nodes yet.
        """
        for pause in (*self.pauses_s[:_SECOND_OPINIONS], None):
            done = self.client.test(options, script)
            if done.ok or done.code is None or refusal(done.err)[0] in (Refusal.RETRY, Refusal.WAIT):
                return
            if pause is None or refusal(done.err)[0] is Refusal.TARGET:
                raise _error(done)
            self.sleep(pause)

    def _earlier(self, attempt: Attempt, mark: str) -> tuple[str, int] | None:
        """A job of this trial that is in the queue already: its driver died, or sbatch answered too late.

        One that would do the same work is taken over; any other is cancelled, because it writes the same traces.

        Raises:
            TargetBusyError: nobody can say whether there is one.
        """
        first = max(1, attempt.number - _LOOKED_UP_ATTEMPTS + 1)
        names = {job_name(attempt.run_id, attempt.trial, n): n for n in range(attempt.number, first - 1, -1)}
        rows = self._look_up(list(names))
        for row in rows:
            if row.name not in names:
                continue
            number = names[row.name]
            if row.comment == mark and self._is_of_use(row, replace(attempt, number=number)):
                return row.job_id, number
            if row.state not in TERMINAL:
                self.client.cancel(row.job_id, row.name)
        return None

    def _is_of_use(self, row: QueueRow, attempt: Attempt) -> bool:
        return row.state not in TERMINAL or (row.state == "COMPLETED" and self.left_result(attempt))

    def _look_up(self, names: list[str]) -> list[QueueRow]:
        for pause in (*self.pauses_s, None):
            rows = self.client.queue_by_name(names)
            if rows is not None:
                return rows
            if pause is not None:
                self.sleep(pause)
        raise TargetBusyError(
            f"Slurm does not answer: {self.client.complaint}",
            "try `squeue --me` there; `ccl-search resume` goes on later",
        )


def job_id(text: str) -> str:
    """The id in the answer of `sbatch --parsable`: `17` or `17;cluster`."""
    return text.strip().splitlines()[-1].partition(";")[0].strip()


def _error(done: Completed) -> BadInputError | TargetUnavailableError:
    if done.code is None:
        return TargetBusyError(f"sbatch: {done.complaint}", "check the connection, then `ccl-search resume`")
    kind, hint = refusal(done.err)
    lines = [line for line in done.err.splitlines() if line.strip()]
    text = f"Slurm refuses the job: {' '.join(lines)[:400]}"
    if kind is Refusal.JOB:
        return BadInputError(text, hint)
    return TargetUnavailableError(text, hint) if kind is Refusal.TARGET else TargetBusyError(text, hint)
