"""Commands for tests: a config of a bundled workload on a bundled environment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from launchers import frameworks
from launchers.frameworks.deployment import Deployment
from launchers.local import LocalLauncher
from launchers.shell.command import Command
from runs import catalogue
from runs.environment import Environment
from runs.workload import Workload
from tests.launchers.jobs import job

QUIET = {"path": "/opt/checkout"}


def command(
    framework: str,
    config: dict[str, Any],
    version: str,
    workload: str | Workload = "wl4",
    environment: str | Environment = "perlmutter-a100-16",
    **settings: Any,
) -> Command:
    """The command of `config`; the batch of a training workload can be changed by passing a `Workload`."""
    what = catalogue.workload(workload) if isinstance(workload, str) else workload
    where = catalogue.environment(environment) if isinstance(environment, str) else environment
    adapter = frameworks.get(framework)
    plan = adapter.plan(config, what, where)
    return adapter.command(Deployment(config, plan, what, where, {"version": version, **QUIET, **settings}))


def training(name: str = "wl4", **changes: Any) -> Workload:
    """A bundled training workload with some facts changed."""
    return replace(catalogue.workload(name), **changes)


def flags(argv: tuple[str, ...], start: str) -> dict[str, list[str]]:
    """The words after `start` as flag to values; positional words before the first flag are under the empty name."""
    words = list(argv[argv.index(start) + 1 :])
    found: dict[str, list[str]] = {"": []}
    current = ""
    for word in words:
        if word.startswith("--"):
            current, _, value = word.partition("=")
            assert current not in found, f"{current} twice"
            found[current] = [value] if value else []
        else:
            found[current].append(word)
    return found


def run_locally(made: Command, directory: Path, **variables: str) -> str:
    """Run a command through the script of this machine, with its files beside it; what its processes wrote.

    Raises:
        AssertionError: the script failed.
    """
    (directory / "attempt-1").mkdir(parents=True)
    for name, text in made.files.items():
        (directory / name).write_text(text, encoding="utf-8")
    script = LocalLauncher().script(job(directory, made))
    done = subprocess.run(
        ["bash"], input=script, env={**os.environ, **variables}, text=True, capture_output=True, timeout=60, check=False
    )
    logs = "".join(path.read_text() for path in sorted((directory / "attempt-1").glob("rank-*.out")))
    assert done.returncode == 0, f"{done.stderr}{logs}"
    return logs
