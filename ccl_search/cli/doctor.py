"""`doctor`: is everything there that a search needs, on this machine and on a target; each line with its fix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from launchers.checks import Check
    from launchers.target_file import TargetSettings

_KEY = "ANTHROPIC_API_KEY"


def doctor(
    target: Annotated[Path | None, typer.Option("--target", help="Target file to check too.")] = None,
    framework: Annotated[str, typer.Option("--framework", help="Framework to look for on a node.")] = "torchtitan",
    probe: Annotated[
        bool, typer.Option("--probe/--no-probe", help="Run a small job on one node of the target.")
    ] = True,
    patience: Annotated[
        float, typer.Option("--patience", min=1, help="Longest wait for that job, in seconds.")
    ] = 300.0,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Check this machine, and a target; exit code 3 where something fails.

    For example
    `ccl-search doctor --target targets/perlmutter.yaml --framework megatron-lm`
    """
    from launchers.checks import Level

    folder = Path(home or "ccl-runs")
    found = list(_machine(folder))
    if target is not None:
        from launchers.target_file import load_target

        found += _target(load_target(target), framework, folder, patience if probe else None)
    if as_json:
        print_json([{"name": c.name, "level": c.level.value, "found": c.found, "fix": c.fix} for c in found])
    else:
        rows = [[check.level.value, check.name, check.found, check.fix] for check in found]
        print_table("doctor", ["!", "what!", "found", "fix"], rows)
    if any(check.level is Level.FAIL for check in found):
        raise typer.Exit(3)


def _machine(folder: Path) -> Iterator[Check]:
    from launchers.checks import Level, bad, ok
    from launchers.diagnosis import free_space

    if os.environ.get(_KEY):
        yield ok("API key", f"{_KEY} is set")
    else:
        fix = f"export {_KEY}=... to use the proposer claude; the others need no key"
        yield bad("API key", f"{_KEY} is not set", fix, Level.WARN)
    yield _sandbox()
    yield free_space(folder)
    yield from _astra_sim()


def _astra_sim() -> Iterator[Check]:
    """The user's own ASTRA-sim, which only `--backend astra-sim` and `astra-sim-ns3` need."""
    from backends.astra.programs import BACKENDS, VARIABLES
    from launchers.checks import Level, bad, ok

    for backend in BACKENDS:
        if not os.environ.get(VARIABLES[backend], "").strip():
            yield ok(backend, f"not used ({VARIABLES[backend]} is not set)")
            continue
        from backends.astra.dry_run import read_settings
        from runs.errors import CclSearchError

        try:
            settings = read_settings(backend)
            settings.check()
            yield ok(backend, settings.version())
        except CclSearchError as error:
            yield bad(backend, error.message, error.hint, Level.WARN)


def _sandbox() -> Check:
    from launchers.checks import Level, bad, ok
    from policies.factory import sandbox_status

    status = sandbox_status()
    monty, process = status["monty"], status["process"]
    text = f"monty: {monty['level'] if monty['available'] else monty['reason']}; process: {process['level']}"
    if not monty["available"]:
        return bad("sandbox", text, "reinstall pydantic-monty, or use --sandbox process")
    if process["level"] == "none":
        return bad("sandbox", text, "install bubblewrap, so that --sandbox process can be used", Level.WARN)
    return ok("sandbox", text)


def _target(target: TargetSettings, framework: str, folder: Path, patience: float | None) -> Iterator[Check]:
    from launchers.checks import Level
    from launchers.diagnosis import Probe, diagnose
    from runs import catalogue

    environment = catalogue.environment(target.environment or "perlmutter-a100-4")
    found = list(diagnose(target, environment, folder))
    yield from found
    fit = target.kind in ("local", "slurm") and not any(check.level is Level.FAIL for check in found)
    if patience is not None and fit:
        workload = catalogue.workload("wl4")
        yield from Probe(target, environment, framework, workload, folder / "doctor", patience).checks()
