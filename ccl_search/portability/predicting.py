"""Predicted step times, and the best known config of a case: what does not depend on the policy is found once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from ccl_search import feasibility
from policies.runner import PolicyError
from runs.errors import BadInputError, CclSearchError
from runs.space import Config, config_key

if TYPE_CHECKING:
    from ccl_search.portability.cases import Case
    from ccl_search.problem import Problem
    from policies.runner import PolicyRunner
    from runs.plan import ParallelPlan

CANDIDATES = 3
"""How many configs of the whole space are predicted beside the seed policy's."""

_MOST_CONFIGS = 3000


@dataclass(frozen=True)
class Known:
    """The best known config of a case and its predicted step in seconds."""

    config: Config
    step_s: float


@dataclass
class Predictions:
    """Step times by the dry run (uncalibrated, without a trace), kept by case and config."""

    _steps: dict[tuple[str, str], float | None] = field(default_factory=dict)
    _best: dict[str, Known | None] = field(default_factory=dict)
    _fits: dict[str, bool] = field(default_factory=dict)

    def step(self, case: Case, config: Config) -> float | None:
        """Seconds of a step, None where the config cannot run or the simulation gives none."""
        key = case.fingerprint, config_key(config)
        if key not in self._steps:
            self._steps[key] = None if case.problem is None else _predicted(config, case.problem)
        return self._steps[key]

    def best_known(self, case: Case, runner: PolicyRunner) -> Known | None:
        """The fastest of the seed policy's config and those that a rough estimate of the whole space puts first."""
        if case.fingerprint not in self._best:
            self._best[case.fingerprint] = self._found(case, runner)
        return self._best[case.fingerprint]

    def anything_fits(self, case: Case) -> bool:
        """Whether some config can run there at all."""
        if case.fingerprint not in self._fits:
            self._fits[case.fingerprint] = case.problem is not None and _fits(case.problem)
        return self._fits[case.fingerprint]

    def _found(self, case: Case, runner: PolicyRunner) -> Known | None:
        if case.problem is None or not self.anything_fits(case):
            return None
        found: list[Known] = []
        for config in [*_seed_config(case.problem, runner), *_promising(case.problem)]:
            step = self.step(case, config)
            if step is not None:
                found.append(Known(config, step))
        return min(found, key=lambda known: known.step_s, default=None)


SHARED = Predictions()
"""The predictions of this process."""


def _fits(problem: Problem) -> bool:
    try:
        return feasibility.closest(problem.workload, problem.environment, problem.framework, problem.space)[1].fits
    except BadInputError:
        return False


def _seed_config(problem: Problem, runner: PolicyRunner) -> list[Config]:
    from policies.seeds import seed_policy

    try:
        source = seed_policy(problem.framework.name)
        return [runner.evaluate(source, problem.workload_input, problem.environment_input)]
    except (BadInputError, PolicyError):
        return []


def _promising(problem: Problem) -> list[Config]:
    """The configs that fit and that an estimate on the back of an envelope puts first."""
    from ccl_search.proposers.guided.envelope import estimate
    from ccl_search.proposers.guided.setting import Setting

    workload, environment = problem.workload_input, problem.environment_input
    setting = Setting.of(workload, environment)
    configs = islice(problem.space.valid_configs(workload, environment), _MOST_CONFIGS)
    ranked = sorted(configs, key=lambda config: (estimate(config, setting).total, config_key(config)))
    return list(islice(_fitting(ranked, problem), CANDIDATES))


def _fitting(configs: list[Config], problem: Problem) -> Iterator[Config]:
    return (c for c in configs if not isinstance(feasibility.check(c, problem, {}), feasibility.Refusal))


def _predicted(config: Config, problem: Problem) -> float | None:
    plan = feasibility.check(config, problem, {})
    return None if isinstance(plan, feasibility.Refusal) else _simulated(plan, problem)


def _simulated(plan: ParallelPlan, problem: Problem) -> float | None:
    from backends.dry_run import dry_run

    try:
        return dry_run(problem.workload, problem.environment, plan, detail="pass").wall_s
    except CclSearchError:
        return None
