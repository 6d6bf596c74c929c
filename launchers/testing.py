"""The contract of `launchers.base.Launcher` as checks, for the bundled launchers and for those of others.

Give a `Bench` and run every check that `checks(bench)` returns, for instance as the parameters of one pytest test. A
check raises AssertionError where the launcher breaks the contract.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launchers.base import Handle, Job, JobState, Launcher
from runs.trial import Execution, FailureClass, TrialState

SUCCEEDS, FAILS, OUT_OF_MEMORY, ENDLESS = "succeeds", "fails", "out-of-memory", "endless"
JobMaker = Callable[[Path, int], Job]
"""Makes a job in a folder, with a trial number."""


@dataclass(frozen=True)
class Bench:
    """A launcher to check. `new` builds it as a new process would, `jobs` has makers for the kinds it can run.

    Kinds: `succeeds` leaves a trace, `fails` by an error of its own, `out-of-memory`, `endless` runs until it is ended.
    `folder` is an empty folder. `processes` counts what still runs of all endless jobs, None where nothing can.
    """

    new: Callable[[], Launcher]
    jobs: Mapping[str, JobMaker]
    folder: Path
    processes: Callable[[], int] | None = None
    patience_s: float = 120.0
    pause_s: float = 0.1

    def job(self, kind: str, trial: int = 1, name: str = "trial") -> Job:
        """A job of a kind, in a folder of its own."""
        return self.jobs[kind](self.folder / name, trial)

    def until(self, launcher: Launcher, handle: Handle, wanted: JobState) -> None:
        """Poll until the job is in a state.

        Raises:
            AssertionError: it is not within the bench's patience.
        """
        deadline = time.monotonic() + self.patience_s
        while (state := launcher.poll(handle)) is not wanted:
            assert time.monotonic() < deadline, f"still {state} after {self.patience_s:g} s, not {wanted}"
            assert state is not JobState.FINISHED, f"finished before it was {wanted}"
            time.sleep(self.pause_s)

    def run(self, launcher: Launcher, job: Job) -> tuple[Handle, Execution]:
        """Run a job to its end."""
        handle = launcher.submit(job)
        self.until(launcher, handle, JobState.FINISHED)
        return handle, launcher.collect(handle)


def a_success_leaves_its_trace(bench: Bench) -> None:
    """State, trace folder, time, and a record that can be stored."""
    job = bench.job(SUCCEEDS)
    _, done = bench.run(bench.new(), job)
    assert done.state is TrialState.SUCCEEDED, done.evidence
    assert done.failure is None
    assert done.trace_dir is not None
    assert done.trace_dir.resolve() == job.trace_dir.resolve()
    assert any(path.is_file() for path in done.trace_dir.rglob("*"))
    assert done.seconds is not None
    assert done.seconds >= 0
    assert done.xpu_hours is not None
    assert json.loads(json.dumps(done.provenance, allow_nan=False)) == done.provenance


def a_failure_is_classified_with_evidence(bench: Bench) -> None:
    """The config's own failure is `framework_error`, and its text says something."""
    _, done = bench.run(bench.new(), bench.job(FAILS))
    assert done.state is TrialState.FAILED
    assert done.failure is FailureClass.FRAMEWORK_ERROR, done.evidence
    assert done.evidence.strip()


def out_of_memory_is_its_own_class(bench: Bench) -> None:
    """Memory is told apart from other failures, whatever the exit code."""
    _, done = bench.run(bench.new(), bench.job(OUT_OF_MEMORY))
    assert done.state is TrialState.FAILED
    assert done.failure is FailureClass.OOM, done.evidence
    assert "memory" in done.evidence.lower()


def a_handle_is_plain_data_for_a_new_process(bench: Bench) -> None:
    """A handle survives JSON, and a launcher that never saw the job comes to the same result with it."""
    first = bench.new()
    handle, done = bench.run(first, bench.job(SUCCEEDS))
    stored = json.loads(json.dumps(handle, allow_nan=False))
    assert stored == handle
    second = bench.new()
    bench.until(second, stored, JobState.FINISHED)
    again = second.collect(stored)
    assert (again.state, again.failure, again.trace_dir) == (done.state, done.failure, done.trace_dir)


def collecting_again_changes_nothing(bench: Bench) -> None:
    """What is collected twice is the same."""
    launcher = bench.new()
    handle, done = bench.run(launcher, bench.job(SUCCEEDS))
    assert launcher.collect(handle) == done


def jobs_side_by_side_do_not_mix(bench: Bench) -> None:
    """Two jobs in flight end as each should."""
    launcher = bench.new()
    kinds = [kind for kind in (SUCCEEDS, FAILS, OUT_OF_MEMORY) if kind in bench.jobs][:2]
    handles = [
        launcher.submit(bench.job(kind, number, f"trial {number}")) for number, kind in enumerate(kinds, start=1)
    ]
    for handle in handles:
        bench.until(launcher, handle, JobState.FINISHED)
    states = [launcher.collect(handle).state for handle in handles]
    assert states == [TrialState.SUCCEEDED if kind == SUCCEEDS else TrialState.FAILED for kind in kinds]


def a_second_attempt_starts_clean(bench: Bench) -> None:
    """A repeated trial sees no trace of the attempt before."""
    from dataclasses import replace

    launcher, job = bench.new(), bench.job(SUCCEEDS)
    bench.run(launcher, job)
    stray = job.trace_dir / "stray.json"
    stray.write_text("{}", encoding="utf-8")
    _, done = bench.run(launcher, replace(job, attempt=2))
    assert done.state is TrialState.SUCCEEDED, done.evidence
    assert not stray.exists()


def odd_folders_are_no_trouble(bench: Bench) -> None:
    """Blanks, quotes and line breaks in a path are quoted everywhere."""
    launcher = bench.new()
    for number, name in enumerate(("a 0", "a'; echo foo", "a\n0", '"$HOME`id`" %j'), start=1):
        job = bench.job(SUCCEEDS, number, name)
        _, done = bench.run(launcher, job)
        assert done.state is TrialState.SUCCEEDED, f"{name!r}: {done.evidence}"
        assert job.trace_dir.is_dir()


def cancel_ends_every_process(bench: Bench) -> None:
    """After `cancel` nothing of the job runs, it counts as finished and as cancelled; cancelling again is no error."""
    launcher = bench.new()
    handle = launcher.submit(bench.job(ENDLESS))
    bench.until(launcher, handle, JobState.RUNNING)
    assert bench.processes is not None
    deadline = time.monotonic() + bench.patience_s
    while bench.processes() == 0:
        assert time.monotonic() < deadline, "the endless job never started a process"
        time.sleep(bench.pause_s)
    launcher.cancel(handle)
    assert bench.processes() == 0
    assert launcher.poll(handle) is JobState.FINISHED
    done = launcher.collect(handle)
    assert (done.state, done.failure) == (TrialState.CANCELLED, FailureClass.CANCELLED)
    launcher.cancel(handle)


def cancelling_what_has_ended_is_no_error(bench: Bench) -> None:
    """`cancel` after the end changes nothing."""
    launcher = bench.new()
    handle, done = bench.run(launcher, bench.job(SUCCEEDS))
    launcher.cancel(handle)
    assert launcher.collect(handle).state is done.state


_NEEDS: tuple[tuple[Callable[[Bench], None], str], ...] = (
    (a_success_leaves_its_trace, SUCCEEDS),
    (a_failure_is_classified_with_evidence, FAILS),
    (out_of_memory_is_its_own_class, OUT_OF_MEMORY),
    (a_handle_is_plain_data_for_a_new_process, SUCCEEDS),
    (collecting_again_changes_nothing, SUCCEEDS),
    (jobs_side_by_side_do_not_mix, SUCCEEDS),
    (a_second_attempt_starts_clean, SUCCEEDS),
    (odd_folders_are_no_trouble, SUCCEEDS),
    (cancel_ends_every_process, ENDLESS),
    (cancelling_what_has_ended_is_no_error, SUCCEEDS),
)


def checks(*kinds: str) -> list[Callable[[Bench], None]]:
    """The checks for a launcher that can run these kinds of job."""
    return [check for check, needed in _NEEDS if needed in kinds]
