"""Command lines: what a config of a framework is as a program with arguments, environment and files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from launchers.frameworks.commands.profiling import Unprofiled, step_log
from launchers.frameworks.commands.request import Request, request_for
from launchers.frameworks.commands.settings import read_settings
from launchers.shell.command import Command
from runs.environment import Environment
from runs.plan import ParallelPlan
from runs.workload import Workload

_BUILDERS = {
    "torchtitan": "torchtitan",
    "megatron-lm": "megatron_lm",
    "maxtext": "maxtext",
    "vllm": "vllm",
    "sglang": "sglang",
    "command": "own",
}


def command_for(
    framework: str,
    config: Mapping[str, Any],
    plan: ParallelPlan,
    workload: Workload,
    environment: Environment,
    settings: Mapping[str, Any] | None = None,
) -> Command:
    """The command that runs `config`; see `Framework.command` for the arguments and the errors."""
    return _build(request_for(framework, config, plan, workload, environment, read_settings(framework, settings)))


def unprofiled_for(
    framework: str,
    config: Mapping[str, Any],
    plan: ParallelPlan,
    workload: Workload,
    environment: Environment,
    settings: Mapping[str, Any] | None = None,
) -> Unprofiled:
    """The same run with the profiler off, and how logs tell its steps; see `Framework.unprofiled`."""
    own = read_settings(framework, settings)
    made = request_for(framework, config, plan, workload, environment, own, profiled=False)
    return Unprofiled(_build(made), step_log(made))


def _build(made: Request) -> Command:
    command: Command = import_module(f"{__name__}.{_BUILDERS[made.era.framework]}").build(made)
    return command
