"""The grid: what cannot fit in memory uses up no iteration."""

from __future__ import annotations

from itertools import islice

from ccl_search import feasibility
from ccl_search.problem import ProblemSource, resolve
from tests.ccl_search.cli import Cli

SUBJECT = ("--workload", "wl5", "--framework", "megatron-lm")


def test_a_grid_that_begins_with_configs_too_large_launches_one_in_every_iteration(cli: Cli) -> None:
    problem = resolve(ProblemSource(workload="wl5", framework="megatron-lm"))
    grid = problem.space.valid_configs(problem.workload_input, problem.environment_input)
    first = list(islice(grid, 400))
    verdicts = [feasibility.check(config, problem, {}) for config in first]
    launched = [c for c, verdict in zip(first, verdicts, strict=True) if not isinstance(verdict, feasibility.Refusal)]
    assert isinstance(verdicts[0], feasibility.Refusal)

    found = cli("run", *SUBJECT, "--proposer", "grid", "--iterations", "2", "--json").document
    rows = cli("show", found["run_id"], "--json").document["trial_rows"]

    assert (found["trials"], found["pruned"], found["failed"]) == (3, 0, 0)
    assert [row["config"] for row in rows[1:]] == launched[:2]
