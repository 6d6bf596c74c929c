"""`simulate`: one config, or execution traces, on the built-in simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli import options
from ccl_search.cli import simulate_raw as raw
from ccl_search.cli.groups import Subject, grouped
from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table
from runs.errors import BadInputError

if TYPE_CHECKING:
    from backends.timeline import SimulationResult
    from ccl_search.simulating import Simulation

ConfigText = Annotated[str | None, typer.Option("--config", help=options.CONFIG_HELP)]
Backend = Annotated[
    str, typer.Option(help="Simulator: flow is built in, astra-sim and astra-sim-ns3 are your own programs.")
]
CalibrationName = Annotated[
    str | None,
    typer.Option("--calibration", help="A name of `calibrate --list`, or a file.", show_default="uncalibrated"),
]
TraceFolder = Annotated[
    Path | None, typer.Option("--trace", help="Write the step as Kineto trace files into this folder.")
]

_BUSIEST = 8
_MS = 1e3


app = typer.Typer(invoke_without_command=True)


@app.callback()
@grouped
def simulate(
    *,
    context: typer.Context,
    config: ConfigText = None,
    subject: Subject,
    backend: Backend = "flow",
    time_limit: raw.Limit = None,
    calibration: CalibrationName = None,
    trace: TraceFolder = None,
    et: raw.Prefix = None,
    system: raw.System = None,
    network: raw.NetworkFile = None,
    physical_topology: raw.Physical = None,
    comm_group: raw.GroupFile = None,
    remote_memory: raw.MemoryFile = None,
    logical_topology: raw.Logical = None,
    ns3_config: raw.Ns3File = None,
    cc: raw.Control = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulate one step of one config: time, exposed communication, bubble, memory parts, busiest links.

    With --json all times are whole ns of the slowest rank, memory and links bytes. A config that breaks a rule of the
    space is refused with the rule, one that does not fit in memory is shown with its parts: exit code 2 for both.

    With --et, --system and --network or --physical-topology it runs Chakra traces instead, as ASTRA-sim would.
    """
    if context.invoked_subcommand is not None:
        return
    from ccl_search.simulating.raw import RawFiles

    files = RawFiles(et, system, network, physical_topology, comm_group, remote_memory, logical_topology, ns3_config)
    if files.given or cc is not None:
        _refuse_mixture({"config": config, "calibration": calibration, **vars(subject)})
        raw.run_raw(files, cc, backend, raw.program_use(time_limit), trace, as_json)
    elif config is None:
        raise BadInputError("there is nothing to simulate", "give --config, or traces with --et")
    else:
        _simulate_config(subject, config, (backend, time_limit), (calibration, home), trace, as_json)


@app.command("export")
@grouped
def export(
    *,
    folder: Annotated[Path, typer.Argument(help="New folder for the files.")],
    config: Annotated[str, typer.Option("--config", help="Knobs, as tp=4,dp=2,micro_batch_size=1.")],
    subject: Subject,
    calibration: CalibrationName = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="A node for each kernel, not one between two communications.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write one step of one config as inputs that ASTRA-sim's binaries take as they are.

    Chakra traces of every rank, groups, system, analytical and NS-3 networks, a run script, and a README that lists
    what these files cannot say.
    """
    from ccl_search import scripting
    from ccl_search.calibrating import files
    from ccl_search.problem import resolve
    from ccl_search.simulating import exporting

    knobs = scripting.parse_config(config)
    done = exporting.export(resolve(subject.source()), knobs, files.find(calibration, home), folder, kernels)
    if as_json:
        print_json(done.as_dict())
        return
    console().print(f"{done.folder}: {done.ranks} ranks, {done.nodes} nodes, {len(done.files)} files", soft_wrap=True)
    for loss in done.losses:
        console().print(f"not said: {loss}", soft_wrap=True)


def _refuse_mixture(others: dict[str, Any]) -> None:
    for name, value in others.items():
        if value is not None:
            raise BadInputError(f"--{name} does not go with --et", "simulate a config or traces, not both")


def _simulate_config(
    subject: Subject,
    config: str,
    backend: tuple[str, float | None],
    calibration: tuple[str | None, str | None],
    trace: Path | None,
    as_json: bool,
) -> None:
    from ccl_search import scripting, simulating
    from ccl_search.calibrating import files
    from ccl_search.problem import resolve

    problem = resolve(subject.source())
    name, time_limit = backend
    found = simulating.simulate(
        problem, scripting.parse_config(config), files.find(*calibration), name, raw.program_use(time_limit)
    )
    written = simulating.write_trace(found, trace) if trace is not None and found.result is not None else ()
    if as_json:
        print_json({**found.as_dict(), **({"trace": [str(path) for path in written]} if written else {})})
    else:
        _show(found)
        for path in written:
            console().print(f"trace {path}", soft_wrap=True, markup=False)
    found.require_fit()


def _show(found: Simulation) -> None:
    knobs = " ".join(f"{key}={value}" for key, value in found.config.items())
    where = f"{found.problem.workload.name} on {found.problem.environment.name}"
    console().print(f"{where}: {knobs}", soft_wrap=True, markup=False)
    for note in found.problem.notes:
        console().print(note, soft_wrap=True, markup=False)
    if found.result is not None:
        _print_step(found.result)
        for note in found.result.notes:
            console().print(note, soft_wrap=True, markup=False)
    memory = found.memory
    parts = sorted(((name, size) for name, size in memory.parts.items() if size > 0), key=lambda part: -part[1])
    ends = [("total", memory.total_bytes), ("device", memory.limit_bytes)]
    rows = [[name, f"{size / 2**30:.2f}"] for name, size in [*parts, *ends]]
    _table(f"memory of a device, pipeline stage {found.memory.stage}", ["part!", ">GiB!"], rows)
    if found.result is not None:
        _print_links(found.result)


def _table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A narrow table under a title of its own width."""
    console().print(title, soft_wrap=True, markup=False, style="italic")
    print_table("", columns, rows)


def _print_step(result: SimulationResult) -> None:
    named = {
        "step": result.wall_s,
        "compute": result.compute_s,
        "communication": result.comm_s,
        "exposed communication": result.exposed_s,
        "bubble": result.bubble_s,
        "time to first token": result.ttft_s,
        "time per output token": result.tpot_s,
    }
    rows = [
        [name, f"{_MS * seconds:.3f}", f"{seconds / result.wall_s:.1%}" if name not in _LATENCIES else ""]
        for name, seconds in named.items()
        if seconds is not None
    ]
    title = f"slowest rank, {result.backend} {result.version}, calibration {result.calibration}"
    _table(title, ["time!", ">ms!", ">of the step!"], rows)


_LATENCIES = ("time to first token", "time per output token")


def _print_links(result: SimulationResult) -> None:
    busiest = sorted(result.links.items(), key=lambda link: -link[1])[:_BUSIEST]
    if busiest:
        rows = [[name, f"{size / 1e9:.3f}"] for name, size in busiest]
        _table(f"busiest of {len(result.links)} links", ["link!", ">GB!"], rows)
