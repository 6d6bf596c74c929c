"""Command lines: what a config of a framework is as a program with arguments, environment and files."""

from __future__ import annotations

from importlib import import_module

from launchers.frameworks.commands.profiling import Unprofiled, step_log
from launchers.frameworks.commands.request import Request, request_for
from launchers.frameworks.deployment import Deployment
from launchers.shell.command import Command

_BUILDERS = {
    "torchtitan": "torchtitan",
    "megatron-lm": "megatron_lm",
    "maxtext": "maxtext",
    "vllm": "vllm",
    "sglang": "sglang",
    "command": "own",
}


def command_for(framework: str, deployment: Deployment) -> Command:
    """The command that runs the config; see `Framework.command` for the errors."""
    return _build(request_for(framework, deployment))


def unprofiled_for(framework: str, deployment: Deployment) -> Unprofiled:
    """The same run with the profiler off, and how logs tell its steps; see `Framework.unprofiled`."""
    made = request_for(framework, deployment, profiled=False)
    return Unprofiled(_build(made), step_log(made))


def _build(made: Request) -> Command:
    command: Command = import_module(f"{__name__}.{_BUILDERS[made.era.framework]}").build(made)
    return command
