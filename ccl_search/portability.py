"""How far a policy carries: what it gives on every bundled environment and on perturbations of one, and at what cost.

A policy is asked for its config in every case. The config is checked as before a launch. Where nothing at all fits the
case says nothing about the policy. In a few sampled cases the config's step time is predicted by the dry run and set
beside the best known there: the seed policy's config and those that a back-of-the-envelope estimate of the whole space
puts first, all predicted the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from ccl_search import feasibility
from ccl_search.problem import Problem
from policies.runner import PolicyError, PolicyRunner
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError, CclSearchError
from runs.space import Config, ConfigSpace, config_key
from runs.trial import FailureClass

if TYPE_CHECKING:
    from launchers.frameworks.base import Framework
    from runs.plan import ParallelPlan
    from runs.workload import Workload

Outcome = Literal["valid", "invalid", "infeasible", "raises", "impossible"]
ODD_NODES = (3, 5, 7)
MEMORY_GB = (16.0, 24.0, 48.0, 80.0, 141.0, 192.0)
SAMPLE = 4
CANDIDATES = 3
"""How many configs of the whole space are predicted beside the policy's and the seed policy's in a sampled case."""

_MOST_CONFIGS = 3000
_KEPT_FACTS = ("framework", "total_gpus", "xpu_type")
_UNSET_OF_WORKLOAD = ("num_params", "num_layers", "num_kv_heads", "hidden_size", "vocab_size", "precision")


@dataclass(frozen=True)
class Case:
    """One pair of inputs. `unset` are facts that the policy is not told, though they are what they are."""

    name: str
    kind: str
    workload: Workload
    environment: Environment
    framework: Framework
    unset: tuple[str, ...] = ()

    def problem(self) -> Problem:
        """The case as a search would see it.

        Raises:
            BadInputError: the framework cannot run the workload there at all.
        """
        from metrics import registry
        from runs import objective
        from runs.card import card_from

        space = self.framework.default_space(self.workload, self.environment)
        goal = objective.build([registry.spec("avg_step_time")], None)
        card = card_from(self.workload, self.environment)
        return Problem(card, self.workload, self.environment, self.framework, space, goal)

    def inputs(self, problem: Problem) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the policy is given."""
        given = problem.workload_input, problem.environment_input
        workload, environment = ({k: v for k, v in facts.items() if k not in self.unset} for facts in given)
        return workload, environment


@dataclass(frozen=True)
class CaseResult:
    """What the policy gave in a case. `impossible`: no config fits there, so that no policy could do better.

    `loss` is predicted step time over the best known there, minus 1; None where it was not predicted.
    """

    case: str
    kind: str
    outcome: Outcome
    config: Config | None = None
    reason: str = ""
    step_s: float | None = None
    best_known_s: float | None = None
    best_known: Config | None = None

    @property
    def loss(self) -> float | None:
        """See the class."""
        if self.step_s is None or self.best_known_s is None:
            return None
        return self.step_s / self.best_known_s - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "loss": self.loss}


@dataclass(frozen=True)
class Portability:
    """The report on a policy: every case, and what follows.

    `share` is the share of cases with a valid config that fits, of all in which anything fits. `constant`: the same
    config everywhere. `mean_loss` and `worst_loss` are over the sampled cases (None where none was predicted).
    """

    results: tuple[CaseResult, ...]
    sampled: tuple[str, ...] = field(default=())

    @property
    def counts(self) -> dict[str, int]:
        """Cases by outcome."""
        outcomes: tuple[Outcome, ...] = ("valid", "invalid", "infeasible", "raises", "impossible")
        return {name: sum(found.outcome == name for found in self.results) for name in outcomes}

    @property
    def share(self) -> float:
        """See the class; 0 where nothing fits anywhere."""
        applicable = len(self.results) - self.counts["impossible"]
        return self.counts["valid"] / applicable if applicable else 0.0

    @property
    def constant(self) -> bool:
        """Whether the policy gives one config wherever it gives any, in more than one case."""
        keys = [config_key(found.config) for found in self.results if found.config is not None]
        return len(keys) > 1 and len(set(keys)) == 1

    @property
    def losses(self) -> list[float]:
        """The predicted losses."""
        return [found.loss for found in self.results if found.loss is not None]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        losses = self.losses
        return {
            "share_valid": self.share,
            "counts": self.counts,
            "constant": self.constant,
            "mean_loss": sum(losses) / len(losses) if losses else None,
            "worst_loss": max(losses, default=None),
            "sampled": list(self.sampled),
            "candidates_per_sample": CANDIDATES,
            "cases": [found.as_dict() for found in self.results],
        }


def cases(workload: Workload, base: Environment, framework: Framework) -> list[Case]:
    """Every bundled environment the framework runs on, then perturbations of `base`: half, double and odd counts of
    nodes, other memory sizes, and one unset fact at a time."""
    return [
        *_bundled(workload, framework),
        *(Case(name, kind, workload, there, framework) for name, kind, there in _perturbed(base)),
        *_unset(workload, base, framework),
    ]


def lint(source: str, found: Sequence[Case], runner: PolicyRunner, sample: int = SAMPLE) -> Portability:
    """What the policy gives in every case, with predicted losses in `sample` of those where it is valid."""
    results = [_result(source, case, runner) for case in found]
    picked = _sample([place for place, result in enumerate(results) if result.outcome == "valid"], found, sample)
    for place in picked:
        results[place] = _with_loss(results[place], found[place], runner)
    return Portability(tuple(results), tuple(found[place].name for place in picked))


def check_inputs(
    source: str, workload: dict[str, Any], environment: dict[str, Any], runner: PolicyRunner
) -> CaseResult:
    """What a policy gives for inputs that are no typed problem: recorded ones, whose space is in `config_space`.

    `valid` here means: every knob of the space set to one of its choices, and no other.
    """
    name = str(workload.get("name") or environment.get("gpu_model") or "inputs")
    try:
        config = runner.evaluate(source, workload, environment)
    except PolicyError as error:
        return CaseResult(name, "recorded", "raises", reason=str(error))
    space = ConfigSpace.from_dict({"config_space": workload["config_space"]}, "recorded")
    broken = space.violations(config, workload, environment)
    return CaseResult(name, "recorded", "invalid" if broken else "valid", config, "; ".join(map(str, broken)))


def _bundled(workload: Workload, framework: Framework) -> Iterator[Case]:
    for name in catalogue.environment_names():
        there = catalogue.with_framework(catalogue.environment(name), framework.name, framework.version)
        if framework.supports(workload, there) is None:
            yield Case(name, "bundled", workload, there, framework)


def _perturbed(base: Environment) -> Iterator[tuple[str, str, Environment]]:
    per_node = base.xpus_per_node
    sizes = {"half": base.total_xpus // 2, "double": 2 * base.total_xpus}
    sizes |= {f"{nodes} nodes": nodes * per_node for nodes in ODD_NODES}
    for name, total in sizes.items():
        if total >= 1:
            there = replace(base, total_xpus=total, xpus_per_node=min(per_node, total), name=f"{base.name}, {name}")
            yield f"{name} ({total} devices)", "odd nodes" if "nodes" in name else "size", there
    for memory in MEMORY_GB:
        if memory != base.device_memory_gb:
            yield (
                f"{memory:g} GB a device",
                "memory",
                replace(base, memory_gb=memory, name=f"{base.name}, {memory:g} GB"),
            )


def _unset(workload: Workload, base: Environment, framework: Framework) -> Iterator[Case]:
    facts = [key for key in base.policy_input() if key not in _KEPT_FACTS]
    known = workload.policy_input()
    for key in (*facts, *(key for key in _UNSET_OF_WORKLOAD if key in known)):
        yield Case(f"{key} unset", "unset fact", workload, base, framework, (key,))


def _result(source: str, case: Case, runner: PolicyRunner) -> CaseResult:
    try:
        problem = case.problem()
    except BadInputError as error:
        return CaseResult(case.name, case.kind, "impossible", reason=error.message)
    try:
        config = runner.evaluate(source, *case.inputs(problem))
    except PolicyError as error:
        return CaseResult(case.name, case.kind, "raises", reason=str(error))
    verdict = feasibility.check(config, problem, {})
    if not isinstance(verdict, feasibility.Refusal):
        return CaseResult(case.name, case.kind, "valid", config)
    if verdict.failure is not FailureClass.PREDICTED_OOM:
        return CaseResult(case.name, case.kind, "invalid", config, verdict.reason)
    outcome: Outcome = "infeasible" if _anything_fits(problem) else "impossible"
    return CaseResult(case.name, case.kind, outcome, config, verdict.reason)


def _anything_fits(problem: Problem) -> bool:
    try:
        return feasibility.closest(problem.workload, problem.environment, problem.framework, problem.space)[1].fits
    except BadInputError:
        return False


def _sample(places: Sequence[int], found: Sequence[Case], count: int) -> list[int]:
    """Spread over kinds of case, small ones first: what large clusters take to predict would not be fast."""
    told = [place for place in places if not found[place].unset]
    kinds: dict[str, list[int]] = {}
    for place in sorted(told, key=lambda p: (found[p].environment.total_xpus, p)):
        kinds.setdefault(found[place].kind, []).append(place)
    picked: list[int] = []
    while len(picked) < count and any(kinds.values()):
        for members in kinds.values():
            if members and len(picked) < count:
                picked.append(members.pop(0))
    return sorted(picked)


def _with_loss(result: CaseResult, case: Case, runner: PolicyRunner) -> CaseResult:
    problem = case.problem()
    assert result.config is not None
    own = _predicted(result.config, problem)
    if own is None:
        return result
    best, config = own, result.config
    for candidate in [*_seed_config(problem, runner), *_promising(problem)]:
        step = _predicted(candidate, problem)
        if step is not None and step < best:
            best, config = step, candidate
    return replace(result, step_s=own, best_known_s=best, best_known=config)


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
    fitting = (c for c in ranked if not isinstance(feasibility.check(c, problem, {}), feasibility.Refusal))
    return list(islice(fitting, CANDIDATES))


def _predicted(config: Config, problem: Problem) -> float | None:
    """Seconds of a step by the dry run, None where it gives none."""
    from backends.dry_run import dry_run

    plan = feasibility.check(config, problem, {})
    if isinstance(plan, feasibility.Refusal):
        return None
    return _simulated(plan, problem, dry_run)


def _simulated(plan: ParallelPlan, problem: Problem, simulate: Any) -> float | None:
    try:
        seconds: float = simulate(problem.workload, problem.environment, plan, detail="pass").wall_s
    except CclSearchError:
        return None
    return seconds


def summary(report: Portability) -> str:
    """One line for proposers and people."""
    counts: Mapping[str, int] = report.counts
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    losses = report.losses
    loss = f"; predicted loss {sum(losses) / len(losses):.1%} in the mean of {len(losses)} cases" if losses else ""
    constant = "; the policy is constant" if report.constant else ""
    return f"valid in {report.share:.0%} of the cases where anything fits ({told}){loss}{constant}"
