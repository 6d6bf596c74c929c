"""ASTRA-sim on input files: checked before the run, mended where it must be, run apart, judged, and read."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from backends.astra.cautions import cautions, check_flags
from backends.astra.driver import AstraRun, drive
from backends.astra.mending import with_world_named, without_lone_collectives
from backends.astra.ns3_files import link_bytes
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Engine, Program
from backends.astra.spans import spans_of
from backends.astra.staging import RunFiles
from backends.exchange.chakra import ExecutionTrace, write_trace
from backends.exchange.execution import Span
from backends.exchange.inputs import AstraInputs, load_inputs, trace_path
from backends.exchange.ns3_config import Ns3Config, rates_gbps, stock_config, write_ns3_config
from backends.exchange.raw import RawResult, figures_of
from backends.exchange.settings import write_groups
from backends.exchange.validate import Finding, check
from backends.network.parameters import CongestionControl
from runs.errors import BadInputError, CclSearchError

PAYLOAD_BYTES = 1000
"""Of an ns-3 packet, where no configuration says."""


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
    """

    run: AstraRun
    inputs: AstraInputs
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...] = ()
    missing: int = 0

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
            network=self.run.network.as_dict() if self.run.network else {},
        )  # fmt: skip


def simulate_files(
    paths: InputPaths, program: Program, *, engine: Engine | None = None, limits: Limits | None = None,
    operations: bool = True, keep: Path | None = None,
) -> AstraResult:  # fmt: skip
    """Run ASTRA-sim on input files.

    `engine` chooses between the two analytical programs: None takes the congestion-aware one for a network of one
    dimension and the other for several, which is all the first one cannot do. `operations` has every node timed.

    Raises:
        BadInputError: the files are malformed or would crash, hang or quietly mislead the program.
        TargetUnavailableError: the program is not there or cannot be started.
        CclSearchError: the run has no result; the message has the reason and the nodes that hung.
        OSError: the run folder cannot be written.
    """
    check_flags(paths.flags)
    inputs = paths.load()
    return simulate_inputs(inputs, paths, program, engine=engine, limits=limits, operations=operations, keep=keep)


def simulate_inputs(
    inputs: AstraInputs, paths: InputPaths, program: Program, *, engine: Engine | None = None,
    limits: Limits | None = None, operations: bool = True, keep: Path | None = None,
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
    findings = _checked(inputs, program.backend, chosen)
    mended = _mended(inputs)
    with tempfile.TemporaryDirectory(prefix="ccl-astra-in-") as scratch:
        files, used = _prepared(inputs, mended, paths, Path(scratch))
        run = drive(files, program, chosen, limits, operations, keep)
    run.require()
    said = (*mended.notes, *cautions(used, chosen, paths.flags))
    spans, missing = spans_of(used, run.operations) if operations else ([], 0)
    return AstraResult(run, used, findings, said, tuple(map(tuple, spans)), missing)


def _checked(inputs: AstraInputs, backend: str, engine: Engine) -> tuple[Finding, ...]:
    """What the checks say to this backend, errors refused."""
    if engine == "aware" and len(inputs.dims) > 1:
        raise BadInputError(
            f"{inputs.topology.name}: {len(inputs.dims)} dimensions, the congestion-aware program takes one",
            "take the congestion-unaware program, which knows no contention, or flatten the network",
        )
    found = tuple(one for one in check(inputs) if one.tool in ("", backend))
    for one in found:
        if one.severity == "error":
            raise BadInputError(str(one), one.hint)
    return found


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
