"""Execution of one trial: what is stored when, what is retried, and what a stop does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccl_search.loop.execution import Executor
from ccl_search.loop.interrupt import Interrupt
from launchers.base import Handle, Job, JobState
from runs import catalogue
from runs.errors import BadInputError, TargetBusyError, TargetUnavailableError
from runs.plan import ParallelPlan
from runs.trial import Execution, FailureClass, TrialState

OK = Execution(TrialState.SUCCEEDED)


def failure(kind: FailureClass) -> Execution:
    return Execution(TrialState.FAILED, failure=kind, evidence=f"because of {kind.value}")


class ScriptedLauncher:
    """A launcher that answers from a list of results, one a submission, after `polls` polls."""

    name = "scripted"

    def __init__(self, *results: Execution | Exception, states: tuple[JobState, ...] = (JobState.FINISHED,)) -> None:
        self.results = list(results)
        self.states = states
        self.cancelled: list[Handle] = []
        self.polled = 0
        self.on_poll: Callable[[], None] = lambda: None

    def submit(self, job: Job) -> Handle:
        result = self.results[0]
        if isinstance(result, Exception):
            self.results.pop(0)
            raise result
        self.polled = 0
        return {"attempt": job.attempt}

    def poll(self, handle: Handle) -> JobState:
        self.on_poll()
        state = self.states[min(self.polled, len(self.states) - 1)]
        self.polled += 1
        return state

    def cancel(self, handle: Handle) -> None:
        self.cancelled.append(handle)

    def collect(self, handle: Handle) -> Execution:
        result = self.results.pop(0)
        assert isinstance(result, Execution)
        return result


class Log:
    """An attempt log that keeps the order of events."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.attempts = 0

    def begin(self) -> int:
        self.attempts += 1
        self.events.append(("begin", self.attempts))
        return self.attempts

    def submitted(self, attempt: int, handle: Handle) -> None:
        self.events.append(("submitted", attempt, handle))

    def finished(self, attempt: int, execution: Execution) -> None:
        self.events.append(("finished", attempt, execution.state.value))


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def make_job(tmp_path: Path, **settings: Any) -> Job:
    environment = catalogue.environment("perlmutter-a100-16")
    return Job("run", 3, 1, tmp_path, catalogue.workload("wl4"), environment, {}, ParallelPlan("x"), "", 60.0, settings)


def make_executor(launcher: ScriptedLauncher, retries: int = 2) -> tuple[Executor, Clock, list[str]]:
    clock, notices = Clock(), []
    return Executor(launcher, Interrupt(), notices.append, retries, clock.sleep, clock), clock, notices


def test_the_handle_is_stored_before_anything_waits(tmp_path: Path) -> None:
    log = Log()
    launcher = ScriptedLauncher(OK, states=(JobState.QUEUED, JobState.RUNNING, JobState.FINISHED))
    seen_at_poll: list[int] = []
    launcher.on_poll = lambda: seen_at_poll.append(len(log.events))
    executor, _, _ = make_executor(launcher)

    assert executor.execute(make_job(tmp_path), log) == OK
    assert log.events == [("begin", 1), ("submitted", 1, {"attempt": 1}), ("finished", 1, "succeeded")]
    assert min(seen_at_poll) == 2


@pytest.mark.parametrize("kind", [f for f in FailureClass if f.is_transient])
def test_transient_failures_are_repeated_within_the_limit(kind: FailureClass, tmp_path: Path) -> None:
    launcher = ScriptedLauncher(failure(kind), failure(kind), OK)
    executor, _, notices = make_executor(launcher, retries=2)

    assert executor.execute(make_job(tmp_path), Log()) == OK
    assert len(notices) == 2

    launcher = ScriptedLauncher(*[failure(kind)] * 5)
    executor, _, _ = make_executor(launcher, retries=1)

    assert executor.execute(make_job(tmp_path), Log()).failure is kind
    assert len(launcher.results) == 3


@pytest.mark.parametrize("kind", [FailureClass.OOM, FailureClass.FRAMEWORK_ERROR, FailureClass.TRACE_MISSING])
def test_failures_of_the_config_are_not_repeated(kind: FailureClass, tmp_path: Path) -> None:
    launcher = ScriptedLauncher(failure(kind), OK)
    executor, _, _ = make_executor(launcher)

    assert executor.execute(make_job(tmp_path), Log()).failure is kind


def test_a_rejected_submission_is_a_launch_failure_with_its_reason(tmp_path: Path) -> None:
    log = Log()
    executor, _, _ = make_executor(ScriptedLauncher(BadInputError("invalid account")), retries=0)

    execution = executor.execute(make_job(tmp_path), log)

    assert execution.failure is FailureClass.LAUNCH
    assert "invalid account" in execution.evidence
    assert log.events[-1] == ("finished", 1, "failed")


def test_a_target_that_is_gone_ends_the_search(tmp_path: Path) -> None:
    executor, _, _ = make_executor(ScriptedLauncher(TargetUnavailableError("no cluster")))

    with pytest.raises(TargetUnavailableError, match="no cluster"):
        executor.execute(make_job(tmp_path), Log())


def test_a_target_that_was_there_is_asked_again(tmp_path: Path) -> None:
    busy = TargetBusyError("the queue is full")
    executor, clock, notices = make_executor(ScriptedLauncher(OK, busy, busy, OK))

    assert executor.execute(make_job(tmp_path), Log()) == OK
    assert executor.execute(make_job(tmp_path), log := Log()) == OK
    assert log.attempts == 1 and clock.now == pytest.approx(30 + 60)
    assert notices == [f"the queue is full; asked again in {pause} s" for pause in (30, 60)]


def test_a_target_that_never_answered_is_an_error_at_once(tmp_path: Path) -> None:
    executor, clock, _ = make_executor(ScriptedLauncher(TargetBusyError("no answer"), OK))

    with pytest.raises(TargetBusyError, match="no answer"):
        executor.execute(make_job(tmp_path), Log())
    assert clock.now == 0


@pytest.mark.parametrize(("settings", "waited"), [({}, 12 * 3600), ({"queue_limit_s": 600}, 600)])
def test_patience_with_a_busy_target_ends(settings: dict[str, Any], waited: float, tmp_path: Path) -> None:
    executor, clock, _ = make_executor(ScriptedLauncher(OK, *[TargetBusyError("full")] * 200))
    executor.execute(make_job(tmp_path), Log())

    with pytest.raises(TargetBusyError):
        executor.execute(make_job(tmp_path, **settings), Log())
    assert waited - 300 < clock.now <= waited


def test_an_interrupt_ends_the_wait_for_a_busy_target(tmp_path: Path) -> None:
    executor, clock, _ = make_executor(ScriptedLauncher(OK, *[TargetBusyError("full")] * 9))
    executor.execute(make_job(tmp_path), Log())
    executor.notice = lambda _: executor.interrupt.request()

    with pytest.raises(TargetBusyError):
        executor.execute(make_job(tmp_path), Log())
    assert clock.now == 0


def test_results_that_cannot_be_fetched_now_are_fetched_later(tmp_path: Path) -> None:
    launcher = ScriptedLauncher(OK)
    collect, silent = launcher.collect, [TargetBusyError("connection lost")] * 3

    def sometimes(handle: Handle) -> Execution:
        if silent:
            raise silent.pop()
        return collect(handle)

    launcher.collect = sometimes  # type: ignore[method-assign]
    executor, clock, _ = make_executor(launcher)

    assert executor.execute(make_job(tmp_path), Log()) == OK
    assert clock.now == pytest.approx(30 + 60 + 120)


def test_repeats_leave_the_machines_some_time(tmp_path: Path) -> None:
    executor, clock, _ = make_executor(ScriptedLauncher(*[failure(FailureClass.NODE_FAILURE)] * 3), retries=2)
    executor.execute(make_job(tmp_path), Log())

    assert clock.now == pytest.approx(1 + 20)


def test_a_trial_over_its_time_is_cancelled_and_its_queue_time_does_not_count(tmp_path: Path) -> None:
    launcher = ScriptedLauncher(OK, states=(*[JobState.QUEUED] * 40, JobState.RUNNING))
    executor, clock, _ = make_executor(launcher)

    execution = executor.execute(make_job(tmp_path), Log())

    assert execution.failure is FailureClass.TIMEOUT
    assert launcher.cancelled == [{"attempt": 1}]
    assert clock.now > 60 + 15 * 20


def test_a_queue_limit_is_a_transient_failure(tmp_path: Path) -> None:
    launcher = ScriptedLauncher(OK, states=(JobState.QUEUED,))
    executor, _, _ = make_executor(launcher, retries=0)

    execution = executor.execute(make_job(tmp_path, queue_limit_s=100), Log())

    assert execution.failure is FailureClass.QUEUE_TIMEOUT
    assert launcher.cancelled


def test_the_first_interrupt_lets_the_trial_finish_and_the_second_cancels_it(tmp_path: Path) -> None:
    launcher = ScriptedLauncher(OK, states=(JobState.RUNNING, JobState.RUNNING, JobState.FINISHED))
    executor, _, _ = make_executor(launcher)
    executor.interrupt.request()

    assert executor.execute(make_job(tmp_path), Log()) == OK

    launcher = ScriptedLauncher(OK, states=(JobState.RUNNING,))
    executor, _, _ = make_executor(launcher)
    executor.interrupt.request()
    executor.interrupt.request()
    execution = executor.execute(make_job(tmp_path), Log())

    assert execution.state is TrialState.CANCELLED
    assert launcher.cancelled


def test_reattaching_waits_for_a_known_job_and_gives_up_an_unknown_one(tmp_path: Path) -> None:
    log = Log()
    executor, _, _ = make_executor(ScriptedLauncher(OK, states=(JobState.RUNNING, JobState.FINISHED)))

    assert executor.reattach(make_job(tmp_path), {"attempt": 1}, log) == OK
    assert log.events == [("finished", 1, "succeeded")]

    executor, _, _ = make_executor(ScriptedLauncher(OK, states=(JobState.UNKNOWN,)))

    assert executor.reattach(make_job(tmp_path), {"attempt": 1}, Log()) is None
