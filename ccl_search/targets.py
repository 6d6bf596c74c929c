"""Where configs run: the targets there are, and the launcher behind each."""

from __future__ import annotations

from dataclasses import dataclass

from launchers.base import Launcher
from runs.errors import BadInputError
from runs.trial import Fidelity


@dataclass(frozen=True)
class Target:
    """A place to run trials: its `name`, what it is, the `fidelity` of its numbers, its backend if simulated."""

    name: str
    description: str
    fidelity: Fidelity
    backend: str | None = None


_BUNDLED = (
    Target(
        "dry-run",
        "simulated on the built-in flow backend: memory, kernels, collectives and pipeline of every rank, as a trace",
        Fidelity.SIMULATED,
        "flow",
    ),
)


def bundled() -> tuple[Target, ...]:
    """Targets that need no target file."""
    return _BUNDLED


def find(name: str) -> Target:
    """The target called `name`.

    Raises:
        BadInputError: there is none; the hint lists those there are.
    """
    for target in _BUNDLED:
        if target.name == name:
            return target
    raise BadInputError(f"no target is called {name!r}", f"targets: {', '.join(target.name for target in _BUNDLED)}")


def launcher(target: Target) -> Launcher:
    """A launcher for the target."""
    from launchers.dry_run import DryRunLauncher

    found: Launcher = DryRunLauncher()
    return found
