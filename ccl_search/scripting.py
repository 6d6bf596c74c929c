"""The exact script of a config on a target, without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.base import Job
from runs.errors import BadInputError
from runs.space import Config, ConfigSpace, Knob

if TYPE_CHECKING:
    from ccl_search.problem import Problem
    from launchers.shell.command import Command
    from launchers.target_file import TargetSettings
    from runs.plan import ParallelPlan

_NEUTRAL: tuple[Any, ...] = (1, False, "none", "auto", "1f1b", "gpipe")
_CAPS = ("max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True)
class Script:
    """What would run: the script's text, the command in it, and the config with every knob."""

    text: str
    command: Command
    config: Config
    target: str
    notes: tuple[str, ...]


def script(
    problem: Problem, given: Mapping[str, str], target: TargetSettings | None, version: str | None, job: JobFacts
) -> Script:
    """The script that runs the config `given` (knob to text) on `target`, or on this machine where there is none.

    Raises:
        BadInputError: a knob or value is unknown, the config breaks a rule of the space (the message names it), or
            the framework or the target cannot run it.
    """
    config, filled = complete(problem.space, given)
    refuse_violations(problem, config)
    plan = problem.framework.plan(config, problem.workload, problem.environment)
    settings = _settings(problem.framework.name, target, version)
    command = problem.framework.command(problem.deployment(config, plan, settings))
    text = _text(job.job(problem, config, plan, command), target)
    return Script(text, command, config, target.name if target is not None else "local", (*filled, *command.notes))


@dataclass(frozen=True)
class JobFacts:
    """What a script says beside its command: the folder of the trial, and how long it may run, in seconds."""

    directory: Path
    time_limit_s: float

    def job(self, problem: Problem, config: Config, plan: ParallelPlan, command: Command) -> Job:
        """The job that the script is for: the first attempt at trial 0 of a run called `script`."""
        return Job(
            run_id="script",
            trial=0,
            attempt=1,
            directory=self.directory,
            workload=problem.workload,
            environment=problem.environment,
            config=config,
            plan=plan,
            script="",
            time_limit_s=self.time_limit_s,
            command=command,
        )


def parse_config(text: str) -> dict[str, str]:
    """`tp=4,dp=2` as a mapping of texts.

    Raises:
        BadInputError: a part is no NAME=VALUE, or a name comes twice.
    """
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise BadInputError(f"--config: {part!r} is no NAME=VALUE", "for example tp=4,dp=2,micro_batch_size=1")
        if name in found:
            raise BadInputError(f"--config names {name} twice", "give each knob once")
        found[name] = value
    return found


def complete(space: ConfigSpace, given: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The config with every knob of the space, and a note for each that was not given.

    A knob that is not given takes its only choice, or the one that asks for nothing (degree 1, none, auto, false);
    `dp_shard` is `dp`, `zero_stage` the framework's own, and a cap of a server the largest, which holds nothing back.

    Raises:
        BadInputError: a knob is unknown, a value is no choice, or a knob that is not given has no such choice.
    """
    unknown = [name for name in given if name not in space.keys]
    if unknown:
        raise BadInputError(
            f"unknown_knob: {unknown[0]!r} is no knob of space {space.name}", f"knobs are {', '.join(space.keys)}"
        )
    config: Config = {}
    notes: list[str] = []
    for knob in space.knobs:
        if knob.key in given:
            config[knob.key] = read_value(knob, given[knob.key])
        else:
            config[knob.key] = _unasked(knob, config)
            notes.append(f"{knob.key} is not given: {knob.key}={config[knob.key]}")
    return config, notes


def read_value(knob: Knob, text: str) -> Any:
    """The choice of `knob` that is written as `text`.

    Raises:
        BadInputError: it is none of the choices.
    """
    for choice in knob.choices:
        spelled = str(choice).lower() if isinstance(choice, bool) else str(choice)
        if text == spelled or (isinstance(choice, bool) and text.lower() == spelled):
            return choice
    raise BadInputError(
        f"choice_{knob.key}: {knob.key}={text} is no choice here", f"choices: {', '.join(map(str, knob.choices))}"
    )


def refuse_violations(problem: Problem, config: Config) -> None:
    """Check the config against the space.

    Raises:
        BadInputError: it breaks rules; the message has the first with its values, the hint the others.
    """
    broken = problem.space.violations(config, problem.workload_input, problem.environment_input)
    if broken:
        others = "; ".join(map(str, broken[1:]))
        raise BadInputError(str(broken[0]), f"also broken: {others}" if others else "change the config")


def _settings(framework: str, target: TargetSettings | None, version: str | None) -> dict[str, Any]:
    """The target's settings with the version put in place, also over one in the framework's own mapping."""
    given = dict(target.framework) if target is not None else {}
    if version is None:
        return given
    own = given.get(framework)
    return {**given, framework: {**(own if isinstance(own, dict) else {}), "version": version}}


def _unasked(knob: Knob, config: Config) -> Any:
    if len(knob.choices) == 1:
        return knob.choices[0]
    if knob.key == "dp_shard" and config.get("dp") in knob.choices:
        return config["dp"]
    if knob.key == "zero_stage":
        return 3 if 3 in knob.choices else min(knob.choices)
    if knob.key in _CAPS:
        return _loosest(knob, config)
    for choice in _NEUTRAL:
        if knob.allows(choice):
            return choice
    raise BadInputError(
        f"missing_knob: {knob.key} is not set", f"add {knob.key}=..., one of {', '.join(map(str, knob.choices))}"
    )


def _loosest(knob: Knob, config: Config) -> Any:
    """The largest choice; of sequences, the largest that splits evenly what all replicas together serve at most."""
    most = max(knob.choices)
    replicas = config.get("dp", 1) if knob.key == "max_num_seqs" else 1
    return max((choice for choice in knob.choices if most % (replicas * choice) == 0 or replicas == 1), default=most)


def _text(job: Job, target: TargetSettings | None) -> str:
    from launchers.local import LocalLauncher
    from launchers.target_file import build_launcher

    if target is None:
        return LocalLauncher().script(job)
    launcher: Any = build_launcher(target)
    if not hasattr(launcher, "script"):
        raise BadInputError(f"target {target.name} ({target.kind}) runs no script", "name a local, slurm or tpu-vm one")
    text: str = launcher.script(job)
    return text
