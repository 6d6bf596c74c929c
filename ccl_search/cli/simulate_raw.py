"""`simulate --et`: execution traces in the files of ASTRA-sim on the built-in simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from backends.astra.cost import Cost
    from backends.exchange.raw import RawResult
    from ccl_search.simulating import ProgramUse
    from ccl_search.simulating.raw import RawFiles

_PANEL = "Traces in ASTRA-sim's files"


def _option(name: str, text: str) -> typer.models.OptionInfo:
    return typer.Option(name, help=text, rich_help_panel=_PANEL)  # type: ignore[no-any-return]


Prefix = Annotated[Path | None, _option("--et", "Chakra traces PREFIX.RANK.et, of any producer.")]
System = Annotated[Path | None, _option("--system", "System file (JSON): algorithms, chunks, roofline.")]
NetworkFile = Annotated[Path | None, _option("--network", "Analytical network (network.yml).")]
Physical = Annotated[Path | None, _option("--physical-topology", "NS-3 physical topology text.")]
GroupFile = Annotated[Path | None, _option("--comm-group", "Communicator groups (JSON).")]
MemoryFile = Annotated[Path | None, _option("--remote-memory", "Remote memory (JSON), for memory nodes.")]
Logical = Annotated[
    Path | None, _option("--logical-topology", "Logical dimensions (JSON) on a physical topology; one by default.")
]
Ns3File = Annotated[Path | None, _option("--ns3-config", "NS-3 configuration: packets, windows, thresholds.")]
Control = Annotated[
    str | None, _option("--cc", "Congestion control on a physical topology: none, dcqcn, hpcc, timely or dctcp.")
]
Limit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        show_default="600",
        help="Longest run of ASTRA-sim's own program, in seconds; one that is expected to take longer is not started.",
    ),
]
_BUSIEST = 8


def run_raw(
    files: RawFiles, control: str | None, backend: str, program: ProgramUse, trace: Path | None, as_json: bool
) -> None:
    """Run traces and show the figures."""
    from ccl_search.simulating.raw import simulate_raw, write_raw_traces

    result = simulate_raw(files, control, backend, program)
    written = [str(path) for path in write_raw_traces(result, trace)] if trace is not None else []
    if as_json:
        print_json({**result.as_dict(), **({"trace": written} if written else {})})
        return
    _show(result)
    for path in written:
        console().print(f"trace {path}", soft_wrap=True)


def program_use(time_limit: float | None) -> ProgramUse:
    """How the user's own simulator is run: what ns-3 will cost is said on stderr before it starts."""
    from ccl_search.simulating import ProgramUse

    return ProgramUse(time_limit, _forewarn)


def _forewarn(cost: Cost) -> None:
    console().print(f"ns-3 takes {cost}", soft_wrap=True)


def _show(result: RawResult) -> None:
    document = result.as_dict()
    for note in document["notes"]:
        console().print(note, soft_wrap=True)
    named = {
        "run": "wall_ns",
        "compute": "compute_ns",
        "communication": "comm_ns",
        "exposed communication": "exposed_ns",
        "bubble": "bubble_ns",
    }
    wall = document["wall_ns"]
    rows = [[name, f"{document[key] / 1e6:.3f}", f"{document[key] / wall:.1%}"] for name, key in named.items()]
    where = f"rank {result.slowest} of {result.inputs.ranks}, {document['backend']} {document['version']}"
    console().print(f"slowest {where}, congestion control {document['congestion_control']}", style="italic")
    print_table("", ["time!", ">ms!", ">of the run!"], rows)
    busiest = sorted(result.links.items(), key=lambda link: -link[1])[:_BUSIEST]
    if busiest:
        console().print(f"busiest of {len(result.links)} links", style="italic")
        print_table("", ["link!", ">GB!"], [[name, f"{size / 1e9:.3f}"] for name, size in busiest])
