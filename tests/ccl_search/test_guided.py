"""The guided proposer: it moves the knob the bottleneck asks for, is deterministic, and sees only what was recorded."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.proposers.base import ProposalContext, ProposerExhaustedError, TrialView
from ccl_search.proposers.guided import GuidedProposer, choosing
from ccl_search.proposers.guided.choosing import Chooser
from ccl_search.proposers.guided.envelope import estimate
from ccl_search.proposers.guided.setting import Setting
from ccl_search.proposers.samplers import GridProposer, RandomProposer
from ccl_search.proposers.tpe import TpeProposer
from policies.runner import PolicyRunner
from runs import space as space_module
from runs.expressions import parse
from runs.space import Config, ConfigSpace, Constraint
from runs.trial import FailureClass, TrialState

GUIDED = Path(__file__).resolve().parents[2] / "ccl_search" / "proposers" / "guided"


@pytest.fixture(scope="module")
def problem() -> Problem:
    return resolve(ProblemSource(workload="wl6", environment="perlmutter-a100-32", framework="megatron-lm"))


def context(problem: Problem, history: tuple[TrialView, ...], space: ConfigSpace | None = None) -> ProposalContext:
    return ProposalContext(
        run_id="r",
        iteration=max(1, len(history)),
        iterations=14,
        workload=problem.workload_input,
        environment=problem.environment_input,
        space=space or problem.space,
        objective=problem.objective,
        history=history,
        current_policy="",
    )


def config(**changes: Any) -> Config:
    base = {
        "tp": 2, "pp": 4, "dp": 4, "ep": 1, "zero_stage": 1, "sequence_parallel": False, "micro_batch_size": 4,
        "pipeline_schedule": "1f1b", "activation_checkpointing": "selective",
    }  # fmt: skip
    return base | changes


def trial(number: int, problem: Problem, exposed: float, bubble: float, **changes: Any) -> TrialView:
    """A trial whose step is 1 s of compute plus what is given, in seconds."""
    chosen = {key: value for key, value in config(**changes).items() if key in problem.space.keys}
    full = {knob.key: chosen.get(knob.key, knob.choices[0]) for knob in problem.space.knobs}
    step = 1.0 + exposed + bubble
    metrics = {
        "avg_step_time": step,
        "step_compute_time": 1.0,
        "step_exposed_comm_time": exposed,
        "bubble_fraction": 100 * bubble / step,
        "peak_memory_gb": 30.0,
    }
    return TrialView(number, TrialState.SUCCEEDED, full, metrics, -step)


def proposed(problem: Problem, monty: PolicyRunner, *history: TrialView) -> Config:
    proposal = GuidedProposer().propose(context(problem, history))
    return monty.evaluate(proposal.source, problem.workload_input, problem.environment_input)


def test_a_bubble_is_answered_with_the_pipeline_and_communication_with_the_groups(
    problem: Problem, monty: PolicyRunner
) -> None:
    bubbly = proposed(problem, monty, trial(0, problem, exposed=0.05, bubble=1.5))
    chatty = proposed(problem, monty, trial(0, problem, exposed=1.5, bubble=0.05))

    start = trial(0, problem, 0, 0).config or {}
    setting = Setting.of(problem.workload_input, problem.environment_input)
    before, by_bubble, by_chatter = (estimate(found, setting) for found in (start, bubbly, chatty))
    assert bubbly != chatty
    assert by_bubble.bubble < 0.5 * before.bubble
    assert by_chatter.exposed < before.exposed
    assert by_chatter.exposed < by_bubble.exposed
    assert by_bubble.bubble < by_chatter.bubble


def test_what_ran_out_of_memory_is_not_followed_by_what_needs_more(problem: Problem, monty: PolicyRunner) -> None:
    first = proposed(problem, monty, trial(0, problem, exposed=0.3, bubble=0.3))
    refused = TrialView(1, TrialState.PRUNED, first, failure=FailureClass.PREDICTED_OOM, evidence="memory")
    second = proposed(problem, monty, trial(0, problem, exposed=0.3, bubble=0.3), refused)

    setting = Setting.of(problem.workload_input, problem.environment_input)
    assert estimate(second, setting).memory_gb < estimate(first, setting).memory_gb


def test_the_same_history_gives_the_same_policy(problem: Problem) -> None:
    history = (trial(0, problem, 0.4, 0.2), trial(1, problem, 0.5, 0.1, pp=2, dp=8))

    texts = {GuidedProposer(seed).propose(context(problem, history)).source for seed in (0, 1)}

    assert len(texts) == 1


def test_it_never_repeats_and_ends_when_all_is_tried(problem: Problem, monty: PolicyRunner) -> None:
    space = ConfigSpace.from_dict(
        {"knobs": [{"key": "tp", "type": "int", "choices": [1, 2, 4]}], "world_size": "tp"}, "small"
    )
    history: tuple[TrialView, ...] = ()
    for number in range(3):
        proposal = GuidedProposer().propose(context(problem, history, space))
        inputs = {**problem.workload_input, "config_space": [knob.as_dict() for knob in space.knobs]}
        found = monty.evaluate(proposal.source, inputs, problem.environment_input)
        assert found not in [t.config for t in history]
        metrics = {"avg_step_time": 1.0 / found["tp"]}
        history += (TrialView(number, TrialState.SUCCEEDED, found, metrics, -metrics["avg_step_time"]),)

    with pytest.raises(ProposerExhaustedError):
        GuidedProposer().propose(context(problem, history, space))


def test_its_policy_stays_valid_on_half_and_double_the_machines(problem: Problem, monty: PolicyRunner) -> None:
    proposal = GuidedProposer().propose(context(problem, (trial(0, problem, 0.4, 0.4),)))
    for factor in (0.5, 2):
        environment = {**problem.environment_input, "total_gpus": int(32 * factor)}
        found = monty.evaluate(proposal.source, problem.workload_input, environment)
        assert problem.space.world_size(found, problem.workload_input, environment) <= environment["total_gpus"]


def test_it_knows_no_simulator() -> None:
    for path in GUIDED.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] in ("backends", "launchers", "metrics") for name in names), path


def test_of_a_space_with_very_many_configs_it_considers_more_than_a_corner(
    problem: Problem, monty: PolicyRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_MAX_CANDIDATES", 300)
    corner = Chooser.of(context(problem, ()))
    monkeypatch.setattr(choosing, "_VERY_MANY", 1_000)
    spread = Chooser.of(context(problem, ()))

    assert {found.config["tp"] for found in corner.candidates} == {1}
    assert {found.config["tp"] for found in spread.candidates} == set(problem.space.knob("tp").choices)
    assert [found.key for found in Chooser.of(context(problem, ())).candidates] == [f.key for f in spread.candidates]


def test_a_config_whose_devices_cannot_be_counted_is_no_candidate(problem: Problem) -> None:
    halved = replace(problem.space, world_size_expression=parse("tp / 4"))

    found = Chooser.of(context(problem, (), halved)).candidates

    assert {candidate.config["tp"] for candidate in found} == {4, 8}


def test_a_space_in_which_no_config_is_found_ends_the_search_with_the_reason(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module, "MOST_DEAD_ENDS", 1_000)
    never = (Constraint("never", parse("pipeline_schedule == 'backwards'")),)

    for proposer in (GuidedProposer(), RandomProposer(0), TpeProposer(0), GridProposer()):
        with pytest.raises(ProposerExhaustedError, match="1,000 choices in a row"):
            proposer.propose(context(problem, (), replace(problem.space, constraints=never)))
