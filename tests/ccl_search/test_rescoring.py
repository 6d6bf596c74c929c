"""Scoring again: from stored values or traces, old scores kept, nothing executed; told apart from what cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ccl_search.pareto.of_run import REFERENCE, of_run
from ccl_search.problem import ProblemSource, objective_of
from ccl_search.rescoring import rescore
from runs.errors import BadInputError
from runs.objective import Objective
from runs.store import Store
from runs.trial import FailureClass
from tests.ccl_search.recorded import Recorded, record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path, write=True) as found:
        yield found


def objective(*names: str, weights: tuple[float, ...] = (), **baselines: float) -> Objective:
    return objective_of(ProblemSource(objectives=names, weights=weights, baselines=baselines))


def step(seconds: float, xpus: int, **more: float) -> dict[str, float]:
    return {"avg_step_time": seconds, "num_xpus": float(xpus), **more}


def test_another_objective_changes_the_best_and_keeps_the_old_scores(store: Store) -> None:
    run = record(store, [step(1.0, 16), step(1.5, 4)], objectives=("step_time",))
    assert store.best(run).number == 0  # type: ignore[union-attr]

    results = rescore(store, run, objective("num_xpus"))

    assert [(r.previous_score, r.score, r.recomputed) for r in results] == [(-1.0, -16.0, ()), (-1.5, -4.0, ())]
    assert store.best(run).number == 1  # type: ignore[union-attr]
    assert [found.score for found in store.scores(run, 1)] == [-1.5, -4.0]
    assert store.run(run).objective["name"] == "num_xpus"


def test_a_composite_takes_its_baselines_from_the_first_trial(store: Store) -> None:
    run = record(store, [step(1.0, 16), step(2.0, 4)], objectives=("step_time",))

    results = rescore(store, run, objective("step_time", "num_xpus", weights=(0.25, 0.75)))

    assert [r.score for r in results] == pytest.approx([1.0, 0.25 * 0.5 + 0.75 * 4.0])


def test_other_weights_keep_the_runs_baselines(store: Store) -> None:
    run = record(store, [step(2.0, 8), step(1.0, 16)])

    results = rescore(store, run, objective("step_time", "num_xpus", weights=(3.0, 1.0)))

    assert [r.score for r in results] == pytest.approx([1.0, 0.75 * 2 + 0.25 * 0.5])


def test_given_baselines_count(store: Store) -> None:
    run = record(store, [step(2.0, 8)])

    (result,) = rescore(store, run, objective("step_time", "num_xpus", step_time=4.0, num_xpus=16.0))

    assert result.score == pytest.approx(2.0)


def test_a_trial_without_the_metric_loses_its_score_and_says_why(store: Store) -> None:
    run = record(store, [step(1.0, 16), step(0.5, 16, mfu=40.0)])

    results = rescore(store, run, objective("mfu"))

    assert results[0].score is None
    assert "mfu: no trace" in results[0].reason
    assert store.trial(run, 0).score is None
    assert store.best(run).number == 1  # type: ignore[union-attr]
    assert len(store.scores(run, 0)) == 1


def test_constraints_hold_under_the_new_objective_too(store: Store) -> None:
    run = record(store, [step(1.0, 16, peak_memory_gb=39.0), step(2.0, 16, peak_memory_gb=30.0)],
                 objectives=("num_xpus",), bounds=("peak_memory_gb <= 38",))  # fmt: skip

    results = rescore(store, run, objective("step_time"))

    assert [r.score for r in results] == [None, -2.0]
    assert results[0].reason.startswith("infeasible")


def test_values_of_another_tool_version_stay_where_there_is_no_trace(store: Store) -> None:
    run = record(store, [Recorded(step(1.0, 16), version="0.0.1")], objectives=("step_time",))

    (result,) = rescore(store, run, objective("num_xpus"))

    assert (result.score, result.kept) == (-16.0, ("num_xpus",))


def test_nothing_is_written_when_nothing_can_be_scored(store: Store) -> None:
    run = record(store, [step(1.0, 16)])

    with pytest.raises(BadInputError, match=r"no trial of run \S+ can be scored"):
        rescore(store, run, objective("mfu"))

    assert store.run(run).objective["name"] == "0.5*avg_step_time + 0.5*num_xpus"
    assert store.trial(run, 0).score == 1.0


def test_failed_and_refused_trials_are_left_alone(store: Store) -> None:
    run = record(store, [step(1.0, 16), Recorded(failure=FailureClass.OOM), Recorded(failure=FailureClass.DUPLICATE)])

    results = rescore(store, run, objective("step_time"))

    assert [r.trial for r in results] == [0]


def test_a_run_that_never_ran_has_nothing_to_score(store: Store) -> None:
    run = record(store, [Recorded(failure=FailureClass.OOM)])

    with pytest.raises(BadInputError, match="no trial that ran"):
        rescore(store, run, objective("step_time"))


def test_neither_objective_nor_metric_is_refused(store: Store) -> None:
    with pytest.raises(BadInputError, match="neither an objective nor a metric"):
        rescore(store, record(store, [step(1.0, 16)]), None)


def test_a_new_front_gets_its_reference_point_and_an_old_axis_keeps_its_own(store: Store) -> None:
    run = record(store, [step(1.0, 16, mfu=10.0), step(2.0, 8, mfu=30.0)])
    store.set_option(run, REFERENCE, {"avg_step_time": 5.0, "num_xpus": 20.0})

    rescore(store, run, objective("step_time", "mfu"))

    assert store.run(run).options[REFERENCE] == {"avg_step_time": 5.0, "num_xpus": 20.0, "mfu": pytest.approx(8.0)}
    assert of_run(store, run).fixed
