"""Commands for tests: a config of a bundled workload on a bundled environment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launchers import frameworks
from launchers.shell.command import Command
from runs import catalogue
from runs.environment import Environment
from runs.workload import Workload

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
    return adapter.command(config, plan, what, where, {"version": version, **QUIET, **settings})


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
