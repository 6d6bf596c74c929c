"""The history in memory: which iterations are over, which configs count as tried."""

from __future__ import annotations

from typing import Any

import pytest

from ccl_search.loop.history import History
from ccl_search.proposers.base import TrialView
from ccl_search.settings import MAX_REPROPOSALS
from runs.space import config_key
from runs.trial import FailureClass as F
from runs.trial import TrialState as S

OK: tuple[Any, ...] = (S.SUCCEEDED, None)
REFUSED = (S.PRUNED, F.PREDICTED_OOM)
BAD_POLICY = (S.FAILED, F.POLICY_ERROR)
CANCELLED = (S.CANCELLED, F.CANCELLED)
GAVE_UP = (S.FAILED, F.PROPOSAL_FAILED)
OOM = (S.FAILED, F.OOM)


def history(*trials: tuple[Any, ...], iteration: int = 1) -> History:
    found = History()
    for number, (state, failure) in enumerate(trials):
        found.add(iteration, TrialView(number, state, {"tp": number}, failure=failure, policy_source=f"# {number}"))
    return found


@pytest.mark.parametrize(
    ("trials", "over"),
    [
        ((), False),
        ((OK,), True),
        ((OOM,), True),
        ((REFUSED,) * MAX_REPROPOSALS, False),
        ((REFUSED,) * (MAX_REPROPOSALS + 1), True),
        ((REFUSED, BAD_POLICY, OK), True),
        ((REFUSED, GAVE_UP), True),
        ((CANCELLED,), False),
        ((REFUSED,) * MAX_REPROPOSALS + (CANCELLED, REFUSED), False),
        ((CANCELLED, OK), True),
        ((CANCELLED, GAVE_UP), True),
        ((CANCELLED,) + (REFUSED,) * (MAX_REPROPOSALS + 1), True),
    ],
)
def test_an_iteration_is_over_when_it_led_to_a_result_or_to_nothing(trials: tuple[Any, ...], over: bool) -> None:
    assert history(*trials).is_over(1) is over


def test_a_refused_seed_policy_is_not_tried_again() -> None:
    assert history(REFUSED, iteration=0).is_over(0)


def test_the_first_open_iteration_skips_those_that_are_over_or_under_way() -> None:
    found = History()
    assert found.first_open(set()) == 0
    for iteration in (0, 1, 3):
        found.add(iteration, TrialView(iteration, S.SUCCEEDED, None))

    assert found.first_open(set()) == 2
    assert found.first_open({2}) == 4
    found.add(2, TrialView(9, S.SUCCEEDED, None))
    assert found.first_open(set()) == 4


def test_what_the_machines_did_is_not_held_against_a_config() -> None:
    found = history(OK, OOM, (S.FAILED, F.NODE_FAILURE), CANCELLED, (S.FAILED, F.TRACE_MISSING), REFUSED)

    assert list(found.tried) == [config_key({"tp": number}) for number in (0, 1, 5)]
    assert found.newest_policy == "# 5"
    assert len(found.views) == 6
