"""What became of a job, from what Slurm, the job's own result file and its logs say.

The rules and the texts follow what Slurm 22.05.8 was seen to do: the state word is the class, exit codes alone are not
(a time limit, a cancellation and a dead node all read 0:0), an out-of-memory kill of one step hides in a completed job,
`JobLaunchFailure` is the reason of any job killed by a signal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from launchers.shell.evidence import NOTHING, Evidence
from launchers.shell.outcome import SUCCESS, Verdict, describe_exit, judge_exit
from launchers.shell.result import Result
from launchers.slurm.rows import AccountRow, ControlRecord, ExitStatus
from runs.trial import FailureClass

_OOM_SIGNAL = 125
_NO_FOLDER = 53
_BY_STATE = {
    "TIMEOUT": (FailureClass.TIMEOUT, "Slurm ended the job at its time limit"),
    "OUT_OF_MEMORY": (FailureClass.OOM, "the job used more host memory than it was given"),
    "NODE_FAIL": (FailureClass.NODE_FAILURE, "a node of the job failed"),
    "BOOT_FAIL": (FailureClass.NODE_FAILURE, "a node did not boot"),
    "PREEMPTED": (FailureClass.PREEMPTED, "Slurm preempted the job"),
    "CANCELLED": (FailureClass.CANCELLED, "the job was cancelled"),
    "DEADLINE": (FailureClass.QUEUE_TIMEOUT, "Slurm ended the job at its deadline"),
    "REVOKED": (FailureClass.LAUNCH, "another cluster of the federation took the job"),
}


@dataclass(frozen=True)
class Ending:
    """All that is known of an ended job. `lost`: no source knew it for the grace time. `never`: why it never starts."""

    state: str
    reason: str = ""
    job: AccountRow | None = None
    steps: tuple[AccountRow, ...] = ()
    control: ControlRecord | None = None
    result: Result | None = None
    evidence: Evidence = field(default=NOTHING)
    lost: str = ""
    never: str = ""

    @property
    def exit(self) -> ExitStatus | None:
        """The batch script's exit status, from the source that keeps all of it."""
        if self.control is not None and self.control.exit is not None:
            return self.control.exit
        return self.job.exit if self.job is not None else None

    @property
    def derived(self) -> ExitStatus | None:
        """The worst exit status of any step."""
        if self.job is not None and self.job.derived is not None:
            return self.job.derived
        return self.control.derived if self.control is not None else None


def classify(ending: Ending) -> Verdict:
    """The verdict on an ended job; see the module's text for the rules."""
    if ending.never:
        return Verdict(FailureClass.QUEUE_TIMEOUT, f"the job would never start: {ending.never}")
    if ending.lost:
        return _of_lost(ending)
    if ending.state in _BY_STATE:
        failure, text = _BY_STATE[ending.state]
        return Verdict(failure, text)
    oom = _out_of_memory(ending)
    if oom is not None:
        return oom
    if ending.result is not None and (ending.result.exit_code or ending.state == "COMPLETED"):
        verdict = _of_result(ending, ending.result)
        return verdict if verdict.failure is not None else _of_steps(ending)
    return _of_slurm(ending)


def _of_lost(ending: Ending) -> Verdict:
    failure = ending.evidence.failure or FailureClass.NODE_FAILURE
    return Verdict(failure, f"{ending.lost}, and it left no result")


def _out_of_memory(ending: Ending) -> Verdict | None:
    """A step that was killed for its memory, also in a job that calls itself completed."""
    steps = [row.step for row in ending.steps if row.state == "OUT_OF_MEMORY"]
    if steps:
        return Verdict(FailureClass.OOM, f"step {', '.join(steps)} used more host memory than it was given")
    if ending.derived is not None and ending.derived.signal == _OOM_SIGNAL:
        return Verdict(FailureClass.OOM, "a step used more host memory than it was given")
    return None


def _of_result(ending: Ending, result: Result) -> Verdict:
    if result.exit_code and result.reason == "signal" and ending.evidence.failure is None:
        return Verdict(FailureClass.CANCELLED, f"told to end: {describe_exit(result.exit_code)}")
    return judge_exit(result.exit_code, result.stage, ending.evidence)


def _of_steps(ending: Ending) -> Verdict:
    """A failed step in a job whose script ended well."""
    failed = [row for row in ending.steps if row.state in ("FAILED", "NODE_FAIL", "TIMEOUT")]
    if failed:
        code = failed[0].exit.code if failed[0].exit is not None else 1
        verdict = judge_exit(code or 1, "run", ending.evidence)
        return Verdict(verdict.failure, f"step {failed[0].step} {failed[0].state}: {verdict.reason}")
    if ending.derived is not None and not ending.derived.ok:
        return judge_exit(ending.derived.code or 128 + ending.derived.signal, "run", ending.evidence)
    return SUCCESS


def _of_slurm(ending: Ending) -> Verdict:
    """A job without a result file: its script was killed, or never ran."""
    if ending.state == "COMPLETED":
        return _of_steps(ending)
    status = ending.exit or ExitStatus(1, 0)
    if status.signal == _NO_FOLDER:
        return Verdict(FailureClass.LAUNCH, "Slurm could not open the job's output file or folder on the node")
    if status.signal:
        failure = ending.evidence.failure or FailureClass.FRAMEWORK_ERROR
        return Verdict(failure, f"the job's script was killed by signal {status.signal} ({ending.reason})")
    return judge_exit(status.code or 1, "run", ending.evidence)
