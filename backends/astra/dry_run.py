"""A dry run behind ASTRA-sim: workload, plan and environment become its inputs, its times become the step's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, BACKENDS, Engine, Program, find
from backends.astra.retiming import Retimed, retimed
from backends.astra.simulate import Announce, AstraResult, InputPaths, simulate_files
from backends.calibration import UNCALIBRATED, Calibration
from backends.compute import System
from backends.dry_run import dry_run as flow_dry_run
from backends.dry_run import network_for
from backends.exchange.drafting import draft
from backends.exchange.export import PREFIX, Export, export
from backends.flow.simulate import latencies
from backends.flow.timing import ns
from backends.memory import MemoryEstimate
from backends.timeline import SimulationResult
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload

_SETTINGS = ("command", "stop", "paths", "congestion", "time_limit_s")
_ALONE = (
    "one rank communicates with nobody: ASTRA-sim was not run, computations last as the built-in simulator has them"
)
_NETWORKS = ("network.yml", "network_1d.yml", "config.txt", "physical_topology.txt", "no files for NS-3")


@dataclass(frozen=True)
class AstraSettings:
    """How a backend is run: its program, which of the two analytical ones (None: as the network asks), its limits.

    `limited`: whether somebody chose the limit; otherwise a trial's own limit takes its place.
    """

    program: Program
    engine: Engine | None = None
    limits: Limits = field(default_factory=Limits)
    limited: bool = True

    @property
    def backend(self) -> str:
        """`astra-sim` or `astra-sim-ns3`."""
        return self.program.backend

    def check(self) -> None:
        """Return if the program is there.

        Raises:
            TargetUnavailableError: it is not.
        """
        engine = self.program.engine(self.engine or ("ns3" if self.backend != ANALYTICAL else "aware"))
        self.program.line(engine, Path.cwd(), "check")

    def version(self) -> str:
        """What is known of the program. Raises what `check` raises."""
        return self.program.version(
            self.program.engine(self.engine or ("ns3" if self.backend != ANALYTICAL else "aware"))
        )

    def within(self, seconds: float) -> AstraSettings:
        """The same with a wall-clock limit of `seconds`, or the chosen limit where that is shorter."""
        wall_s = min(seconds, self.limits.wall_s) if self.limited else seconds
        return replace(self, limits=replace(self.limits, wall_s=wall_s))


def read_settings(backend: str, settings: Mapping[str, Any] | None = None) -> AstraSettings:
    """The settings of `backend` from a target file's section `astra_sim`, else from the environment.

    Keys: `command`, `stop`, `paths` (see `Program`), `congestion` (`aware` or `unaware`), `time_limit_s`.

    Raises:
        BadInputError: the backend or a setting is unknown or has the wrong form.
        TargetUnavailableError: nothing names a program.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise BadInputError(f"astra_sim: {settings!r} is no mapping", f"give some of {', '.join(_SETTINGS)}")
    given = dict(settings or {})
    if backend not in BACKENDS:
        raise BadInputError(f"no backend of ASTRA-sim is called {backend!r}", f"choose {' or '.join(BACKENDS)}")
    unknown = sorted(set(given) - set(_SETTINGS))
    if unknown:
        raise BadInputError(f"astra_sim: unknown setting {', '.join(unknown)}", f"known: {', '.join(_SETTINGS)}")
    engine = given.get("congestion")
    if engine not in (None, "aware", "unaware") or (engine and backend != ANALYTICAL):
        raise BadInputError(f"astra_sim: congestion is {engine!r}", "aware or unaware, for the analytical backend")
    limit = given.get("time_limit_s", Limits.wall_s)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
        raise BadInputError(f"astra_sim: time_limit_s is {limit!r}", "give seconds above zero")
    return AstraSettings(find(backend, given), engine, Limits(wall_s=float(limit)), "time_limit_s" in given)


def dry_run(
    workload: Workload, environment: Environment, plan: ParallelPlan, settings: AstraSettings,
    calibration: Calibration = UNCALIBRATED, keep: Path | None = None, announce: Announce | None = None,
) -> SimulationResult:  # fmt: skip
    """Simulate one step with ASTRA-sim: computations last as the built-in simulator has them, the rest is ASTRA-sim's.

    A plan of one rank has nothing that ASTRA-sim could time, so its program is not run. `keep` is where the inputs are
    left (it must not exist). `announce` hears what a run on ns-3 will cost before it starts.

    Raises:
        BadInputError: the plan needs more devices than there are, or its inputs would mislead ASTRA-sim.
        CostError: ns-3 would take longer than the limit.
        TargetUnavailableError: the program is not there or cannot be started.
        CclSearchError: the run has no result, or the simulated step is unusable.
        OSError: a folder cannot be written.
    """
    base = flow_dry_run(workload, environment, plan, calibration, detail="kernel")
    if plan.world_size == 1:
        return replace(base, backend=settings.backend, version=settings.version(), notes=(*base.notes, _ALONE))
    system = System.of(environment, plan, workload.precision, calibration)
    network = network_for(environment, calibration, plan)
    with tempfile.TemporaryDirectory(prefix="ccl-astra-") as scratch:
        folder = keep or Path(scratch) / "export"
        done = export(base, system, network.topology, folder, parameters=getattr(network, "parameters", None))
        paths = paths_of(done, settings)
        found = simulate_files(
            paths, settings.program, engine=settings.engine, limits=settings.limits, announce=announce
        )
    found.require_timeline()
    step = retimed(base, draft(base), found.spans, ns(calibration.step_overhead_s))
    return _result(base, step, found, done, base.memory)


def paths_of(done: Export, settings: AstraSettings) -> InputPaths:
    """The files of an exported folder that the backend of `settings` reads.

    The congestion-aware program takes one dimension only: where it is asked for, the network is the flattened one.

    Raises:
        BadInputError: the topology could not be written for ns-3.
    """
    folder, names = done.folder, set(done.files)
    ns3 = settings.backend != ANALYTICAL
    if ns3 and "config.txt" not in names:
        reason = next((loss for loss in done.losses if loss.startswith("no files for NS-3")), "no files for NS-3")
        raise BadInputError(reason, f"--backend {ANALYTICAL} or flow")
    flat = "_1d" if (ns3 or settings.engine == "aware") and "system_1d.json" in names else ""
    return InputPaths(
        folder / PREFIX, folder / f"system{flat}.json", network=None if ns3 else folder / f"network{flat}.yml",
        physical=folder / "physical_topology.txt" if ns3 else None,
        logical=folder / "logical_topology.json" if ns3 else None,
        comm_group=folder / "comm_group.json" if "comm_group.json" in names else None,
        remote_memory=folder / "remote_memory.json", ns3_config=folder / "config.txt" if ns3 else None,
    )  # fmt: skip


def _result(
    base: SimulationResult, step: Retimed, found: AstraResult, done: Export, memory: MemoryEstimate | None
) -> SimulationResult:
    slowest = max(step.timelines, key=lambda t: (t.figures.wall_s, t.figures.compute_s + t.figures.exposed_s)).figures
    ttft, tpot = latencies(step.graph, step.timelines)
    notes = (*_losses(done, found.run.engine), *found.notes)
    if step.dropped:
        notes = (*notes, f"{step.dropped} timelines are left out: ranks of a class differ, the slowest stands for all")
    return replace(
        base, graph=step.graph, timelines=step.timelines, wall_s=slowest.wall_s, compute_s=slowest.compute_s,
        comm_s=slowest.comm_s, exposed_s=slowest.exposed_s, bubble_s=slowest.bubble_s, memory=memory,
        backend=found.backend, version=found.run.version, ttft_s=ttft, tpot_s=tpot, links=found.links, notes=notes,
        network=found.network,
    )  # fmt: skip


def _losses(done: Export, engine: Engine) -> tuple[str, ...]:
    """What the files that `engine` read cannot say; how a loss begins names its file."""
    flat = engine == "aware" and "network_1d.yml" in done.files
    own = ("config.txt", "physical_topology.txt") if engine == "ns3" else ("network_1d.yml" if flat else "network.yml",)
    others = tuple(name for name in (*_NETWORKS, "system_roofline.json") if name not in own)
    return tuple(loss for loss in done.losses if not loss.startswith(others))
