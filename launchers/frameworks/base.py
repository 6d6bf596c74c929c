"""The contract of a framework adapter: which configs there are, what a config means, where the framework runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from launchers.frameworks.deployment import Deployment
from launchers.frameworks.templates import build
from launchers.shell.command import Command
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan, StateBytes
from runs.space import ConfigSpace
from runs.workload import Workload

if TYPE_CHECKING:
    from launchers.frameworks.commands.profiling import Unprofiled


class Framework(ABC):
    """One framework: the phases and kinds of device it runs on, its default space, and the meaning of its configs.

    `phases` are workload phases, `xpu_types` kinds of device (`GPU`, `TPU`), `state_bytes` what it keeps per
    parameter, `version` the release its rules were read from (used where a card names none). An adapter knows the
    framework's own rules only; whether a config fits in memory is asked elsewhere.
    """

    name: ClassVar[str]
    phases: ClassVar[tuple[str, ...]]
    xpu_types: ClassVar[tuple[str, ...]]
    state_bytes: ClassVar[StateBytes]
    version: ClassVar[str] = ""

    def supports(self, workload: Workload, environment: Environment) -> str | None:
        """None where the framework can run the workload at all; otherwise the reason why it cannot."""
        if workload.phase not in self.phases:
            return f"{self.name} runs {' and '.join(self.phases)}, not {workload.phase}"
        if environment.device.xpu_type not in self.xpu_types:
            return f"{self.name} runs on {' and '.join(self.xpu_types)}, not on a {environment.device.xpu_type}"
        return None

    def default_space(self, workload: Workload, environment: Environment) -> ConfigSpace:
        """The framework's knobs, choices trimmed to the workload and the environment, and its constraints.

        Raises:
            BadInputError: the framework cannot run the workload there, has no space of its own (`command`), or no
                choice of a knob remains.
        """
        reason = self.supports(workload, environment)
        if reason is not None:
            raise BadInputError(f"infeasible: {reason}", "choose another framework or environment")
        return build(self.name, workload.policy_input(), environment.policy_input())

    @abstractmethod
    def plan(self, config: Mapping[str, Any], workload: Workload, environment: Environment) -> ParallelPlan:
        """The framework-neutral meaning of `config`; knobs it does not set take the framework's defaults.

        Raises:
            BadInputError: a value has no meaning, or the config cannot realise the workload's global batch.
        """

    def command(self, deployment: Deployment) -> Command:
        """The program that runs a config: arguments, variables, files and the traces to expect.

        The arguments are those of the version that the target, else the environment names; `notes` of the result say
        where that is a guess.

        Raises:
            BadInputError: a setting is wrong, the version cannot be told a knob or a value of it, or the plan does
                not run the workload's global batch.
        """
        from launchers.frameworks.commands import command_for

        return command_for(self.name, deployment)

    def unprofiled(self, deployment: Deployment) -> Unprofiled:
        """The program of `command` with its profiler off, and how both runs' logs tell the length of their steps.

        Raises:
            BadInputError: as `command`; or the framework does not log its steps, so that nothing can be compared.
        """
        from launchers.frameworks.commands import unprofiled_for

        return unprofiled_for(self.name, deployment)
