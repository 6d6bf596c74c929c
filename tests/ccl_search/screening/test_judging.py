"""Verdicts from numbers: in every direction an objective may have, with the error that is allowed for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from backends.calibration import Calibration
from ccl_search.problem import ProblemSource, resolve
from ccl_search.proposers.base import TrialView
from ccl_search.screening.plan import ScreenPlan
from ccl_search.screening.screen import Known, Prediction, Screen, corrections, worse_by
from metrics import registry
from runs import objective
from runs.objective import Objective
from runs.screening import Verdict
from runs.trial import TrialState

FACTOR = 1.5
TIME, MFU, COUNT = "avg_step_time", "mfu", "num_xpus"
PROBLEM = resolve(ProblemSource())


def goal(*names: str, **baselines: float) -> Objective:
    return objective.build([registry.spec(name) for name in names], None, baselines)


def screen(check: float = 0.0, seed: int = 0) -> Screen:
    return Screen(ScreenPlan("dry-run", 1, check, Calibration("mine"), FACTOR, "as told"), PROBLEM, seed)


def measured(number: int, aim: Objective, **values: float) -> TrialView:
    return TrialView(number, TrialState.SUCCEEDED, {"tp": number}, metrics=values, score=aim.score(values))


def known(aim: Objective, *trials: TrialView, predicted: dict[int, dict[str, float]] | None = None) -> Known:
    """Trials whose predictions were exact, or those given."""
    pairs = [((predicted or {}).get(trial.number, trial.metrics), trial.metrics) for trial in trials]
    return Known(aim, trials, pairs)


def verdict(aim: Objective, found: Known, **predicted: float) -> Any:
    return screen().judge(Prediction(predicted), found)


def band(count: int) -> float:
    """The factor for one new config when `count` trials tell the common bias."""
    return math.exp(math.log(FACTOR) * math.sqrt(1 + 1 / count))


def test_nothing_measured_means_no_verdict() -> None:
    found = verdict(goal(TIME), Known(goal(TIME)), avg_step_time=100.0)
    assert found.verdict is Verdict.UNKNOWN
    assert found.threshold is None


@pytest.mark.parametrize(("share", "is_hopeless"), [(1.01, True), (0.99, False)])
def test_a_minimised_metric_is_hopeless_beyond_the_error(share: float, is_hopeless: bool) -> None:
    aim = goal(TIME)
    found = verdict(aim, known(aim, measured(0, aim, avg_step_time=2.0)), avg_step_time=2.0 * band(1) * share)
    assert (found.verdict is Verdict.HOPELESS) is is_hopeless
    assert found.threshold == pytest.approx(-2.0 * band(1))
    assert (found.reference, found.factor) == (0, pytest.approx(band(1)))


@pytest.mark.parametrize(("share", "is_hopeless"), [(1.01, False), (0.99, True)])
def test_a_maximised_metric_is_hopeless_below(share: float, is_hopeless: bool) -> None:
    aim = goal(MFU)
    found = verdict(aim, known(aim, measured(0, aim, mfu=0.4)), mfu=0.4 / band(1) * share)
    assert (found.verdict is Verdict.HOPELESS) is is_hopeless


@pytest.mark.parametrize(("step", "is_hopeless"), [(40.0, True), (3.0, False)])
def test_a_composite_is_judged_by_its_score(step: float, is_hopeless: bool) -> None:
    aim = goal(TIME, COUNT, avg_step_time=2.0, num_xpus=16.0)
    best = measured(0, aim, avg_step_time=2.0, num_xpus=16.0)
    found = verdict(aim, known(aim, best), avg_step_time=step, num_xpus=16.0)
    assert found.score == pytest.approx(0.5 * 2.0 / step + 0.5)
    assert (found.verdict is Verdict.HOPELESS) is (found.score < 1.0 / band(1))
    assert (found.verdict is Verdict.HOPELESS) is is_hopeless


def test_the_runs_own_trials_correct_a_common_bias() -> None:
    # everything takes three times what is predicted: 1.0 predicted is 3.0, which 2.0 measured beats by no more than 1.5
    aim = goal(TIME)
    trials = [measured(n, aim, avg_step_time=time) for n, time in enumerate((6.0, 2.0, 9.0))]
    predicted = {n: {TIME: trial.metrics[TIME] / 3} for n, trial in enumerate(trials)}
    found = verdict(aim, known(aim, *trials, predicted=predicted), avg_step_time=1.0)
    assert found.predicted == {TIME: 1.0}
    assert found.expected == {TIME: pytest.approx(3.0)}
    assert found.verdict is Verdict.PASSED
    assert found.reference == 1
    assert verdict(aim, known(aim, *trials), avg_step_time=5.0).verdict is Verdict.HOPELESS


def test_the_bias_is_the_median_of_the_ratios() -> None:
    pairs = [({TIME: 1.0}, {TIME: ratio}) for ratio in (2.0, 3.0, 40.0)]
    assert corrections(pairs, [TIME]) == ({TIME: pytest.approx(3.0)}, 3)
    assert corrections([], [TIME]) == ({TIME: 1.0}, 0)


def test_a_metric_that_was_never_positive_is_not_corrected() -> None:
    assert corrections([({TIME: 0.0}, {TIME: 1.0})], [TIME]) == ({TIME: 1.0}, 0)


def test_more_trials_narrow_the_error() -> None:
    aim = goal(TIME)
    trials = [measured(n, aim, avg_step_time=2.0) for n in range(4)]
    assert verdict(aim, known(aim, *trials), avg_step_time=2.0).factor == pytest.approx(band(4))


def test_the_reason_has_the_numbers() -> None:
    aim = goal(TIME)
    reason = verdict(aim, known(aim, measured(3, aim, avg_step_time=1.0)), avg_step_time=9.0).reason
    for part in ("avg_step_time 9 s", "trial 3", "score -1", f"{band(1):.3g} times", "as told"):
        assert part in reason


def test_what_cannot_be_simulated_is_launched() -> None:
    aim = goal(TIME)
    found = screen().judge(Prediction(hindrance="no bandwidth"), known(aim, measured(0, aim, avg_step_time=1.0)))
    assert found.verdict is Verdict.UNKNOWN
    assert "no bandwidth" in found.reason


def test_a_best_score_of_nought_judges_nothing() -> None:
    aim = goal("bubble_fraction") if "bubble_fraction" in registry.BUNDLED else goal("exposed_communication_time")
    name = aim.terms[0].spec.name
    pairs = [({name: 0.5}, {name: 0.5})]
    trials = [TrialView(0, TrialState.SUCCEEDED, {}, metrics={name: 0.0}, score=0.0)]
    assert screen().judge(Prediction({name: 0.9}), Known(aim, trials, pairs)).verdict is Verdict.UNKNOWN


def test_an_infeasible_trial_is_no_reference() -> None:
    aim = goal(TIME)
    fast = replace(measured(0, aim, avg_step_time=0.1), score=None, violations=("peak_memory_gb <= 1",))
    found = verdict(aim, known(aim, fast, measured(1, aim, avg_step_time=2.0)), avg_step_time=2.0)
    assert (found.verdict, found.reference) == (Verdict.PASSED, 1)


def pareto(count: float, step: float) -> Any:
    aim = goal(TIME, COUNT, avg_step_time=1.0, num_xpus=16.0)
    trials = (measured(0, aim, avg_step_time=1.0, num_xpus=16.0), measured(1, aim, avg_step_time=4.0, num_xpus=4.0))
    found = replace(known(aim, *trials), pareto=True)
    return screen().judge(Prediction({TIME: step, COUNT: count}), found)


def test_in_a_pareto_search_one_trial_has_to_be_better_in_everything() -> None:
    assert pareto(8.0, 3.0).verdict is Verdict.PASSED
    assert pareto(4.0, 40.0).verdict is Verdict.PASSED
    found = pareto(8.0, 40.0)
    assert (found.verdict, found.reference) == (Verdict.HOPELESS, 1)


@pytest.mark.parametrize(("score", "worse"), [(-2.0, -3.0), (3.0, 2.0)])
def test_worse_is_slower_or_less(score: float, worse: float) -> None:
    assert worse_by(score, 1.5) == pytest.approx(worse)


def test_checks_hang_on_seed_and_config_alone() -> None:
    configs = [{"tp": n} for n in range(400)]
    drawn = [screen(0.25)._is_checked(config) for config in configs]
    assert drawn == [screen(0.25)._is_checked(config) for config in configs]
    assert drawn != [screen(0.25, seed=1)._is_checked(config) for config in configs]
    assert 60 < sum(drawn) < 140  # 100 expected, standard deviation 8.7
    assert not any(screen(0.0)._is_checked(config) for config in configs)
    assert all(screen(1.0)._is_checked(config) for config in configs)


def test_predictions_are_the_metrics_of_the_simulated_trace() -> None:
    from backends.dry_run import dry_run

    config = next(PROBLEM.space.valid_configs(PROBLEM.workload_input, PROBLEM.environment_input))
    plan = PROBLEM.framework.plan(config, PROBLEM.workload, PROBLEM.environment)
    found = screen().predict(plan, goal(TIME, COUNT, avg_step_time=1.0, num_xpus=1.0))
    simulated = dry_run(PROBLEM.workload, PROBLEM.environment, plan, Calibration("mine"))
    assert found.values[TIME] == pytest.approx(simulated.wall_s, rel=1e-3)
    assert found.values[COUNT] == plan.world_size
    assert (found.backend, found.version) == (simulated.backend, simulated.version)


def test_what_is_told_is_not_simulated() -> None:
    config = next(PROBLEM.space.valid_configs(PROBLEM.workload_input, PROBLEM.environment_input))
    plan = PROBLEM.framework.plan(config, PROBLEM.workload, PROBLEM.environment)
    found = screen().predict(plan, goal(TIME, COUNT, avg_step_time=1.0, num_xpus=1.0), {COUNT: 7.0})
    assert found.values[COUNT] == 7.0
    assert found.values[TIME] > 0
