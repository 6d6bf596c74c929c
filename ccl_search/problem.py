"""What a search is about, resolved from what the user named: card, space, objective, and the policy's two inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError
from runs.objective import Objective
from runs.space import Config, ConfigSpace
from runs.workload import Workload

if TYPE_CHECKING:
    from launchers.frameworks.base import Framework
    from launchers.frameworks.deployment import Deployment
    from runs.card import WorkloadCard
    from runs.plan import ParallelPlan

DEFAULT_WORKLOAD = "wl4"
DEFAULT_ENVIRONMENT = "perlmutter-a100-16"
DEFAULT_FRAMEWORK = "torchtitan"
DEFAULT_OBJECTIVE = "step_time"


@dataclass(frozen=True)
class ProblemSource:
    """What the user named. A card stands for workload, environment and framework together.

    `space` is a YAML file or the name of a bundled space, or None for the framework's default. `objectives` are metric
    names or aliases, `baselines` metric names to values.
    """

    card: Path | None = None
    workload: str | None = None
    environment: str | None = None
    framework: str | None = None
    space: str | None = None
    objectives: tuple[str, ...] = (DEFAULT_OBJECTIVE,)
    weights: tuple[float, ...] = ()
    baselines: dict[str, float] = field(default_factory=dict)
    portable: bool = False


@dataclass(frozen=True)
class Problem:
    """A search's subject. `workload_input` and `environment_input` are what every policy receives.

    `notes` are what reading the card had to repair or warn of, one line each.
    """

    card: WorkloadCard
    workload: Workload
    environment: Environment
    framework: Framework
    space: ConfigSpace
    objective: Objective
    notes: tuple[str, ...] = ()

    @property
    def workload_input(self) -> dict[str, Any]:
        """The `workload` dict of a policy, with the config space in it."""
        return {**self.workload.policy_input(), "config_space": [knob.as_dict() for knob in self.space.knobs]}

    @property
    def environment_input(self) -> dict[str, Any]:
        """The `environment` dict of a policy."""
        return self.environment.policy_input()

    def deployment(self, config: Config, plan: ParallelPlan, settings: Mapping[str, Any]) -> Deployment:
        """What the framework is asked to run; `settings` is the section `framework` of a target file."""
        from launchers.frameworks.deployment import Deployment

        return Deployment(config, plan, self.workload, self.environment, settings)


def resolve(source: ProblemSource) -> Problem:
    """Read the card or put one together, and find framework, space and objective.

    Raises:
        BadInputError: something named does not exist, clashes, or lacks a field the search needs.
        InfeasibleError (a BadInputError): the framework cannot run this workload there at all.
    """
    from launchers import frameworks

    card, notes = _card(source)
    environment = card.environment()
    workload = card.workload()
    framework = frameworks.get(environment.framework)
    space = _space(source.space, framework, workload, environment)
    return Problem(card, workload, environment, framework, space, objective_of(source), notes)


def objective_of(source: ProblemSource) -> Objective:
    """The objective over the metrics the user named.

    Raises:
        BadInputError: a metric is unknown (the hint lists close names), or weights do not fit.
    """
    from ccl_search.portability.spec import BASELINE, NAME, with_portability
    from ccl_search.portability.spec import spec as found_spec
    from runs import objective

    names = source.objectives or (DEFAULT_OBJECTIVE,)
    specs = [found_spec(name) for name in names]
    strange = [name for name in source.baselines if found_spec(name) not in specs]
    if strange:
        raise BadInputError(f"--baseline {strange[0]} is of no objective", f"objectives: {', '.join(names)}")
    baselines = {found_spec(name).name: value for name, value in source.baselines.items()}
    if any(found.name == NAME for found in specs):
        baselines = {NAME: BASELINE, **baselines}
    if source.portable:
        return with_portability(objective.build(specs, None, baselines), source.weights)
    return objective.build(specs, list(source.weights) or None, baselines)


def _card(source: ProblemSource) -> tuple[WorkloadCard, tuple[str, ...]]:
    from launchers import frameworks
    from runs.card import card_from, load_card

    if source.card is not None:
        named = [name for name in ("workload", "environment", "framework") if getattr(source, name)]
        if named:
            raise BadInputError(
                f"--card already says the {', '.join(named)}", f"leave out {', '.join('--' + name for name in named)}"
            )
        loaded = load_card(source.card)
        repairs = [f"{source.card}:{repair.line}: repaired: {repair.text}" for repair in loaded.repairs]
        warnings = [f"{f.place} {f.code}: {f.message}" for f in loaded.findings if f.severity != "info"]
        return loaded.card, (*repairs, *warnings)
    usual = frameworks.space_defaults(source.space)
    workload = catalogue.workload(source.workload or usual.get("workload", DEFAULT_WORKLOAD))
    environment = catalogue.environment(source.environment or usual.get("environment", DEFAULT_ENVIRONMENT))
    wanted = source.framework or usual.get("framework")
    framework = frameworks.get(wanted or _default_framework(workload, environment))
    where = catalogue.with_framework(environment, framework.name, framework.version)
    return card_from(workload, where), ()


def _default_framework(workload: Workload, environment: Environment) -> str:
    if not workload.is_training:
        return "vllm"
    return "maxtext" if environment.device.xpu_type == "TPU" else DEFAULT_FRAMEWORK


def _space(named: str | None, framework: Framework, workload: Workload, environment: Environment) -> ConfigSpace:
    from launchers import frameworks
    from runs import space

    if named is None:
        return framework.default_space(workload, environment)
    if Path(named).suffix in (".yaml", ".yml") or Path(named).exists():
        return space.load(Path(named))
    return frameworks.named_space(named, workload, environment)
