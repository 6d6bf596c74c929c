"""What is known before a launch: whether a config is legal, new and fits in memory, and where nothing fits at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ccl_search.proposers.base import TrialView
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.space import Config, ConfigSpace, Knob, Violation, config_key
from runs.trial import FailureClass
from runs.workload import Workload

if TYPE_CHECKING:
    from backends.memory import MemoryEstimate
    from ccl_search.problem import Problem
    from launchers.frameworks.base import Framework

LARGEST_COUNT = 8192
"""Devices up to which a count that fits is looked for."""

_MOST_CONFIGS = 20_000
_FIRST_CONFIGS = 500
_LEANEST: dict[str, tuple[Any, ...]] = {
    "activation_checkpointing": ("full",),
    "pipeline_schedule": ("1f1b", "gpipe"),
    "compile": (False,),
    "cuda_graph": (False,),
    "offload": (True,),
}
_NO_MATTER = ("collective_algorithm", "collective_protocol", "communication_library", "tp_algorithm", "network_mode")
_SMALL_IS_LEAN = ("micro_batch_size", "max_num_seqs", "max_num_batched_tokens")


class InfeasibleError(BadInputError):
    """No config of a space can run: the framework does not run there, or nothing fits. `report` has the figures."""

    def __init__(self, report: InfeasibleReport) -> None:
        super().__init__(report.message, report.hint)
        self.report = report


@dataclass(frozen=True)
class Refusal:
    """Why a config is not launched: its class, and the rule with the numbers that break it.

    `memory` is the estimate where that was the reason.
    """

    failure: FailureClass
    reason: str
    memory: MemoryEstimate | None = None


@dataclass(frozen=True)
class InfeasibleReport:
    """Why nothing can run. Bytes are per device, of the `config` that comes closest; absent where memory is no matter.

    `smallest_count` is the smallest number of devices of this kind that fits, None where none up to `LARGEST_COUNT`
    does or where memory is no matter.
    """

    message: str
    hint: str
    config: Config | None = None
    parts: dict[str, float] = field(default_factory=dict)
    total_bytes: float | None = None
    limit_bytes: float | None = None
    smallest_count: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def check(config: Config, problem: Problem, seen: Mapping[str, TrialView]) -> Refusal | ParallelPlan:
    """The plan of `config`, or why it is refused before anything is launched.

    In order: knobs and values of the space (type-strict), constraints, devices, an equal earlier config (`seen` maps
    the key of every config that is not to run again to its trial), predicted memory.
    """
    workload, environment = problem.workload_input, problem.environment_input
    try:
        violations = problem.space.violations(config, workload, environment)
        if violations:
            return Refusal(FailureClass.INVALID_CONFIG, "; ".join(map(str, violations)))
        devices = problem.space.world_size(config, workload, environment)
        plan = problem.framework.plan(config, problem.workload, problem.environment)
    except BadInputError as error:
        return Refusal(FailureClass.INVALID_CONFIG, f"{error.message} ({error.hint})")
    total = problem.environment.total_xpus
    if not 1 <= devices <= total:
        text = f"devices: {problem.space.world_size_expression.text} is {devices}, the environment has {total}"
        return Refusal(FailureClass.INVALID_CONFIG, text)
    earlier = seen.get(config_key(config))
    if earlier is not None:
        return Refusal(FailureClass.DUPLICATE, f"duplicate: the same config as trial {_outcome(earlier)}")
    return _memory_refusal(plan, problem.workload, problem.environment) or plan


def fits(config: Config, problem: Problem) -> bool:
    """Whether a config of the problem's space would not be refused for what it means or for its memory."""
    try:
        plan = problem.framework.plan(config, problem.workload, problem.environment)
        return _estimate(problem.workload, problem.environment, plan).fits
    except BadInputError:
        return False


def _outcome(trial: TrialView) -> str:
    """`3 (succeeded, score -0.41)`, or `4 (failed, oom: CUDA out of memory)`."""
    if trial.score is not None:
        return f"{trial.number} ({trial.state.value}, score {trial.score:.6g})"
    kind = f", {trial.failure.value}" if trial.failure else ""
    first = trial.evidence.strip().partition("\n")[0]
    return f"{trial.number} ({trial.state.value}{kind}{': ' + first if first else ''})"


def _memory_refusal(plan: ParallelPlan, workload: Workload, environment: Environment) -> Refusal | None:
    try:
        found = _estimate(workload, environment, plan)
    except BadInputError as error:
        return Refusal(FailureClass.INVALID_CONFIG, f"{error.message} ({error.hint})")
    if found.fits:
        return None
    return Refusal(FailureClass.PREDICTED_OOM, f"memory: {found.describe()}", found)


def _estimate(workload: Workload, environment: Environment, plan: ParallelPlan) -> MemoryEstimate:
    from backends import memory

    return memory.estimate(workload, environment, plan)


def require_feasible(problem: Problem) -> None:
    """Return if some config of the problem's space can run.

    Raises:
        InfeasibleError: none can; the message has the reason, or the memory parts of the config that comes closest
            and the smallest device count that fits.
        BadInputError: no config of the space satisfies its constraints.
    """
    report = infeasible_report(problem.workload, problem.environment, problem.framework, problem.space)
    if report is not None:
        raise InfeasibleError(report)


def infeasible_report(
    workload: Workload, environment: Environment, framework: Framework, space: ConfigSpace | None = None
) -> InfeasibleReport | None:
    """None if some config of `space` (the framework's default unless given) can run; else why none can.

    Raises:
        BadInputError: no config satisfies the constraints of the space.
    """
    reason = framework.supports(workload, environment)
    if reason is not None:
        return InfeasibleReport(f"infeasible: {reason}", "choose another framework or environment")
    searched = space or framework.default_space(workload, environment)
    config, found = closest(workload, environment, framework, searched)
    if found.fits:
        return None
    default = _is_default(searched, workload, environment, framework)
    count = smallest_count(workload, environment, framework) if default else None
    return _report(workload, environment, framework, config, found, count)


def _is_default(space: ConfigSpace, workload: Workload, environment: Environment, framework: Framework) -> bool:
    try:
        return space.as_dict() == framework.default_space(workload, environment).as_dict()
    except BadInputError:
        return False


def _report(
    workload: Workload,
    environment: Environment,
    framework: Framework,
    config: Config,
    found: MemoryEstimate,
    count: int | None,
) -> InfeasibleReport:
    where = f"{environment.total_xpus} x {environment.device.name}"
    return InfeasibleReport(
        f"infeasible: no config of {workload.name} with {framework.name} fits on {where}; the closest: "
        f"{found.describe()}",
        f"the smallest count of {environment.device.name} that fits is {count}" if count else "use larger devices",
        config,
        dict(found.parts),
        found.total_bytes,
        found.limit_bytes,
        count,
    )


def smallest_count(workload: Workload, environment: Environment, framework: Framework) -> int | None:
    """The smallest number of the environment's devices on which some config of the default space fits.

    Sizes double from one node on, up to `LARGEST_COUNT` or to what the space can spread over; at the first size where
    anything fits, the config that fits on the fewest devices decides. None if nothing fits at any size.
    """
    count = environment.xpus_per_node
    while count <= LARGEST_COUNT:
        where = replace(environment, total_xpus=count)
        space = framework.default_space(workload, where)
        sizes = [plan.world_size for _, plan, found in _lean_estimates(workload, where, framework, space) if found.fits]
        if sizes:
            return min(sizes)
        widest = {knob.key: max(knob.choices) for knob in space.knobs}
        if count >= space.world_size(widest, workload.policy_input(), where.policy_input()):
            return None
        count *= 2
    return None


def feasible_configs(
    workload: Workload, environment: Environment, framework: Framework, space: ConfigSpace
) -> Iterator[Config]:
    """Every valid config of `space` that fits in memory, in the order of the grid."""
    for config in space.valid_configs(workload.policy_input(), environment.policy_input()):
        if _estimate(workload, environment, framework.plan(config, workload, environment)).fits:
            yield config


def closest(
    workload: Workload, environment: Environment, framework: Framework, space: ConfigSpace
) -> tuple[Config, MemoryEstimate]:
    """A config that fits with its memory, or the one that exceeds its limit least.

    Raises:
        BadInputError: no config of `space` satisfies its constraints.
    """
    best: tuple[Config, MemoryEstimate] | None = None
    for config, _, found in _lean_estimates(workload, environment, framework, space):
        if best is None or found.total_bytes / found.limit_bytes < best[1].total_bytes / best[1].limit_bytes:
            best = config, found
        if found.fits:
            break
    if best is None:
        raise BadInputError(
            f"no config of space {space.name!r} satisfies its constraints for {workload.name} on {environment.name} "
            f"({environment.total_xpus} devices); one of them breaks {_broken(space, workload, environment)}",
            "loosen a constraint or add choices",
        )
    return best


def _broken(space: ConfigSpace, workload: Workload, environment: Environment) -> str:
    """The rules that the least bad of the first configs breaks."""
    inputs = workload.policy_input(), environment.policy_input()
    found = [space.violations(config, *inputs) for config in islice(space.all_configs(), _FIRST_CONFIGS)]
    fewest: list[Violation] = min(found, key=len)
    return "; ".join(map(str, fewest))


def _lean_estimates(
    workload: Workload, environment: Environment, framework: Framework, space: ConfigSpace
) -> Iterator[tuple[Config, ParallelPlan, MemoryEstimate]]:
    """Plans and memory of the configs that need least; of all valid ones where the constraints rule those out."""
    inputs = workload.policy_input(), environment.policy_input()
    lean = islice(leanest(space).valid_configs(*inputs), _MOST_CONFIGS)
    first = next(lean, None)
    configs = islice(space.valid_configs(*inputs), _MOST_CONFIGS) if first is None else _chain(first, lean)
    for config in configs:
        plan = framework.plan(config, workload, environment)
        yield config, plan, _estimate(workload, environment, plan)


def _chain(first: Config, rest: Iterator[Config]) -> Iterator[Config]:
    yield first
    yield from rest


def leanest(space: ConfigSpace) -> ConfigSpace:
    """`space` with every knob whose leanest choice in memory is known beforehand held there (or anywhere, if alike).

    What a smaller micro-batch, more recomputation or eager execution costs is time, never memory, so that whatever
    fits at all fits there too; degrees, sharding and the rest stay as they are.
    """
    return replace(space, knobs=tuple(_lean_knob(knob) for knob in space.knobs))


def _lean_knob(knob: Knob) -> Knob:
    if knob.key in _SMALL_IS_LEAN and knob.type == "int":
        return replace(knob, choices=(min(knob.choices),))
    if knob.key in _NO_MATTER:
        return replace(knob, choices=knob.choices[:1])
    kept = tuple(choice for choice in knob.choices if choice in _LEANEST.get(knob.key, ()))
    return replace(knob, choices=kept[:1]) if kept else knob
