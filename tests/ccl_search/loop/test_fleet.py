"""Several trials in flight: never more than the limit, none twice, all recorded, also after a kill."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ccl_search.loop.execution import Executor
from ccl_search.loop.fleet import Fleet, OneAtATime
from ccl_search.loop.interrupt import Interrupt
from ccl_search.loop.suggestion import Suggestion
from ccl_search.proposers.base import Proposal
from launchers.base import Handle, Job, JobState
from runs import catalogue
from runs.plan import ParallelPlan
from runs.trial import Execution, TrialState
from tests.ccl_search.cli import Cli, start
from tests.ccl_search.test_resume import wait_for


def suggestion(number: int) -> Suggestion:
    return Suggestion(number, number, {}, ParallelPlan("x"), Proposal(""))


def test_no_more_than_the_limit_are_in_flight() -> None:
    lock, now, most = threading.Lock(), [0], [0]
    go_on = threading.Event()

    def fly(_: Suggestion) -> Sequence[Execution]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        go_on.wait(5)
        with lock:
            now[0] -= 1
        return [Execution(TrialState.SUCCEEDED)]

    fleet = Fleet(2, fly)
    launched = []
    while fleet.has_room:
        launched.append(len(launched))
        fleet.launch(suggestion(launched[-1]))
    go_on.set()
    landed = [fleet.land()[0].number for _ in launched]
    fleet.close()

    assert launched == [0, 1]
    assert sorted(landed) == [0, 1]
    assert most[0] == 2
    assert fleet.is_empty


def test_what_a_flight_raises_is_raised_where_it_lands() -> None:
    def crash(_: Suggestion) -> Sequence[Execution]:
        raise OSError("no space")

    fleet = Fleet(1, crash)
    fleet.launch(suggestion(0))

    with pytest.raises(OSError, match="no space"):
        fleet.land()
    fleet.close()


class Busy:
    """A launcher that notices two calls at once."""

    name = "busy"

    def __init__(self) -> None:
        self.inside = 0
        self.clashes = 0

    def _work(self) -> None:
        self.inside += 1
        self.clashes += self.inside > 1
        time.sleep(0.01)
        self.inside -= 1

    def submit(self, job: Job) -> Handle:
        self._work()
        return {}

    def poll(self, handle: Handle) -> JobState:
        self._work()
        return JobState.FINISHED

    def cancel(self, handle: Handle) -> None:
        self._work()

    def collect(self, handle: Handle) -> Execution:
        self._work()
        return Execution(TrialState.SUCCEEDED)


def test_calls_of_a_launcher_never_run_at_the_same_time() -> None:
    busy = Busy()
    launcher = OneAtATime(busy)
    threads = [threading.Thread(target=launcher.poll, args=({},)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert busy.clashes == 0


class Talkative(Busy):
    """A launcher that says what a submission is going to take."""

    announce: Callable[[str], None] = staticmethod(lambda _text: None)

    def submit(self, job: Job) -> Handle:
        self.announce("this will take days")
        return {}


def test_what_a_launcher_announces_is_heard_through_the_lock(tmp_path: Path) -> None:
    heard: list[str] = []
    workload, environment = catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16")
    job = Job("run", 1, 1, tmp_path, workload, environment, {}, ParallelPlan("x"), "", 60.0)

    Executor(OneAtATime(Talkative()), Interrupt(), heard.append).launcher.submit(job)
    Executor(OneAtATime(Busy()), Interrupt(), heard.append).launcher.submit(job)

    assert heard == ["this will take days"]


def test_a_parallel_search_runs_every_iteration_once(cli: Cli) -> None:
    result = cli("run", "--iterations", "6", "--parallel", "3", "--proposer", "random", "--json")

    rows = cli("show", "latest", "--json").document["trial_rows"]
    launched = [row for row in rows if row["state"] != "pruned"]
    assert result.code == 0
    assert sorted(row["iteration"] for row in launched) == list(range(7))
    configs = [str(row["config"]) for row in launched]
    assert len(set(configs)) == len(configs)


def test_a_killed_parallel_search_is_taken_up(cli: Cli) -> None:
    process = start(cli.home, "run", "--iterations", "5", "--parallel", "2", "--proposer", "random", "--json")
    wait_for(cli.home, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    resumed = cli("resume", "latest", "--json")

    rows = cli("show", "latest", "--json").document["trial_rows"]
    assert resumed.code == 0
    assert sorted(row["iteration"] for row in rows if row["state"] == "succeeded") == list(range(6))
