"""The objective: directions, the composite of the paper, weights, baselines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import objective
from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec

TIME = MetricSpec("avg_step_time", "1", "s", Direction.MINIMIZE)
COUNT = MetricSpec("num_xpus", "1", "devices", Direction.MINIMIZE)
MFU = MetricSpec("mfu", "1", "ratio", Direction.MAXIMIZE)
SIZES = st.floats(1e-6, 1e6)


def test_a_minimised_metric_scores_its_negative_and_a_maximised_one_itself() -> None:
    assert objective.build([TIME], None).score({"avg_step_time": 1.5}) == -1.5
    assert objective.build([MFU], None).score({"mfu": 0.4}) == 0.4


@pytest.mark.parametrize(
    ("devices", "seconds", "score"),
    [(16, 0.44, 1.0), (4, 0.2897, 0.5 * 4.0 + 0.5 * 0.44 / 0.2897), (8, 0.88, 0.5 * 2.0 + 0.5 * 0.5)],
)
def test_the_composite_of_step_time_and_devices_by_hand(devices: int, seconds: float, score: float) -> None:
    made = objective.build([TIME, COUNT], [0.5, 0.5], {"avg_step_time": 0.44, "num_xpus": 16})

    assert made.score({"avg_step_time": seconds, "num_xpus": devices}) == pytest.approx(score, rel=1e-12)


def test_a_maximised_metric_enters_the_composite_by_the_inverse_ratio() -> None:
    made = objective.build([TIME, MFU], [3, 1], {"avg_step_time": 2.0, "mfu": 0.25})

    assert made.score({"avg_step_time": 1.0, "mfu": 0.5}) == pytest.approx(0.75 * 2.0 + 0.25 * 2.0)
    assert made.score({"avg_step_time": 4.0, "mfu": 0.125}) == pytest.approx(0.75 * 0.5 + 0.25 * 0.5)


@given(SIZES, SIZES, SIZES, SIZES, st.floats(0.01, 0.99))
def test_better_values_never_score_lower(time: float, less: float, mfu: float, more: float, weight: float) -> None:
    made = objective.build([TIME, MFU], [weight, 1 - weight], {"avg_step_time": 1.0, "mfu": 1.0})
    worse = {"avg_step_time": max(time, less), "mfu": min(mfu, more)}
    better = {"avg_step_time": min(time, less), "mfu": max(mfu, more)}

    assert made.score(better) >= made.score(worse)


@given(SIZES, SIZES)
def test_trial_zero_scores_one_against_itself(time: float, mfu: float) -> None:
    values = {"avg_step_time": time, "mfu": mfu}
    made = objective.build([TIME, MFU], None).with_baseline(values)

    assert made.score(values) == pytest.approx(1.0)


def test_given_baselines_are_kept_and_missing_ones_filled() -> None:
    made = objective.build([TIME, COUNT], None, {"num_xpus": 16})
    assert made.needs_baseline

    filled = made.with_baseline({"avg_step_time": 2.0, "num_xpus": 4})

    assert [term.baseline for term in filled.terms] == [2.0, 16]
    assert not filled.needs_baseline


def test_a_composite_does_not_score_without_its_baselines_or_over_a_zero() -> None:
    made = objective.build([TIME, COUNT], None)
    with pytest.raises(ValueError, match="no baseline"):
        made.score({"avg_step_time": 1.0, "num_xpus": 4})

    with pytest.raises(ValueError, match="not finite"):
        made.with_baseline({"avg_step_time": 1.0, "num_xpus": 4}).score({"avg_step_time": 0.0, "num_xpus": 4})

    with pytest.raises(KeyError):
        objective.build([TIME], None).score({"mfu": 1.0})


def test_weights_are_equal_when_not_given_and_scaled_to_one() -> None:
    assert [term.weight for term in objective.build([TIME, COUNT], None).terms] == [0.5, 0.5]
    assert [term.weight for term in objective.build([TIME, COUNT], [3, 1]).terms] == [0.75, 0.25]


@pytest.mark.parametrize("weights", [[1], [1, 2, 3], [0, 1], [-1, 2], [float("nan"), 1], [float("inf"), 1]])
def test_weights_that_do_not_fit_are_refused(weights: list[float]) -> None:
    with pytest.raises(BadInputError):
        objective.build([TIME, COUNT], weights)


def test_no_objective_and_one_named_twice_are_refused() -> None:
    with pytest.raises(BadInputError, match="twice"):
        objective.build([TIME, TIME], None)
    with pytest.raises(BadInputError, match="no objective"):
        objective.build([], None)


def test_baselines_that_no_ratio_can_use_are_refused() -> None:
    for baseline in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInputError, match="baseline"):
            objective.build([TIME, COUNT], None, {"num_xpus": baseline})


def test_names_and_the_stored_form() -> None:
    made = objective.build([TIME, MFU], [3, 1], {"mfu": 0.5})

    assert made.name == "0.75*avg_step_time + 0.25*mfu"
    assert objective.build([TIME], None).name == "avg_step_time"
    assert made.as_dict()["terms"][1] == {
        "metric": "mfu",
        "version": "1",
        "unit": "ratio",
        "direction": "maximize",
        "weight": 0.25,
        "baseline": 0.5,
    }
