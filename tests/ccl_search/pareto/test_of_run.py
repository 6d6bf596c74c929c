"""Fronts of stored runs: who is a candidate, the stored reference point, several runs together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccl_search.loop.recorder import Recorder
from ccl_search.pareto import report
from ccl_search.pareto.of_run import REFERENCE, of_run
from ccl_search.repeats import IDENTICAL, MEASURED_ONCE
from ccl_search.report import closing_lines, run_summary
from runs.errors import BadInputError
from runs.store import Store
from runs.trial import FailureClass, Fidelity
from tests.ccl_search.recorded import Recorded, axis, record

SIMULATED = Fidelity.SIMULATED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path, write=True) as found:
        yield found


def point(step: float, xpus: int, **more: Any) -> dict[str, Any]:
    return {"avg_step_time": step, "num_xpus": float(xpus), **more}


def test_only_succeeded_feasible_trials_are_candidates(store: Store) -> None:
    run = record(
        store,
        [
            point(1.0, 16, peak_memory_gb=30.0),
            Recorded(point(0.1, 1), failure=FailureClass.OOM),
            Recorded(failure=FailureClass.INVALID_CONFIG),
            point(0.2, 2, peak_memory_gb=39.0),
            point(0.3, 2),
            point(0.9, 8, peak_memory_gb=38.0),
            point(0.95, 8, peak_memory_gb=20.0),
        ],
        bounds=("peak_memory_gb <= 38",),
    )

    found = of_run(store, run)

    assert [p.trial for p in found.candidates] == [0, 5, 6]
    assert [p.trial for p in found.members] == [5]
    assert set(found.infeasible) == {3, 4}
    assert "39 GB" in found.infeasible[3][0]
    assert "cannot be checked" in found.infeasible[4][0]
    assert store.best(run).number == 5  # type: ignore[union-attr]


def test_measured_and_simulated_trials_share_no_front(store: Store) -> None:
    run = record(store, [Recorded(point(0.1, 1), fidelity=SIMULATED), Recorded(point(1.0, 16))])

    assert [p.trial for p in of_run(store, run).members] == [1]


def test_the_reference_point_is_stored_when_the_run_ends_and_stays(store: Store) -> None:
    run = record(store, [point(1.0, 16), point(2.0, 6)])
    before = of_run(store, run)

    Recorder.load(store, run).finish("finished", "")
    after = of_run(store, run)

    assert (before.fixed, after.fixed) == (False, True)
    assert store.run(run).options[REFERENCE] == {
        "avg_step_time": pytest.approx(2.1),
        "num_xpus": pytest.approx(17.0),
    }
    assert after.hypervolume == pytest.approx((2.1 - 1) * (17 - 16) + (2.1 - 2) * (16 - 6))
    assert after.history == pytest.approx((1.1, 1.1 + 1.0))


def test_a_given_reference_point_must_have_every_axis(store: Store) -> None:
    run = record(store, [point(1.0, 16)])

    assert of_run(store, run, limit={"avg_step_time": 3.0, "num_xpus": 20.0}).hypervolume == pytest.approx(2.0 * 4.0)
    with pytest.raises(BadInputError, match="no value for num_xpus"):
        of_run(store, run, limit={"avg_step_time": 3.0})


def test_other_axes_than_the_objective(store: Store) -> None:
    run = record(store, [point(1.0, 16, mfu=10.0), point(2.0, 8, mfu=30.0)], objectives=("step_time",))

    found = of_run(store, run, [axis("avg_step_time"), axis("mfu")])

    assert [p.trial for p in found.members] == [0, 1]
    assert found.reference == pytest.approx((2.1, 8.0))
    with pytest.raises(BadInputError, match="2 to 4 metrics, got 1"):
        of_run(store, run)


def test_several_runs_share_a_reference_and_a_front(store: Store) -> None:
    first = record(store, [point(1.0, 16), point(3.0, 4)])
    second = record(store, [point(0.9, 16), point(5.0, 2), point(3.0, 4)])

    document = report.document(store, report.fronts_of(store, [first, second]))

    references = [run["reference_point"] for run in document["runs"]]
    assert references[0] == references[1]
    assert references[0] == {"avg_step_time": pytest.approx(5.41), "num_xpus": pytest.approx(17.4)}
    assert document["joint"] == {first: [1], second: [0, 2, 1]}


def test_measured_and_simulated_runs_have_no_joint_front(store: Store) -> None:
    first = record(store, [point(1.0, 16)])
    second = record(store, [Recorded(point(0.9, 16), fidelity=SIMULATED, backend="flow")])

    document = report.document(store, report.fronts_of(store, [first, second]))

    assert document["joint"] is None
    assert [run["fidelity"] for run in document["runs"]] == ["measured", "simulated"]


def test_runs_of_different_work_are_not_laid_over_each_other(store: Store) -> None:
    first = record(store, [point(1.0, 16)])
    second = record(store, [point(0.3, 16)], workload={"batch_size": 1})

    with pytest.raises(BadInputError, match=r"batch_size is 4 in \S+, 1 in "):
        report.fronts_of(store, [first, second])


def test_members_carry_their_policy(store: Store) -> None:
    run = record(store, [point(1.0, 16)])

    (member,) = report.document(store, report.fronts_of(store, [run]))["runs"][0]["front"]

    assert member["policy_path"].endswith(f"{run}/trials/0/policy.py")
    assert member["policy_sha256"] == store.trial(run, 0).policy_id


def test_members_that_the_spread_does_not_tell_apart_are_named(store: Store) -> None:
    run = record(
        store,
        [point((1.0, 1.2), 8), point((1.15, 1.15), 8), point((2.0, 2.0), 4)],  # type: ignore[arg-type]
        repeats=2,
    )

    front = report.document(store, report.fronts_of(store, [run]))["runs"][0]["front"]

    assert {member["trial"]: member["indistinguishable"] for member in front} == {0: [1], 2: []}


def test_the_summary_says_front_ties_and_noise(store: Store) -> None:
    spread: Any = [point((1.0, 1.2), 8), point((1.05, 1.05), 8), point((3.0, 3.0), 8)]
    run = record(store, spread, repeats=2)

    summary = run_summary(store, run, 1.0)

    assert summary["best"]["trial"] == 1
    assert summary["ties"] == [0]
    assert summary["front"] == [1]
    assert summary["warnings"] == []
    assert summary["best"]["spread"] == {"avg_step_time": 0.0}
    assert "not told apart from trial 0" in closing_lines(summary)


def test_results_measured_once_and_repeated_dry_runs_carry_a_warning(store: Store) -> None:
    once = record(store, [point(1.0, 16)])
    dry = record(store, [Recorded(point(1.0, 16), fidelity=SIMULATED)], repeats=3)

    assert run_summary(store, once, 1.0)["warnings"] == [MEASURED_ONCE]
    assert run_summary(store, dry, 1.0)["warnings"] == [IDENTICAL]
    assert "3.6 %" in closing_lines(run_summary(store, once, 1.0))
