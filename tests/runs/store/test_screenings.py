"""Decisions of screens: stored with their proposals, read back as they were, in stores of the first schema too."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.screening import Screening, Verdict
from runs.store import NewTrial, Store
from runs.store.migrations import MIGRATIONS
from runs.trial import FailureClass, TrialState
from tests.runs.store import make

HOPELESS = Screening(
    verdict=Verdict.HOPELESS,
    reason="expected 2.9 s",
    predicted={"avg_step_time": 1.5},
    expected={"avg_step_time": 2.9},
    score=-2.9,
    threshold=-2.0,
    factor=1.4,
    reference=3,
    candidates=2,
    backend="flow",
    backend_version="1",
    calibration="mine",
    seconds=0.25,
)


def _refused(screening: Screening | None) -> NewTrial:
    return NewTrial(
        iteration=1, config={"tp": 2, "dp": 4}, state=TrialState.PRUNED, failure=FailureClass.SCREENED,
        evidence="screened", screening=screening,
    )  # fmt: skip


def test_decisions_come_back_by_trial(store: Store) -> None:
    run_id = store.create_run(make.new_run())
    other = store.create_run(make.new_run())
    make.add_success(store, run_id, 1.0)
    number = store.add_trial(run_id, _refused(HOPELESS))
    unknown = Screening(verdict=Verdict.UNKNOWN, reason="nothing measured yet")
    launched = store.add_trial(run_id, NewTrial(iteration=2, config={"tp": 4, "dp": 2}, screening=unknown))

    assert store.screenings(run_id) == {number: HOPELESS, launched: unknown}
    assert store.screenings(other) == {}
    assert store.trial(run_id, number).values == {}


def test_a_store_of_the_first_schema_is_brought_up(home: Path) -> None:
    with Store.open(home, write=True, known=MIGRATIONS[:1]) as store:
        run_id = store.create_run(make.new_run())
        make.add_success(store, run_id, 1.0)
    with Store.open(home, write=True) as store:
        number = store.add_trial(run_id, _refused(HOPELESS))
        assert store.screenings(run_id) == {number: HOPELESS}
        assert store.trial(run_id, 0).values == {"avg_step_time": 1.0}


@pytest.mark.parametrize(("verdict", "launched"), [(v, v.value in ("passed", "checked", "unknown")) for v in Verdict])
def test_verdicts_say_whether_there_is_a_launch(verdict: Verdict, launched: bool) -> None:
    assert verdict.is_launched is launched
