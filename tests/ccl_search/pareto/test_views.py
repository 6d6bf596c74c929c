"""What counts as progress of a Pareto search: a trial that adds to the front, whatever its composite score."""

from __future__ import annotations

from ccl_search.pareto.views import growth, guidance_of
from ccl_search.proposers.base import TrialView
from runs import objective
from runs.trial import FailureClass, TrialState
from tests.ccl_search.recorded import axis

OBJECTIVE = objective.build([axis("avg_step_time"), axis("num_xpus")], None)


def trial(number: int, step: float | None, xpus: float = 4.0, violations: tuple[str, ...] = ()) -> TrialView:
    if step is None:
        return TrialView(number, TrialState.FAILED, {}, failure=FailureClass.OOM)
    metrics = {"avg_step_time": step, "num_xpus": xpus}
    return TrialView(number, TrialState.SUCCEEDED, {}, metrics, score=1.0, violations=violations)


HISTORY = (
    trial(0, 1.0, 16),
    trial(1, None),
    trial(2, 2.0, 8),
    trial(3, 2.5, 8),
    trial(4, 2.0, 8),
    trial(5, 0.1, 1, violations=("too much memory",)),
    trial(6, 0.5, 4),
)


def test_a_trial_counts_when_it_is_neither_dominated_nor_a_tie() -> None:
    assert growth(HISTORY, OBJECTIVE) == [1.0, None, 2.0, 2.0, 2.0, None, 3.0]


def test_guidance_is_over_the_trials_that_may_be_ranked() -> None:
    found = guidance_of(HISTORY[:6], OBJECTIVE)

    assert [point.trial for point in found.front] == [0, 2, 4]
    assert found.reference == (2.5 + 0.15, 16 + 0.8)
