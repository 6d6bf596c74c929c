"""A simulated step as a folder of inputs that ASTRA-sim's binaries take as they are."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.compute import System
from backends.exchange.chakra import CommKind, NodeKind, write_trace
from backends.exchange.drafting import ClassDraft, Workload, draft, pieces_of, workload
from backends.exchange.flattening import Physical, analytical_network, one_dimension, physical_topology
from backends.exchange.ns3_config import rates_gbps, stock_config, write_ns3_config
from backends.exchange.settings import (
    RemoteMemory,
    write_groups,
    write_logical_topology,
    write_remote_memory,
)
from backends.exchange.system import IMPLEMENTATIONS, SystemConfig, write_system
from backends.network.parameters import CongestionControl, NetworkParameters
from backends.network.topology import Topology
from backends.ops import Communication, Transfer
from backends.timeline import SimulationResult, TaskRun
from runs.errors import BadInputError
from runs.plan import ParallelPlan

PREFIX = "et/workload"
_NAMES = {
    "ring": "ring",
    "direct": "direct",
    "halving_doubling": "halvingDoubling",
    "double_binary_tree": "doubleBinaryTree",
    "double_binary_tree_astra": "doubleBinaryTree",
    "tree": "doubleBinaryTree",
}
_INT_MAX = 2**31 - 1
_ENDPOINT_DELAY = 10
_FLAGS = {
    "workload-configuration": PREFIX,
    "comm-group-configuration": "comm_group.json",
    "remote-memory-configuration": "remote_memory.json",
}


@dataclass(frozen=True)
class Export:
    """What was written: files by name, ranks, nodes of all traces, command lines, and what could not be said.

    `losses` are in words; `simulated_ns` is the step as `flow` has it.
    """

    folder: Path
    ranks: int
    nodes: int
    files: tuple[str, ...]
    commands: dict[str, str]
    losses: tuple[str, ...]
    simulated_ns: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "folder": str(self.folder), "files": list(self.files), "losses": list(self.losses)}


@dataclass
class _Folder:
    """The folder being written; remembers what is in it."""

    path: Path
    files: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> Path:
        self.files.append(name)
        return self.path / name

    def text(self, name: str, text: str) -> None:
        self(name).write_text(text, encoding="utf-8")


def export(
    result: SimulationResult,
    system: System,
    topology: Topology,
    folder: Path,
    *,
    parameters: NetworkParameters | None = None,
    kernels: bool = False,
) -> Export:
    """Write `result` (simulated with detail `kernel` on `system` and `topology`) into `folder`.

    Raises:
        BadInputError: `folder` holds something already, or the plan has a single rank.
        OSError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError(f"{folder} is there already", "name a new or empty folder")
    if result.graph.plan.world_size < 2:
        raise BadInputError("the plan has one rank; ASTRA-sim needs two or more", "raise a parallel degree")
    drafts = draft(result, kernels)
    found = workload(drafts)
    (folder / "et").mkdir(parents=True, exist_ok=True)
    out = _Folder(folder)
    _write_traces(out, found)
    splits = _splits(found)
    losses = [*_write_networks(out, topology, len(found.traces), parameters), *_stream_losses(result, drafts, kernels)]
    dimensions = analytical_network(topology, len(found.traces)).network.dimensions
    chosen, remarks = _algorithms(result.graph.plan, dimensions[0].kind == "FullyConnected")
    losses += [*remarks, *_write_systems(out, chosen, system, splits, len(dimensions))]
    commands = _commands(out.files)
    _write_run(out, commands)
    nodes = sum(len(trace.nodes) for trace in found.traces)
    wall = max(timeline.spans[-1][1] - timeline.spans[0][0] for timeline in result.timelines)
    done = Export(folder, len(found.traces), nodes, tuple(out.files), commands, tuple(losses), wall)
    (folder / "README.md").write_text(_readme(done), encoding="utf-8")
    return done


def _write_traces(out: _Folder, found: Workload) -> None:
    known: dict[int, bytes] = {}
    for rank, trace in enumerate(found.traces):
        write_trace(out(f"{PREFIX}.{rank}.et"), trace, known)
    if found.groups:
        write_groups(out("comm_group.json"), found.groups)
    write_remote_memory(out("remote_memory.json"), RemoteMemory())


def _write_networks(
    out: _Folder, topology: Topology, ranks: int, parameters: NetworkParameters | None
) -> Iterable[str]:
    """The networks; yields what they leave out."""
    several, flat = analytical_network(topology, ranks), one_dimension(topology, ranks)
    out.text("network.yml", several.network.dump())
    yield from (f"network.yml: {loss}" for loss in several.losses)
    if len(several.network.dimensions) > 1:
        out.text("network_1d.yml", flat.network.dump())
        yield "network.yml: several dimensions, which only the congestion-unaware binary takes; it has no contention"
        yield from (f"network_1d.yml (for the congestion-aware binary): {loss}" for loss in flat.losses)
    try:
        physical = physical_topology(topology)
    except BadInputError as error:
        yield f"no files for NS-3: {error.message}"
        return
    yield from _write_ns3(out, physical, ranks, parameters)


def _write_ns3(out: _Folder, physical: Physical, ranks: int, parameters: NetworkParameters | None) -> Iterable[str]:
    chosen = parameters or NetworkParameters()
    control = chosen.congestion_control
    payload = chosen.payload_bytes
    out.text("physical_topology.txt", physical.text)
    rates = rates_gbps(physical.topology)
    write_ns3_config(out("config.txt"), stock_config("physical_topology.txt", rates, control, payload))
    out.text("flow.txt", "0\n")
    out.text("trace.txt", "0\n")
    write_logical_topology(out("logical_topology.json"), (ranks,))
    yield from (f"physical_topology.txt: {loss}" for loss in physical.losses)
    yield "config.txt: thresholds are 2 and 8 kB for each Gb/s of a link, the stock figures at 400 Gb/s"
    if control is CongestionControl.HPCC:
        yield "config.txt: HPCC knows links of 25, 50, 100, 200, 400, 1200 and 2400 Gb/s and 5 hops only"


def _splits(found: Workload) -> int:
    """Chunks of a collective: one, or as many as keep every message of NS-3 below 2 GiB."""
    ranks, largest = len(found.traces), 1
    for node in {id(node): node for trace in found.traces for node in trace.nodes}.values():
        if node.kind is NodeKind.COMM_COLL:
            is_share = node.get("comm_type") == CommKind.ALL_GATHER
            parts = 1 if is_share else len(found.groups.get(node.get("pg_name", ""), range(ranks)))
            largest = max(largest, node.get("comm_size") // parts)
    return -(-largest // _INT_MAX)


def _write_systems(
    out: _Folder, chosen: dict[str, str], system: System, splits: int, dimensions: int
) -> tuple[str, ...]:
    """The system files: durations from the traces, and the roofline; for one dimension and for several."""
    base = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": _ENDPOINT_DELAY,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": splits,
        "collective-optimization": "localBWAware",
        "local-mem-bw": system.device.memory_bandwidth_gb_s,
        "peak-perf": system.device.peak_flops(system.precision) / 1e12,
    }
    for suffix, roofline in (("", 0), ("_roofline", 1)):
        for name, places in _variants(suffix, dimensions):
            lists = {IMPLEMENTATIONS[kind]: [chosen[kind]] * places for kind in IMPLEMENTATIONS}
            write_system(out(name), SystemConfig({**base, **lists, "roofline-enabled": roofline}, name))
    return (
        "system.json: a collective costs 10 ns a message (endpoint-delay); flow takes a launch time for each",
        "system_roofline.json: peak FLOPs and memory bandwidth of the device without efficiencies, too fast",
    )


def _variants(suffix: str, dimensions: int) -> list[tuple[str, int]]:
    found = [(f"system{suffix}.json", dimensions)]
    return found if dimensions == 1 else [*found, (f"system{suffix}_1d.json", 1)]


def _algorithms(plan: ParallelPlan, meshed: bool) -> tuple[dict[str, str], list[str]]:
    """A name for each kind, as ASTRA-sim has one a kind for all groups: direct in a full mesh, ring elsewhere."""
    default = "direct" if meshed else "ring"
    asked = {name for name in (plan.collective_algorithm, plan.tp_algorithm) if name and name != "auto"}
    chosen = dict.fromkeys(IMPLEMENTATIONS, default) | {"all_to_all": "direct"}
    losses = []
    named = next(iter(sorted(asked)), None)
    if named is None:
        what = f"system.json: {default} (all-to-all: direct) for all groups"
        losses.append(f"{what}; flow chooses by group, size and topology")
    elif len(asked) > 1 or _NAMES.get(named.replace("-", "_")) in (None, "doubleBinaryTree", "halvingDoubling"):
        losses.append(
            f"system.json: {default} instead of {', '.join(sorted(asked))}: ASTRA-sim has one algorithm a kind for all "
            "groups, its trees crash within groups and halving-doubling needs powers of two"
        )
    else:
        chosen |= dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), _NAMES[named])
    if plan.ep_algorithm in ("ring", "direct"):
        chosen["all_to_all"] = plan.ep_algorithm
    return chosen, losses


def _stream_losses(result: SimulationResult, drafts: list[ClassDraft], kernels: bool) -> Iterable[str]:
    """What of the step's timeline the traces cannot say."""
    overlap = max(_overlap(timeline.runs) for timeline in result.timelines)
    if overlap:
        yield (
            f"traces: communications of one rank overlap for up to {overlap / 1e6:.3f} ms of the step; ASTRA-sim runs "
            "one at a time, here in the order of their starts"
        )
    yield "traces: durations are whole µs (their sums are right), launch gaps belong to the kernel before them"
    if lost := max(_gaps(timeline.runs) for timeline in result.timelines):
        yield f"traces: launch gaps behind communications, up to {lost / 1e6:.3f} ms of the step, are left out"
    if not kernels:
        yield "traces: kernels between two communications are one node; with the roofline on that is max of sums"
    items = [
        piece.item for timeline in result.timelines for run in timeline.runs for r in run.runs for piece in r.pieces
    ]
    if any(isinstance(item, Transfer) for item in items):
        yield "traces: copies to and from the host are computations, which do not overlap other work"
    if any(isinstance(item, Communication) and item.kind == "broadcast" for item in items):
        yield "traces: ASTRA-sim takes no time for broadcasts"
    if result.graph.steps > 1:
        yield f"traces: all {result.graph.steps} iterations in a row; host time between them is computation"


def _overlap(runs: Iterable[Any]) -> int:
    """ns in which more than one communication of a rank is under way."""
    spans = []
    for run in runs:
        for repeated in run.runs:
            for turn in range(repeated.times):
                base = run.start + repeated.offset + turn * repeated.stride
                spans += [
                    (base + piece.start, base + piece.start + piece.duration)
                    for piece in repeated.pieces
                    if piece.what == "communication"
                ]
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, min(reached, end) - start)
        reached = max(reached, end)
    return total


def _gaps(runs: Iterable[TaskRun]) -> int:
    """ns between the end of a communication and what follows it in its task: the host is still launching that."""
    total = 0
    for run in runs:
        timed = list(pieces_of(run))
        starts = [start for start, _ in timed[1:]] + [run.end]
        for (start, piece), following in zip(timed, starts, strict=True):
            if isinstance(piece.item, Communication):
                total += max(0, following - start - piece.duration)
    return total


def _commands(files: list[str]) -> dict[str, str]:
    """The command line of each binary, by name."""
    common = {key: value for key, value in _FLAGS.items() if value == PREFIX or value in files}
    one_d = "_1d" if "network_1d.yml" in files else ""
    found = {
        "congestion_unaware": {"system-configuration": "system.json", "network-configuration": "network.yml"},
        "congestion_aware": {
            "system-configuration": f"system{one_d}.json",
            "network-configuration": f"network{one_d}.yml",
        },
    }
    if "config.txt" in files:
        found["ns3"] = {
            "system-configuration": f"system{one_d}.json",
            "network-configuration": "config.txt",
            "logical-topology-configuration": "logical_topology.json",
        }
    return {
        name: " ".join(f"--{key}={shlex.quote(value)}" for key, value in {**common, **own}.items())
        for name, own in found.items()
    }


_VARIABLES = {
    "congestion_unaware": "ASTRA_SIM_UNAWARE",
    "congestion_aware": "ASTRA_SIM_AWARE",
    "ns3": "ASTRA_SIM_NS3",
}


def _write_run(out: _Folder, commands: dict[str, str]) -> None:
    cases = "\n".join(
        f'  {name})\n    exec "${{{_VARIABLES[name]}:?set it to the binary}}" {flags} ;;'
        for name, flags in commands.items()
    )
    text = (
        "#!/bin/sh\n"
        f"# Usage: {' | '.join(f'run.sh {name}' for name in commands)}\n"
        "# Paths are relative to this folder, where NS-3 also writes its results.\n"
        'cd "$(dirname "$0")" || exit 1\n'
        f'case "$1" in\n{cases}\n  *)\n    echo "usage: run.sh {"|".join(commands)}" >&2\n    exit 2 ;;\nesac\n'
    )
    out.text("run.sh", text)
    (out.path / "run.sh").chmod(0o755)


def _readme(done: Export) -> str:
    lines = [
        "# One step for ASTRA-sim",
        "",
        f"{done.ranks} ranks, {done.nodes} nodes. The built-in simulator takes {done.simulated_ns} ns for it.",
        "",
        "`run.sh NAME` runs it; the variables name the binaries:",
        "",
        *(f"- `{name}` (`${_VARIABLES[name]}`): `{flags}`" for name, flags in done.commands.items()),
        "",
        "A run counts only if every rank prints `sys[R] finished`, whatever the exit code: with several groups the",
        "analytical binaries may crash after the last result. Bandwidths in network.yml are GiB/s, as the binaries",
        "take them.",
        "",
        "## What these files cannot say",
        "",
        *(f"- {loss}" for loss in done.losses),
        "",
    ]
    return "\n".join(lines)
