"""Stoppers: each budget ends a search when it should, and not before."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ccl_search.loop.stoppers import (
    MaxCost,
    MaxIterations,
    MaxSeconds,
    MaxXpuHours,
    Outcome,
    Patience,
    Progress,
    first_reason,
)
from runs.trial import FailureClass, TrialState


def scored(score: float) -> Outcome:
    return Outcome(TrialState.SUCCEEDED, score)


def failed(failure: FailureClass) -> Outcome:
    return Outcome(TrialState.FAILED, None, failure)


def test_iterations_do_not_count_the_seed_policy() -> None:
    progress = Progress([scored(1.0)] * 3)

    assert MaxIterations(3)(progress) is None
    assert MaxIterations(2)(progress) == "2 iterations done"


def test_patience_counts_iterations_since_the_last_better_score() -> None:
    progress = Progress([scored(-2.0), scored(-1.0), scored(-1.0), scored(-3.0)])

    assert Patience(3)(progress) is None
    assert "2 iterations" in (Patience(2)(progress) or "")


@pytest.mark.parametrize(
    "failure",
    [FailureClass.NODE_FAILURE, FailureClass.PREEMPTED, FailureClass.METRIC_ERROR, FailureClass.TRACE_MISSING],
)
def test_patience_ignores_what_is_not_the_proposals_fault(failure: FailureClass) -> None:
    progress = Progress([scored(-1.0), *[failed(failure)] * 9])

    assert Patience(1)(progress) is None


@pytest.mark.parametrize("failure", [FailureClass.OOM, FailureClass.INVALID_CONFIG, FailureClass.POLICY_ERROR])
def test_patience_counts_failures_of_the_config(failure: FailureClass) -> None:
    progress = Progress([scored(-1.0), failed(failure), failed(failure)])

    assert Patience(2)(progress) is not None


def test_budgets_end_the_search_when_reached() -> None:
    progress = Progress([scored(0.0)], known_cost_usd=Decimal("2.50"), xpu_hours=4.0, seconds=60.0)

    assert MaxCost(Decimal("2.51"))(progress) is None
    assert "$2.50" in (MaxCost(Decimal("2.5"))(progress) or "")
    assert MaxXpuHours(4.5)(progress) is None
    assert "4.00" in (MaxXpuHours(4.0)(progress) or "")
    assert MaxSeconds(61)(progress) is None
    assert MaxSeconds(60)(progress) is not None


def test_the_first_reason_is_given() -> None:
    progress = Progress([scored(0.0)], seconds=9.0)

    assert first_reason([MaxIterations(5), MaxSeconds(1), MaxSeconds(2)], progress) == "time budget of 1 s is used up"
    assert first_reason([MaxIterations(5)], progress) is None
