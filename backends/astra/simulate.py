"""ASTRA-sim on input files: checked before the run, mended where it must be, run apart, judged, and read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from backends.astra.cautions import cautions, check_flags
from backends.astra.cost import Cost, duration, estimate
from backends.astra.driver import AstraRun, drive
from backends.astra.mending import with_world_named, without_lone_collectives
from backends.astra.ns3_files import link_bytes
from backends.astra.probe import speed_of
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Engine, Program
from backends.astra.spans import spans_of
from backends.astra.staging import RunFiles
from backends.exchange.chakra import ExecutionTrace, write_trace
from backends.exchange.execution import Calls, Span
from backends.exchange.inputs import AstraInputs, load_inputs, trace_path
from backends.exchange.ns3_config import Ns3Config, rates_gbps, stock_config, write_ns3_config
from backends.exchange.raw import RawResult, figures_of
from backends.exchange.settings import write_groups
from backends.exchange.validate import Finding, examine
from backends.network.parameters import CongestionControl
from runs.errors import BadInputError, BudgetExhaustedError, CclSearchError

PAYLOAD_BYTES = 1000
"""Of an ns-3 packet, where no configuration says."""
PROBED_ABOVE_S = 20.0
"""A run that a stock build would need longer for is reckoned with the speed of the program itself."""
Announce = Callable[[Cost], None]


class CostError(BudgetExhaustedError):
    """A run on ns-3 that would take longer than its limit, and was not started."""

    timed_out = True

    def __init__(self, cost: Cost, limit_s: float) -> None:
        super().__init__(
            f"ns-3 would take {cost}, the limit is {duration(limit_s)}: it was not started",
            f"allow {ceil(cost.seconds)} s and more (--time-limit, time_limit_s of a target file), raise "
            "PACKET_PAYLOAD_SIZE, take fewer layers or a smaller batch, or --backend flow",
        )
        self.cost = cost


@dataclass(frozen=True)
class InputPaths:
    """The files of a run, as `backends.exchange.load_inputs` names them.

    `congestion_control` and `payload_bytes` are for ns-3 without an `ns3_config`. `flags` go to the program.
    """

    et_prefix: Path
    system: Path
    network: Path | None = None
    physical: Path | None = None
    comm_group: Path | None = None
    remote_memory: Path | None = None
    logical: Path | None = None
    ns3_config: Path | None = None
    congestion_control: CongestionControl = CongestionControl.NONE
    payload_bytes: int = PAYLOAD_BYTES
    flags: tuple[str, ...] = ()

    @property
    def backend(self) -> str:
        """The backend these files are for."""
        return ANALYTICAL if self.network is not None else NS3

    def load(self) -> AstraInputs:
        """Read them.

        Raises:
            BadInputError: see `backends.exchange.load_inputs`.
        """
        return load_inputs(
            self.et_prefix, self.system, network=self.network, physical=self.physical, comm_group=self.comm_group,
            remote_memory=self.remote_memory, logical=self.logical, ns3_config=self.ns3_config,
        )  # fmt: skip


@dataclass(frozen=True)
class AstraResult:
    """An accepted run with what must be said about it.

    `findings` are the warnings and notes of the checks before, `cautions` what is known to mislead in such a run.
    `spans` hold what each rank did; `missing` counts nodes that the log does not have: above zero there is no timeline.
    `cost` is what ns-3 was expected to take.
    """

    run: AstraRun
    inputs: AstraInputs
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...] = ()
    missing: int = 0
    cost: Cost | None = None

    @property
    def backend(self) -> str:
        """`astra-sim` or `astra-sim-ns3`."""
        return NS3 if self.run.engine == "ns3" else ANALYTICAL

    @property
    def links(self) -> dict[str, float]:
        """Bytes that crossed each link, where ns-3 recorded them."""
        return link_bytes(self.run.network, self.inputs.topology) if self.run.network else {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that must be said with the figures."""
        return (*(str(one) for one in self.findings), *self.cautions, *self.run.verdict.notes)

    @property
    def network(self) -> dict[str, Any]:
        """What ns-3 recorded, and its processor time as expected (`cost`) and as it was; empty on other programs."""
        if self.run.network is None:
            return {}
        cost = self.cost.as_dict() if self.cost else {}
        return {**self.run.network.as_dict(), "cost": {**cost, "seconds": self.run.ended.cpu_seconds}}

    def require_timeline(self) -> None:
        """Return if it is known what each rank did.

        Raises:
            CclSearchError: the log lacks nodes.
        """
        if self.missing or not self.spans:
            raise CclSearchError(
                f"the run took {self.run.wall_ns} ns, but its log lacks {self.missing} nodes: there is no timeline",
                "the program dropped the beginning of its log; use a newer one, which takes --logging-configuration",
            )

    def raw(self) -> RawResult:
        """Spans, figures of every rank, links and notes, as the built-in simulator gives them for such inputs.

        Raises:
            CclSearchError: see `require_timeline`.
        """
        self.require_timeline()
        config = self.inputs.ns3
        return RawResult(
            self.inputs, self.spans, tuple(figures_of(mine) for mine in self.spans), self.links, self.findings,
            config.congestion_control.value if config else "none", backend=self.backend, version=self.run.version,
            notes=(*self.cautions, *self.run.verdict.notes),
            network=self.network,
        )  # fmt: skip


def simulate_files(
    paths: InputPaths, program: Program, *, engine: Engine | None = None, limits: Limits | None = None,
    operations: bool = True, keep: Path | None = None, announce: Announce | None = None,
) -> AstraResult:  # fmt: skip
    """Run ASTRA-sim on input files.

    `engine` chooses between the two analytical programs: None takes the congestion-aware one for a network of one
    dimension and the other for several, which is all the first one cannot do. `operations` has every node timed.
    `announce` hears what a run on ns-3 will cost before it starts.

    Raises:
        BadInputError: the files are malformed or would crash, hang or quietly mislead the program.
        CostError: ns-3 would take longer than the limit.
        TargetUnavailableError: the program is not there or cannot be started.
        CclSearchError: the run has no result; the message has the reason and the nodes that hung.
        OSError: the run folder cannot be written.
    """
    check_flags(paths.flags)
    inputs = paths.load()
    return simulate_inputs(
        inputs, paths, program, engine=engine, limits=limits, operations=operations, keep=keep, announce=announce
    )


def simulate_inputs(
    inputs: AstraInputs, paths: InputPaths, program: Program, *, engine: Engine | None = None,
    limits: Limits | None = None, operations: bool = True, keep: Path | None = None, announce: Announce | None = None,
) -> AstraResult:  # fmt: skip
    """`simulate_files` with inputs that have been read from `paths` already."""
    if program.backend != paths.backend:
        raise BadInputError(f"the files are for {paths.backend}, not {program.backend}", f"--backend {paths.backend}")
    chosen = program.engine(engine or ("ns3" if inputs.is_ns3 else "aware" if len(inputs.dims) == 1 else "unaware"))
    if engine is not None and chosen != engine:
        raise BadInputError(
            f"{program.source} names the congestion-{chosen} program, congestion-{engine} is asked for",
            "name the folder that holds both programs",
        )
    limits = limits or Limits()
    calls, findings = _checked(inputs, program.backend, chosen)
    mended = _mended(inputs)
    with tempfile.TemporaryDirectory(prefix="ccl-astra-in-") as scratch:
        files, used = _prepared(inputs, mended, paths, Path(scratch))
        cost = _expected(used, calls, program, limits, announce) if chosen == "ns3" else None
        run = drive(files, program, chosen, limits, operations, keep)
    run.require()
    said = (*mended.notes, *cautions(used, chosen, paths.flags))
    spans, missing = spans_of(used, run.operations) if operations else ([], 0)
    return AstraResult(run, used, findings, said, tuple(map(tuple, spans)), missing, cost)


def _expected(
    inputs: AstraInputs, calls: Calls, program: Program, limits: Limits, announce: Announce | None
) -> Cost:  # fmt: skip
    """What the run will cost, announced; a long one is reckoned with the program's own speed.

    Raises:
        CostError: it is more than the limit.
    """
    assert inputs.ns3 is not None
    payload = inputs.ns3.payload_bytes
    cost = estimate(inputs, calls, payload)
    if cost.seconds > min(PROBED_ABOVE_S, limits.wall_s / 3):
        cost = estimate(inputs, calls, payload, speed_of(program))
    if cost.seconds > limits.wall_s:
        raise CostError(cost, limits.wall_s)
    if announce is not None:
        announce(cost)
    return cost


def _checked(inputs: AstraInputs, backend: str, engine: Engine) -> tuple[Calls, tuple[Finding, ...]]:
    """What every node does, and what the checks say to this backend, errors refused."""
    if engine == "aware" and len(inputs.dims) > 1:
        raise BadInputError(
            f"{inputs.topology.name}: {len(inputs.dims)} dimensions, the congestion-aware program takes one",
            "take the congestion-unaware program, which knows no contention, or flatten the network",
        )
    calls, findings = examine(inputs)
    found = tuple(one for one in findings if one.tool in ("", backend))
    for one in found:
        if one.severity == "error":
            raise BadInputError(str(one), one.hint)
    return calls, found


@dataclass(frozen=True)
class _Mended:
    """Traces that had to change, by rank, the groups they name, and what was done."""

    traces: dict[int, ExecutionTrace]
    groups: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]


def _mended(inputs: AstraInputs) -> _Mended:
    """The traces as ASTRA-sim can end them.

    Raises:
        BadInputError: a rank has nothing but collectives of its own.
    """
    changed, gone = without_lone_collectives(inputs)
    traces = tuple(changed.get(rank, trace) for rank, trace in enumerate(inputs.traces))
    for rank, trace in enumerate(traces):
        if not trace.nodes:
            where = inputs.trace_path(rank)
            raise BadInputError(f"{where}: nothing but collectives of a single rank", "give the rank some work")
    named, group = with_world_named(inputs, traces)
    notes = [f"{gone} collectives of a single rank, which ASTRA-sim never ends, were taken out"] if gone else []
    if group:
        notes.append("collectives of all ranks were given a group: beside others ASTRA-sim would never end them")
    groups = {**inputs.groups, **({group: tuple(range(inputs.ranks))} if group else {})}
    return _Mended({**changed, **named}, groups, tuple(notes))


def _prepared(
    inputs: AstraInputs, mended: _Mended, paths: InputPaths, scratch: Path
) -> tuple[RunFiles, AstraInputs]:  # fmt: skip
    """The files to run, with mended traces and an ns-3 configuration where needed; the inputs they hold."""
    prefix = scratch / paths.et_prefix.name
    replaced = {rank: trace_path(prefix, rank) for rank in mended.traces}
    for rank, trace in mended.traces.items():
        write_trace(replaced[rank], trace)
    config = _configuration(inputs, paths)
    network = paths.network or scratch / "ns3-config.txt"
    if config is not None:
        write_ns3_config(network, config)
    groups = paths.comm_group
    if mended.groups != inputs.groups:
        groups = scratch / "groups.json"
        write_groups(groups, mended.groups)
    files = RunFiles(
        paths.et_prefix, inputs.ranks, paths.system, network, paths.physical, inputs.dims, groups,
        paths.remote_memory, paths.flags, replaced,
    )  # fmt: skip
    traces = tuple(mended.traces.get(rank, trace) for rank, trace in enumerate(inputs.traces))
    return files, replace(inputs, traces=traces, ns3=config, groups=mended.groups)


def _configuration(inputs: AstraInputs, paths: InputPaths) -> Ns3Config | None:
    """The configuration of ns-3: the given one, else the stock one with a threshold for each rate."""
    if not inputs.is_ns3 or inputs.ns3 is not None:
        return inputs.ns3
    return stock_config("physical.txt", rates_gbps(inputs.topology), paths.congestion_control, paths.payload_bytes)
