"""Repeats: executions one after the other, their mean and spread, and what the spread allows to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ccl_search import repeats
from ccl_search.loop.execution import Executor
from ccl_search.loop.interrupt import Interrupt
from ccl_search.measuring import Measurement
from launchers.base import Handle, Job, JobState
from runs import catalogue, objective
from runs.metric import MetricValue
from runs.plan import ParallelPlan
from runs.trial import Execution, FailureClass, Fidelity, TrialState
from tests.ccl_search.recorded import axis

STEP, XPUS = axis("avg_step_time"), axis("num_xpus")
OK = Execution(TrialState.SUCCEEDED, seconds=10.0, xpu_hours=0.5, provenance={"job": 7})


def failed(kind: FailureClass) -> Execution:
    return Execution(TrialState.FAILED, failure=kind, evidence="the reason", seconds=2.0, xpu_hours=0.1)


class Launcher:
    """Answers with the given results and keeps the folders it was given."""

    name = "scripted"

    def __init__(self, *results: Execution) -> None:
        self.results = list(results)
        self.folders: list[Path] = []

    def submit(self, job: Job) -> Handle:
        self.folders.append(job.directory)
        return {}

    def poll(self, handle: Handle) -> JobState:
        return JobState.FINISHED

    def cancel(self, handle: Handle) -> None:
        raise AssertionError("nothing is cancelled here")

    def collect(self, handle: Handle) -> Execution:
        return self.results.pop(0)


@dataclass
class Log:
    """Keeps what was written."""

    rows: list[tuple[int, Execution]] = field(default_factory=list)
    begun: int = 0

    def begin(self) -> int:
        self.begun += 1
        return self.begun - 1

    def submitted(self, attempt: int, handle: Handle) -> None:
        pass

    def finished(self, attempt: int, execution: Execution) -> None:
        self.rows.append((attempt, execution))


def job(directory: Path) -> Job:
    workload, environment = catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16")
    plan = ParallelPlan(framework="torchtitan")
    return Job("r", 0, 0, directory, workload, environment, {}, plan, "", 60.0)


def executed(tmp_path: Path, count: int, *results: Execution, **more: Any) -> tuple[list[Execution], Launcher, Log]:
    launcher, log = Launcher(*results), Log()
    executor = Executor(launcher, Interrupt(), retries=0, sleep=lambda _s: None)
    return repeats.execute(job(tmp_path), executor, log, count, **more), launcher, log


def test_every_repeat_has_a_folder_of_its_own(tmp_path: Path) -> None:
    found, launcher, log = executed(tmp_path, 3, OK, OK, OK)

    assert launcher.folders == [tmp_path, tmp_path / "repeats" / "1", tmp_path / "repeats" / "2"]
    assert all(folder.is_dir() for folder in launcher.folders)
    assert len(found) == 3
    assert [row.provenance["repeat"] for _, row in log.rows] == [0, 1, 2]


def test_a_single_measurement_is_as_it_always_was(tmp_path: Path) -> None:
    found, launcher, log = executed(tmp_path, 1, OK)

    assert (found, launcher.folders, log.rows) == ([OK], [tmp_path], [(0, OK)])


def test_a_failure_ends_the_repeats_and_is_the_trials(tmp_path: Path) -> None:
    found, launcher, _ = executed(tmp_path, 3, OK, failed(FailureClass.OOM))
    whole = repeats.combined(found)

    assert len(launcher.folders) == 2
    assert (whole.state, whole.failure, whole.evidence) == (TrialState.FAILED, FailureClass.OOM, "repeat 2: the reason")
    assert (whole.seconds, whole.xpu_hours) == (12.0, pytest.approx(0.6))


def test_when_the_machines_fail_a_repeat_the_others_count(tmp_path: Path) -> None:
    found, _, _ = executed(tmp_path, 3, OK, OK, failed(FailureClass.NODE_FAILURE))
    whole = repeats.combined(found)

    assert whole.state is TrialState.SUCCEEDED
    assert whole.provenance == {"job": 7, "repeats": 2}
    assert repeats.succeeded(found) == [OK, OK]


def test_machines_that_fail_the_first_repeat_fail_the_trial(tmp_path: Path) -> None:
    found, _, _ = executed(tmp_path, 2, failed(FailureClass.NODE_FAILURE))

    assert repeats.combined(found).failure is FailureClass.NODE_FAILURE


def test_what_is_not_known_of_one_repeat_is_not_known_of_all() -> None:
    whole = repeats.combined([OK, Execution(TrialState.SUCCEEDED, seconds=None, xpu_hours=0.5)])

    assert (whole.seconds, whole.xpu_hours) == (None, 1.0)


def test_repeats_made_before_a_crash_are_not_made_again(tmp_path: Path) -> None:
    found, launcher, _ = executed(tmp_path, 3, OK, done=[OK, OK])

    assert launcher.folders == [tmp_path / "repeats" / "2"]
    assert len(found) == 3


@dataclass
class Attempt:
    """What `repeats.done` reads of an attempt."""

    state: TrialState
    provenance: dict[str, Any]
    failure: FailureClass | None = None
    evidence: str = ""
    seconds: float | None = 10.0
    xpu_hours: float | None = 0.5


def test_finished_repeats_are_read_from_the_attempts(tmp_path: Path) -> None:
    _, _, log = executed(tmp_path, 2, OK, OK)

    attempts: Any = [Attempt(row.state, row.provenance) for _, row in log.rows]
    attempts.append(Attempt(TrialState.FAILED, {"repeat": 2}, FailureClass.NODE_FAILURE))
    found = repeats.done(attempts, tmp_path, Fidelity.SIMULATED)

    assert [execution.trace_dir for execution in found] == [tmp_path / "trace", tmp_path / "repeats" / "1" / "trace"]
    assert [execution.provenance for execution in found] == [{"job": 7}] * 2
    assert all(execution.fidelity is Fidelity.MEASURED for execution in found)


def test_a_last_attempt_that_the_config_failed_is_not_made_again_and_one_that_the_machines_failed_is(
    tmp_path: Path,
) -> None:
    lost = Attempt(TrialState.FAILED, {}, FailureClass.PREEMPTED, "preempted")
    out = Attempt(TrialState.FAILED, {"job": 8}, FailureClass.OOM, "CUDA out of memory")
    attempts: Any = [lost, out]
    again: Any = [out, lost]

    (found,) = repeats.done(attempts, tmp_path, Fidelity.MEASURED)

    assert (found.failure, found.evidence, found.trace_dir) == (FailureClass.OOM, "CUDA out of memory", None)
    assert repeats.done(again, tmp_path, Fidelity.MEASURED) == []


def test_an_attempt_that_says_no_fidelity_has_that_of_its_run(tmp_path: Path) -> None:
    attempts: Any = [Attempt(TrialState.SUCCEEDED, {"backend": "flow"})]

    (found,) = repeats.done(attempts, tmp_path, Fidelity.SIMULATED)

    assert (found.fidelity, found.trace_dir) == (Fidelity.SIMULATED, tmp_path / "trace")
    assert (found.seconds, found.xpu_hours, found.provenance) == (10.0, 0.5, {"backend": "flow"})


def measured(*steps: float) -> list[Measurement]:
    return [
        Measurement({"avg_step_time": MetricValue.of(STEP, step), "num_xpus": MetricValue.of(XPUS, 4)})
        for step in steps
    ]


def test_values_are_means_with_the_single_ones_kept() -> None:
    found = repeats.mean(measured(1.0, 2.0, 4.5))

    assert found.values["avg_step_time"].value == pytest.approx(2.5)
    assert found.values["avg_step_time"].detail == {"repeats": [1.0, 2.0, 4.5]}
    assert repeats.spread(found.values["avg_step_time"]) == pytest.approx(3.5)
    assert repeats.spread(found.values["num_xpus"]) == 0.0


def test_equal_repeats_have_exactly_their_value() -> None:
    assert repeats.mean(measured(*[0.1] * 7)).values["avg_step_time"].value == 0.1


def test_a_metric_that_one_repeat_lacks_has_no_mean() -> None:
    none = {"avg_step_time": MetricValue.none(STEP, "no step found"), "num_xpus": MetricValue.of(XPUS, 4)}
    lacking = Measurement(none)

    found = repeats.mean([*measured(1.0), lacking]).values["avg_step_time"]

    assert (found.value, found.reason) == (None, "repeat 2: no step found")


def test_a_repeat_without_a_trace_is_named() -> None:
    missing = Measurement(failure=FailureClass.TRACE_MISSING, evidence="no trace files")

    found = repeats.mean([*measured(1.0), missing])

    assert (found.failure, found.evidence) == (FailureClass.TRACE_MISSING, "repeat 2: no trace files")


def test_the_spread_of_scores_is_that_of_the_objective() -> None:
    made = objective.build([STEP, XPUS], [0.5, 0.5], {"avg_step_time": 2.0, "num_xpus": 4.0})
    values = repeats.mean(measured(1.0, 2.0)).values

    assert repeats.score_spread(values, made) == pytest.approx((0.5 * 2 + 0.5) - (0.5 * 1 + 0.5))
    assert repeats.score_spread(measured(1.0)[0].values, made) is None


@pytest.mark.parametrize(
    ("difference", "spreads", "inside"),
    [(0.1, (0.1, 0.0), True), (0.11, (0.1, 0.05), False), (-0.05, (0.0, 0.1), True), (0.0, (None, None), False),
     (0.0, (0.0, None), True)],
)  # fmt: skip
def test_a_difference_is_inside_the_larger_spread(
    difference: float, spreads: tuple[float | None, ...], inside: bool
) -> None:
    assert repeats.within(difference, *spreads) is inside


def test_an_improvement_inside_the_spread_is_none() -> None:
    scores = [(-1.0, 0.1), (-0.95, 0.02), (None, None), (-0.8, 0.05), (-0.7, None)]

    assert repeats.steady_scores(scores) == [-1.0, -1.0, None, -0.8, -0.7]


class DyingLauncher:
    """The dry run, in a process that dies at the given submission."""

    name = "dry-run"

    def __init__(self, dies_at: int | None = None) -> None:
        from launchers.dry_run import DryRunLauncher

        self.real, self.dies_at, self.submitted = DryRunLauncher(), dies_at, 0

    def submit(self, job: Job) -> Handle:
        self.submitted += 1
        if self.submitted == self.dies_at:
            raise KeyboardInterrupt
        return self.real.submit(job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_a_search_that_died_between_repeats_goes_on_with_the_next_one(tmp_path: Path) -> None:
    from ccl_search import ProblemSource, SearchSettings, create, open_store, reopen

    first, second = DyingLauncher(dies_at=3), DyingLauncher()
    with open_store(str(tmp_path), write=True) as store:
        settings = SearchSettings(iterations=0, proposer="random", repeats=3)
        search = create(ProblemSource(workload="wl4"), settings, store)
        with pytest.raises(KeyboardInterrupt):
            search.run(Executor(first, Interrupt()))
        assert [attempt.state.value for attempt in store.attempts(search.run_id, 0)][:2] == ["succeeded", "succeeded"]

        again = reopen(search.run_id, store)
        again.run(Executor(second, Interrupt()))
        trial = store.trial(search.run_id, 0)

        step = trial.metrics["avg_step_time"]
        assert second.submitted == 1
        assert trial.state is TrialState.SUCCEEDED
        assert step.detail is not None
        assert step.detail["repeats"] == [step.value] * 3
        assert trial.provenance["repeats"] == 3
        places = {Path(found.path).parent.name + Path(found.path).parent.parent.name for found in
                  store.trace_files(search.run_id, 0)}  # fmt: skip
        assert places == {"trace0", "trace1", "trace2"}
