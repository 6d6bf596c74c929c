"""What proposers are told: front, hypervolume, and the widest gap by hand; who proposes for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ccl_search.constraints import Limit, parse
from ccl_search.llm.history import facts_block, task_block, trial_line
from ccl_search.pareto.front import Point
from ccl_search.pareto.guidance import guidance
from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.proposers.base import ProposalContext, TrialView
from ccl_search.proposers.guided.choosing import Chooser
from ccl_search.proposers.guided.envelope import Envelope
from ccl_search.proposers.guided.expecting import Candidate, Expectation
from ccl_search.proposers.guided.frontier import gains
from ccl_search.proposers.tpe import TpeProposer
from runs.metric import Direction, MetricSpec
from runs.space import config_key
from runs.trial import TrialState
from tests.ccl_search.recorded import GOOD, axis

STEP, XPUS, MEMORY = axis("avg_step_time"), axis("num_xpus"), axis("peak_memory_gb")
DOWN = MetricSpec("a", "1", "s", Direction.MINIMIZE)


@cache
def problem() -> Problem:
    return resolve(ProblemSource(objectives=("step_time", "num_xpus")))


def view(number: int, step: float, xpus: int, memory: float = 20.0, **more: object) -> TrialView:
    config = {**GOOD, "tp": 2, "dp": xpus // 2, "dp_shard": xpus // 2} if xpus < 16 else dict(GOOD)
    metrics = {"avg_step_time": step, "num_xpus": float(xpus), "peak_memory_gb": memory}
    found = TrialView(number, TrialState.SUCCEEDED, config, metrics, score=1 / step)
    return replace(found, **more)  # type: ignore[arg-type]


def context(*trials: TrialView, pareto: bool = True, limits: tuple[Limit, ...] = ()) -> ProposalContext:
    points = [Point(t.number, (t.metrics["avg_step_time"], t.metrics["num_xpus"])) for t in trials if not t.violations]
    objective = problem().objective.with_baseline({"avg_step_time": 1.0, "num_xpus": 16.0})
    return ProposalContext(
        run_id="r",
        iteration=len(trials),
        iterations=10,
        workload=problem().workload_input,
        environment=problem().environment_input,
        space=problem().space,
        objective=objective,
        history=trials,
        current_policy="",
        limits=limits,
        pareto=guidance(points, (STEP, XPUS)) if pareto else None,
    )


def test_the_widest_gap_is_the_largest_empty_box() -> None:
    rows = [(0.0, 10.0), (1.0, 9.0), (8.0, 1.0), (10.0, 0.0)]
    found = guidance([Point(number, row) for number, row in enumerate(rows)], (DOWN, DOWN))

    assert [point.trial for point in found.front] == [0, 1, 2, 3]
    assert (found.gaps[0].one.trial, found.gaps[0].other.trial) == (1, 2)
    assert found.gaps[0].gain == pytest.approx((8 - 1) * (9 - 1))
    assert [gap.gain for gap in found.gaps] == sorted((gap.gain for gap in found.gaps), reverse=True)


def test_without_points_there_are_only_axes() -> None:
    found = guidance([], (STEP, XPUS))

    assert (found.front, found.gaps, found.axes) == ((), (), (STEP, XPUS))


def expectation(name: str, *values: float) -> Expectation:
    envelope = Envelope(compute=1, tensor=0, data=0, expert=0, bubble=0, memory_gb=1)
    return Expectation(Candidate({}, name, envelope, 1), 1.0, values, 0.0, 0.0)


def test_the_gain_is_the_added_hypervolume_and_nothing_for_dominated_ones() -> None:
    front = guidance([Point(0, (0.0, 10.0)), Point(1, (10.0, 0.0))], (DOWN, DOWN))
    found = gains([expectation("a", 1, 1), expectation("b", 2, 2), expectation("c", 12, 12)], front)

    # The reference is a tenth of the range beyond the worst of front and promising points: (11, 11).
    assert found == pytest.approx([9.0 * 9.0, 0.0, 0.0])


def test_guided_proposes_a_config_off_the_front_for_its_gain() -> None:
    chooser = Chooser.of(context())
    alone = context(view(0, 0.5, 16))

    found = chooser.choose(alone)

    assert found.gain is not None
    assert found.gain > 0
    assert config_key(found.config) != config_key(GOOD)
    assert chooser.choose(context(view(0, 0.5, 16), pareto=False)).gain is None


def test_guided_keeps_to_a_limit_it_can_estimate() -> None:
    """At the end of a search an estimate counts as it is but for 4 %; at its beginning it may be 20 % off."""
    limits = parse(["peak_memory_gb <= 20"], problem().space).limits
    history = (view(0, 0.5, 16, memory=18.0),)
    chooser = Chooser.of(context())
    scale = 18.0 / chooser.candidates[_place(chooser, GOOD)].envelope.memory_gb
    memory = {c.key: c.envelope.memory_gb * scale for c in chooser.candidates}

    free = chooser.choose(replace(context(*history), iteration=10))
    late = chooser.choose(replace(context(*history, limits=limits), iteration=10))
    early = chooser.choose(context(*history, limits=limits))

    assert memory[config_key(free.config)] > 25
    assert memory[config_key(late.config)] <= 20 * 1.041
    assert memory[config_key(early.config)] <= 20 * 1.222


def _place(chooser: Chooser, config: dict[str, object]) -> int:
    return next(n for n, found in enumerate(chooser.candidates) if found.key == config_key(config))


def test_tpe_gets_a_study_with_a_direction_for_every_metric() -> None:
    broken = view(1, 0.2, 4, violations=("peak_memory_gb",), score=None)
    limits = parse(["peak_memory_gb <= 19"], problem().space).limits
    asked = context(view(0, 0.5, 16), broken, limits=limits)
    study = TpeProposer(0)._study(asked, _distributions())

    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MINIMIZE"]
    assert [trial.values for trial in study.trials] == [[0.5, 16.0], [0.2, 4.0]]
    assert study.trials[1].constraints == {"peak_memory_gb <= 19": pytest.approx(1.0)}


def test_tpe_without_a_front_learns_from_scores_and_from_how_far_a_limit_is_broken() -> None:
    limits = parse(["peak_memory_gb <= 19"], problem().space).limits
    broken = view(1, 0.25, 8, memory=25, violations=("peak_memory_gb",), score=None)
    study = TpeProposer(0)._study(context(view(0, 0.5, 16), broken, pareto=False, limits=limits), _distributions())

    assert [direction.name for direction in study.directions] == ["MAXIMIZE"]
    assert study.trials[1].values == [pytest.approx(0.5 * 1 / 0.25 + 0.5 * 16 / 8)]
    assert study.trials[1].constraints == {"peak_memory_gb <= 19": pytest.approx(6.0)}


def _distributions() -> dict[str, object]:
    from optuna.distributions import CategoricalDistribution

    return {knob.key: CategoricalDistribution(knob.choices) for knob in problem().space.knobs}


def test_the_llm_reads_front_gap_limit_and_violation() -> None:
    limits = parse(["peak_memory_gb <= 38"], problem().space).limits
    broken = view(2, 0.1, 8, violations=("`peak_memory_gb <= 38` does not hold",), score=None)
    asked = context(view(0, 0.5, 16), view(1, 0.9, 4), broken, limits=limits)

    facts, task = facts_block(asked), task_block(asked)

    assert "Pareto search over avg_step_time (minimize), num_xpus (minimize)" in facts
    assert "- peak_memory_gb <= 38 (GB)" in facts
    assert "trial 0 (avg_step_time 0.5, num_xpus 16)" in task
    assert "Widest gaps" in task
    assert "adds to the front" in task
    assert "does not hold" in trial_line(broken)


def test_the_llm_reads_nothing_of_fronts_in_other_searches() -> None:
    asked = context(view(0, 0.5, 16), pareto=False)

    assert "Pareto" not in facts_block(asked) + task_block(asked)
    assert "Limits" not in facts_block(asked)
