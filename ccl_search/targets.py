"""Where configs run: the bundled dry run, or what a target file describes, and the launcher behind each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.base import Launcher
from runs.errors import BadInputError
from runs.trial import Fidelity

if TYPE_CHECKING:
    from ccl_search.calibrating.files import CalibrationFile

DRY_RUN = "dry-run"
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Target:
    """A place to run trials. `content` is the checked content of its target file, empty for the bundled dry run.

    `environment` names the bundled environment it stands for, where its file says so.
    """

    name: str
    kind: str
    description: str
    fidelity: Fidelity
    backend: str | None = None
    environment: str | None = None
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def parallel(self) -> int:
        """Jobs in flight at once, as the target file says; one unless it does."""
        return int(self.content.get("parallel", 1))

    @property
    def time_limit_s(self) -> float:
        """Seconds one trial may run, as the target file says; an hour unless it does."""
        return float(self.content.get("time_limit_s", _HOUR_S))

    @property
    def calibration(self) -> CalibrationFile | None:
        """The simulator's calibration for this target, where its file names one."""
        from ccl_search.calibrating.files import parse

        found = self.content.get("calibration")
        return None if found is None else parse(found, f"target {self.name}: calibration")

    def extras(self) -> dict[str, Any]:
        """What a trial's job needs of the target file."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.content.get("queue_limit_s") is not None:
            found["queue_limit_s"] = self.content["queue_limit_s"]
        if section := self.content.get("framework"):
            found["framework"] = section
        return found


_BUNDLED = (
    Target(
        DRY_RUN,
        DRY_RUN,
        "simulated on the built-in flow backend: memory, kernels, collectives and pipeline of every rank, as a trace",
        Fidelity.SIMULATED,
        "flow",
    ),
    *(
        Target(
            f"{DRY_RUN}-{backend}",
            DRY_RUN,
            f"simulated by your own {what} (docs/astra_sim.md)",
            Fidelity.SIMULATED,
            backend,
            content={
                "name": f"{DRY_RUN}-{backend}",
                "kind": DRY_RUN,
                "dry_run": {"backend": backend, "compress": True},
            },
        )
        for backend, what in (("astra-sim", "analytical ASTRA-sim"), ("astra-sim-ns3", "ASTRA-sim on ns-3"))
    ),
)


def bundled() -> tuple[Target, ...]:
    """Targets that need no target file."""
    return _BUNDLED


def with_backend(name: str, backend: str | None) -> str:
    """The bundled target that simulates with `backend`; `name` itself where none is asked for.

    Raises:
        BadInputError: there is no such backend, or `name` is not the bundled dry run.
    """
    if backend is None:
        return name
    known = {target.backend: target.name for target in _BUNDLED}
    if backend not in known:
        raise BadInputError(f"no backend is called {backend!r}", f"choose one of {', '.join(filter(None, known))}")
    if name not in known.values():
        raise BadInputError(
            f"--backend does not go with --target {name}", "name the backend in the section dry_run of a target file"
        )
    return known[backend]


def find(name: str, home: Path | None = None) -> Target:
    """The bundled target called `name`, or the one that the target file `name` describes.

    `home` is where a calibration that the file names is looked for (see `read`).

    Raises:
        BadInputError: there is none, or the file is wrong.
    """
    for target in _BUNDLED:
        if target.name == name:
            return target
    if Path(name).suffix in (".yaml", ".yml"):
        return read(Path(name), home)
    known = ", ".join(target.name for target in _BUNDLED)
    raise BadInputError(f"no target is called {name!r}", f"targets: {known}, or a target file (docs/targets.md)")


def read(path: Path, home: Path | None = None) -> Target:
    """The target that a file describes; a calibration it names is in `home` (`CCL_SEARCH_HOME`, else `./ccl-runs`).

    Raises:
        BadInputError: the file cannot be read or is no target file; the message names the field.
    """
    from launchers.target_file import load_target

    return _of(_with_calibration(load_target(path).model_dump(mode="json", exclude_none=True), path.parent, home))


def _with_calibration(content: dict[str, Any], folder: Path, home: Path | None) -> dict[str, Any]:
    """`content` with the factors in place of a calibration's name or file, so that a stored run keeps what it used.

    A file is looked for from the target file's `folder`, a name in `home`. The target's own calibration, which a screen
    uses, keeps its held-out error; that of a dry run is the target's own unless it names another.
    """
    section = content.get("dry_run") or {}
    own, of_run = content.get("calibration"), section.get("calibration")
    found = dict(content)
    if isinstance(of_run, str):
        fitted = _calibration_file(of_run, folder, home)
        found["dry_run"] = {**section, "calibration": fitted.calibration.as_dict()}
        own = own or of_run
    if isinstance(own, str):
        found["calibration"] = _calibration_file(own, folder, home).summary()
    return found


def _calibration_file(named: str, folder: Path, home: Path | None) -> CalibrationFile:
    from ccl_search.calibrating.files import find_file

    is_file = Path(named).suffix in (".yaml", ".yml")
    return find_file(str(folder / named) if is_file else named, str(home) if home else None)


def of_run(name: str, content: dict[str, Any]) -> Target:
    """The target of a stored run, from what was stored of its file."""
    return _of(content) if content else find(name)


def launcher(target: Target, within_allocation: bool = False) -> Launcher:
    """A launcher for the target.

    Raises:
        BadInputError: a setting is wrong.
        TargetUnavailableError: the target cannot be used from here.
    """
    if not target.content and not within_allocation:
        from launchers.dry_run import DryRunLauncher

        found: Launcher = DryRunLauncher(compress=True)
        return found
    from launchers.target_file import build_launcher, parse_target

    content = target.content or {"name": target.name, "kind": target.kind}
    return build_launcher(parse_target(content, target.name), within_allocation)


def _of(content: dict[str, Any]) -> Target:
    simulated = content["kind"] == DRY_RUN
    return Target(
        name=content["name"],
        kind=content["kind"],
        description=content.get("description", ""),
        fidelity=Fidelity.SIMULATED if simulated else Fidelity.MEASURED,
        backend=content.get("dry_run", {}).get("backend", "flow") if simulated else None,
        environment=content.get("environment"),
        content=content,
    )
