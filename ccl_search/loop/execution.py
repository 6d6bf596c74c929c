"""One trial on a target: submit, store the handle, wait, collect, and try again when the machines were to blame."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from ccl_search.loop.interrupt import Interrupt
from launchers.base import Announcing, Handle, Job, JobState, Launcher
from runs.errors import CclSearchError, TargetBusyError, TargetUnavailableError
from runs.trial import Execution, FailureClass, TrialState

_FIRST_POLL_S = 0.01
_LONGEST_POLL_S = 15.0
_RETRY_AFTER_S = (1.0, 20.0)
"""Pauses before the repeats of a job that the machines failed; the last one is that of all further repeats."""
_ASK_AGAIN_S = (30.0, 60.0, 120.0, 300.0)
_PATIENCE_S = 12 * 3600.0
_SLICE_S = 1.0

_Answer = TypeVar("_Answer")


class AttemptLog(Protocol):
    """Keeps what must survive a crash of this process: the handle before waiting, the result after."""

    def begin(self) -> int:
        """A new attempt starts; its number."""
        ...

    def submitted(self, attempt: int, handle: Handle) -> None:
        """The job was accepted."""
        ...

    def finished(self, attempt: int, execution: Execution) -> None:
        """The attempt has ended."""
        ...


@dataclass
class Executor:
    """Runs jobs on one launcher. `retries` bounds the repeats after transient failures.

    A target that has taken a job and then does not answer, or takes no more, is asked again for twelve hours: clusters
    have maintenance and limits on jobs in the queue. One that has never answered is an error at once.
    """

    launcher: Launcher
    interrupt: Interrupt
    notice: Callable[[str], None] = lambda _text: None
    retries: int = 2
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = field(default=time.monotonic)
    _reached: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.launcher, Announcing):
            self.launcher.announce = self.notice

    def execute(self, job: Job, log: AttemptLog) -> Execution:
        """Run `job` to its end, with retries.

        Raises:
            TargetUnavailableError: the target cannot be used at all.
        """
        for left in reversed(range(self.retries + 1)):
            execution = self._attempt(job, log)
            if execution.failure is None or not execution.failure.is_transient or self.interrupt.stop_requested:
                break
            self.notice(
                f"trial {job.trial}: {execution.failure.value}, {left} retries left: {execution.evidence[:160]}"
            )
            if left:
                self._rest(_RETRY_AFTER_S[min(self.retries - left, len(_RETRY_AFTER_S) - 1)])
        return execution

    def reattach(self, job: Job, handle: Handle, log: AttemptLog) -> Execution | None:
        """Wait for a job that an earlier process submitted; None where the target does not know it any more."""
        if self.launcher.poll(handle) is JobState.UNKNOWN:
            return None
        self._reached = True
        return self._wait(job, handle, log)

    def _attempt(self, job: Job, log: AttemptLog) -> Execution:
        job = replace(job, attempt=log.begin())
        try:
            handle = self._asked(lambda: self.launcher.submit(job), float(job.settings.get("queue_limit_s", math.inf)))
        except TargetUnavailableError:
            raise
        except CclSearchError as error:
            execution = Execution(TrialState.FAILED, failure=FailureClass.LAUNCH, evidence=str(error))
            log.finished(job.attempt, execution)
            return execution
        self._reached = True
        log.submitted(job.attempt, handle)
        return self._wait(job, handle, log)

    def _wait(self, job: Job, handle: Handle, log: AttemptLog) -> Execution:
        queued, pause, running = self.clock(), _FIRST_POLL_S, None
        queue_limit = float(job.settings.get("queue_limit_s", math.inf))
        while (state := self.launcher.poll(handle)) is not JobState.FINISHED:
            now = self.clock()
            running = now if running is None and state is JobState.RUNNING else running
            if self.interrupt.cancel_requested:
                return self._give_up(job, handle, log, FailureClass.CANCELLED, "cancelled by the user")
            if running is not None and now - running > job.time_limit_s:
                return self._give_up(job, handle, log, FailureClass.TIMEOUT, f"no end within {job.time_limit_s:g} s")
            if running is None and now - queued > queue_limit:
                return self._give_up(job, handle, log, FailureClass.QUEUE_TIMEOUT, f"not started in {queue_limit:g} s")
            self.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL_S)
        execution = self._asked(lambda: self.launcher.collect(handle))
        log.finished(job.attempt, execution)
        return execution

    def _asked(self, question: Callable[[], _Answer], limit_s: float = math.inf) -> _Answer:
        """The answer to a question that the target may be too busy for, asked again until `limit_s` or patience end.

        Raises:
            TargetUnavailableError: it gives none.
        """
        began, asked = self.clock(), 0
        while True:
            try:
                return question()
            except TargetBusyError as error:
                pause = _ASK_AGAIN_S[min(asked, len(_ASK_AGAIN_S) - 1)]
                asked += 1
                waited = self.clock() - began
                if not self._reached or self.interrupt.stop_requested or waited + pause > min(limit_s, _PATIENCE_S):
                    raise
                self.notice(f"{error.message[:200]}; asked again in {pause:g} s")
                self._rest(pause)

    def _rest(self, seconds: float) -> None:
        """Sleep, but no longer than until the user asks for an end."""
        end = self.clock() + seconds
        while (left := end - self.clock()) > 0 and not self.interrupt.stop_requested:
            self.sleep(min(left, _SLICE_S))

    def _give_up(self, job: Job, handle: Handle, log: AttemptLog, failure: FailureClass, evidence: str) -> Execution:
        self.launcher.cancel(handle)
        state = TrialState.CANCELLED if failure is FailureClass.CANCELLED else TrialState.FAILED
        left = self._asked(lambda: self.launcher.collect(handle))
        logged = f"\n{left.evidence}" if left.evidence else ""
        execution = replace(left, state=state, failure=failure, evidence=f"{evidence}{logged}", trace_dir=None)
        log.finished(job.attempt, execution)
        return execution
