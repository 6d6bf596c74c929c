"""`random` and `tpe` spend no proposals on configs that cannot fit in memory."""

from __future__ import annotations

import json

import pytest

from ccl_search import feasibility
from ccl_search.problem import ProblemSource, resolve
from ccl_search.proposers.base import ProposalContext, ProposerExhaustedError
from ccl_search.proposers.samplers import RandomProposer
from ccl_search.proposers.tpe import TpeProposer
from runs.space import Config, ConfigSpace, Knob
from tests.ccl_search.cli import Cli

SUBJECT = ("--workload", "wl5", "--framework", "megatron-lm")
SPACE = ConfigSpace("numbers", (Knob("a", "int", tuple(range(20))), Knob("b", "int", tuple(range(20)))))


def context() -> ProposalContext:
    return ProposalContext(
        run_id="r", iteration=1, iterations=3, workload={}, environment={}, space=SPACE,
        objective=resolve(ProblemSource()).objective, history=(), current_policy="",
    )  # fmt: skip


def config_of(source: str) -> Config:
    names: dict[str, object] = {}
    exec(source, names)
    made: Config = names["generate_config"]({}, {})  # type: ignore[operator]
    return made


@pytest.mark.parametrize("proposer", ["random", "tpe"])
def test_no_proposal_is_refused_for_memory(cli: Cli, proposer: str) -> None:
    problem = resolve(ProblemSource(workload="wl5", framework="megatron-lm"))
    valid = list(problem.space.valid_configs(problem.workload_input, problem.environment_input))
    unfit = sum(isinstance(feasibility.check(config, problem, {}), feasibility.Refusal) for config in valid)
    assert unfit > len(valid) / 3

    found = cli("run", *SUBJECT, "--proposer", proposer, "--iterations", "3", "--seed", "3", "--json").document

    assert (found["trials"], found["pruned"], found["failed"]) == (4, 0, 0)


@pytest.mark.parametrize("build", [RandomProposer, TpeProposer])
def test_what_fits_nowhere_is_asked_once_and_ends_the_search(build: type[RandomProposer] | type[TpeProposer]) -> None:
    asked: list[str] = []

    def fits(config: Config) -> bool:
        asked.append(json.dumps(config))
        return False

    with pytest.raises(ProposerExhaustedError):
        build(0, fits).propose(context())
    assert len(asked) == len(set(asked)) == SPACE.size


@pytest.mark.parametrize("build", [RandomProposer, TpeProposer])
def test_a_draw_depends_on_the_seed_alone(build: type[RandomProposer] | type[TpeProposer]) -> None:
    def fits(config: Config) -> bool:
        return bool(config["a"] > 15)

    drawn = [config_of(build(seed, fits).propose(context()).source) for seed in (7, 7, 8)]

    assert drawn[0] == drawn[1] != drawn[2]
    assert all(config["a"] > 15 for config in drawn)
