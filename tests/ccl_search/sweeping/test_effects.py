"""Main effects against numbers worked out by hand."""

from __future__ import annotations

import pytest

from ccl_search.sweeping.effects import main_effects
from runs.metric import Direction

ROWS = [
    ({"tp": 1, "mode": "a", "fixed": 7}, 1.0),
    ({"tp": 1, "mode": "b", "fixed": 7}, 3.0),
    ({"tp": 2, "mode": "a", "fixed": 7}, 5.0),
    ({"tp": 2, "mode": "b", "fixed": 7}, 7.0),
]


def test_a_grid_of_two_knobs() -> None:
    tp, mode = main_effects(ROWS, Direction.MINIMIZE)

    assert (tp.knob, mode.knob) == ("tp", "mode")  # 6 / 2 is more than 5 / 3; what never varies has no effect
    assert tp.spread == pytest.approx(3.0)
    assert mode.spread == pytest.approx(5 / 3)
    assert [(x.choice, x.count, x.mean, x.best, x.worst) for x in tp.levels] == [
        (1, 2, 2.0, 1.0, 3.0),
        (2, 2, 6.0, 5.0, 7.0),
    ]


def test_a_maximised_metric_turns_best_and_worst() -> None:
    tp, _ = main_effects(ROWS, Direction.MAXIMIZE)

    assert [(x.choice, x.best, x.worst) for x in tp.levels] == [(2, 7.0, 5.0), (1, 3.0, 1.0)]


def test_true_and_one_are_two_choices() -> None:
    (only,) = main_effects([({"x": True}, 1.0), ({"x": 1}, 2.0)], Direction.MINIMIZE)

    assert [(type(level.choice), level.mean) for level in only.levels] == [(bool, 1.0), (int, 2.0)]
