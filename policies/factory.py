"""Which sandbox runs policies: making a runner by its name, and telling what this machine can do."""

from __future__ import annotations

from typing import Any, Literal, get_args

from policies.runner import PolicyLimits, PolicyRunner
from runs.errors import BadInputError, TargetUnavailableError

RunnerKind = Literal["monty", "process"]


def create_runner(
    kind: RunnerKind = "monty", *, unconfined: bool = False, limits: PolicyLimits | None = None, seed: int = 0
) -> PolicyRunner:
    """A runner for policies: `monty` (a fast, closed subset of Python) or `process` (full Python, confined).

    `unconfined` lets `process` run where the machine offers no confinement; `seed` starts `random` in the sandbox.

    Raises:
        BadInputError: there is no sandbox called `kind`.
        TargetUnavailableError: the sandbox does not work on this machine.
    """
    if kind == "monty":
        from policies.monty_runner import MontyRunner

        return MontyRunner(limits=limits, seed=seed)
    if kind == "process":
        from policies.process_runner import ProcessRunner

        return ProcessRunner(limits=limits, seed=seed, unconfined=unconfined)
    raise BadInputError(f"there is no sandbox {kind!r}", f"use one of {', '.join(get_args(RunnerKind))}")


def sandbox_status() -> dict[str, Any]:
    """What each sandbox and each means of confinement can do here, with reasons; starts short probe processes."""
    from policies import child, confinement

    level = confinement.confinement_level()
    bubblewrap, kernel = confinement.bubblewrap(), confinement.landlock_and_seccomp()
    return {
        "monty": _monty_status(),
        "process": {"available": level != "none", "level": level, "interpreter": confinement.interpreter()},
        "bubblewrap": {"works": bubblewrap.works, "reason": bubblewrap.reason},
        "landlock+seccomp": {"works": kernel.works, "reason": kernel.reason, "landlock_abi": child.landlock_abi()},
        "seccomp": child.seccomp_available(),
    }


def _monty_status() -> dict[str, Any]:
    import importlib.metadata

    from policies.monty_runner import MontyRunner

    try:
        runner = MontyRunner()
        try:
            level = runner.level
        finally:
            runner.close()
    except TargetUnavailableError as error:
        return {"available": False, "level": "none", "reason": error.message}
    return {"available": True, "level": level, "version": importlib.metadata.version("pydantic-monty")}
