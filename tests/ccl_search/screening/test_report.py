"""How often a screen was right, against figures worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from backends.calibration import Calibration
from ccl_search.screening.plan import ScreenPlan
from ccl_search.screening.report import at_most, lines, summary
from metrics import registry
from runs import objective
from runs.metric import MetricValue
from runs.screening import Screening, Verdict
from runs.store import Timings, TrialRecord
from runs.trial import FailureClass, TrialState

TIME = registry.spec("avg_step_time")
AIM = objective.build([TIME], None)
PLAN = ScreenPlan("dry-run", 2, 0.5, Calibration("mine"), 1.4, "as told")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def trial(number: int, seconds: float | None, failure: FailureClass | None = None) -> TrialRecord:
    state = TrialState.SUCCEEDED if failure is None else TrialState.FAILED
    if failure is not None and failure.is_refusal:
        state = TrialState.PRUNED
    metrics = {} if seconds is None else {TIME.name: MetricValue.of(TIME, seconds)}
    nothing: dict[str, Any] = dict.fromkeys(
        ("config", "config_key", "plan", "num_xpus", "policy_id", "objective", "fidelity", "backend", "launched",
         "finished", "xpu_hours")
    )  # fmt: skip
    return TrialRecord(
        run_id="r", number=number, iteration=number, state=state, failure=failure, evidence="", card="", script="",
        policy_source="", rationale="", score=None if seconds is None else -seconds, metrics=metrics, provenance={},
        proposed=NOW, timings=Timings(), **nothing,
    )  # fmt: skip


def screening(verdict: Verdict, predicted: float, expected: float | None = None, reference: int = 0) -> Screening:
    corrected = {} if expected is None else {TIME.name: expected}
    factor = None if expected is None else 1.5
    return Screening(
        verdict=verdict, reason="x", predicted={TIME.name: predicted}, expected=corrected or {TIME.name: predicted},
        factor=factor, reference=reference, seconds=0.5,
    )  # fmt: skip


TRIALS = [
    trial(0, 4.0),
    trial(1, 2.0),
    trial(2, None, FailureClass.SCREENED),
    trial(3, 3.0),
    trial(4, 1.0),
    trial(5, None, FailureClass.OOM),
    trial(6, None, FailureClass.PREDICTED_OOM),
]
SCREENINGS = {
    0: screening(Verdict.UNKNOWN, 2.0),
    1: screening(Verdict.PASSED, 1.0, expected=2.2),
    2: screening(Verdict.HOPELESS, 9.0, expected=18.0, reference=1),
    3: screening(Verdict.CHECKED, 3.0, expected=6.0, reference=1),
    4: screening(Verdict.CHECKED, 2.5, expected=5.0, reference=1),
    5: screening(Verdict.PASSED, 1.0, expected=2.0),
    6: Screening(verdict=Verdict.OUT_OF_MEMORY, reason="x"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return summary(PLAN, AIM, TRIALS, SCREENINGS)


def test_every_verdict_is_counted(found: dict[str, Any]) -> None:
    assert found["considered"] == 7
    assert found["verdicts"] == {
        "passed": 2, "checked": 2, "unknown": 1, "hopeless": 1, "outranked": 0, "out_of_memory": 1,
    }  # fmt: skip
    assert found["seconds"] == 3.0


def test_predictions_are_compared_with_what_was_measured(found: dict[str, Any]) -> None:
    # predicted 2, 1, 3, 2.5 and measured 4, 2, 3, 1: ranks 2 1 4 3 and 4 2 3 1, so 1 - 6 (4 + 1 + 1 + 4) / (4 * 15)
    assert found["launched_and_measured"] == 4
    assert found["spearman"] == pytest.approx(0.0, abs=1e-12)
    # |2/4 - 1|, |1/2 - 1|, |3/3 - 1|, |2.5/1 - 1| = 0.5 0.5 0 1.5
    assert found["median_error"] == {TIME.name: pytest.approx(0.5)}
    # corrected: 2.2/2, 6/3, 5/1; trial 0 came before any correction
    assert found["median_error_corrected"] == {TIME.name: pytest.approx(1.0)}
    assert found["within_factor"] == pytest.approx(1 / 3)
    assert found["missed_oom"] == 1


def test_checks_tell_false_rejections_and_regret(found: dict[str, Any]) -> None:
    # trial 3 (3 s) was rightly rejected against trial 1 (2 s), trial 4 (1 s) wrongly
    checks = found["checks"]
    assert (checks["launched"], checks["measured"], checks["false"], checks["false_rate"]) == (2, 2, 1, 0.5)
    # without the checks the best would be 2 s, which is twice as long as 1 s
    assert found["regret"] == pytest.approx(1.0)


def test_a_check_that_ran_out_of_memory_was_rightly_rejected() -> None:
    screenings = {0: SCREENINGS[0], 5: screening(Verdict.CHECKED, 9.0, expected=18.0)}
    checks = summary(PLAN, AIM, [TRIALS[0], TRIALS[5]], screenings)["checks"]
    assert (checks["measured"], checks["false"]) == (1, 0)


def test_without_checks_nothing_is_claimed() -> None:
    found = summary(PLAN, AIM, TRIALS[:3], {number: SCREENINGS[number] for number in range(3)})
    assert found["regret"] is None
    assert found["checks"]["false_rate"] is None
    assert found["spearman"] is None
    assert any("not known" in line for line in lines(found))


def test_lines_name_what_a_person_needs(found: dict[str, Any]) -> None:
    said = "\n".join(lines(found))
    for part in ("7 proposals", "1 hopeless", "Spearman 0.00", "median error of avg_step_time 50.0%", "1 of 2 checked"):
        assert part in said


@pytest.mark.parametrize(("hits", "tries"), [(0, 5), (1, 8), (3, 20)])
def test_the_bound_is_where_so_few_hits_become_rare(hits: int, tries: int) -> None:
    rate = at_most(hits, tries)
    tail = sum(math.comb(tries, k) * rate**k * (1 - rate) ** (tries - k) for k in range(hits + 1))
    assert tail == pytest.approx(0.05, abs=1e-9)


def test_nothing_bounds_a_rate_of_all() -> None:
    assert at_most(3, 3) == 1.0
