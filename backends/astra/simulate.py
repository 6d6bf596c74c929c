"""ASTRA-sim on input files: checked before the run, mended where it must be, run apart, judged, and read."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from backends.astra.cautions import cautions, check_flags
from backends.astra.driver import AstraRun, drive
from backends.astra.mending import without_lone_collectives
from backends.astra.ns3_files import link_bytes
from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Engine, Program
from backends.astra.spans import figures, spans_of
from backends.astra.staging import RunFiles
from backends.exchange.chakra import write_trace
from backends.exchange.execution import Span
from backends.exchange.inputs import AstraInputs, load_inputs, trace_path
from backends.exchange.ns3_config import Ns3Config, rates_gbps, stock_config, write_ns3_config
from backends.exchange.validate import Finding, check
from backends.network.parameters import CongestionControl
from backends.timeline import StepFigures
from runs.errors import BadInputError

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
    `spans` hold what each rank did; `missing` counts nodes that the log does not have, because it keeps its last
    110 MiB only: above zero there is no timeline.
    """

    run: AstraRun
    inputs: AstraInputs
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...]
    spans: list[list[Span]] = field(default_factory=list)
    missing: int = 0

    @property
    def backend(self) -> str:
        """`astra-sim` or `astra-sim-ns3`."""
        return NS3 if self.run.engine == "ns3" else ANALYTICAL

    @property
    def has_timeline(self) -> bool:
        """Whether the times of every node are known."""
        return bool(self.spans) and not self.missing

    @cached_property
    def figures(self) -> tuple[StepFigures, ...]:
        """The figures of each rank, empty without a timeline."""
        return tuple(figures(mine, self.run.wall_ns) for mine in self.spans) if self.has_timeline else ()

    @cached_property
    def slowest(self) -> int:
        """The rank that finishes last; of several the one with most work."""
        if not self.figures:
            return max(self.run.reports, key=lambda rank: self.run.reports[rank].finished_ns or 0)
        ends = [max((span.end for span in mine), default=0) for mine in self.spans]
        return max(range(len(ends)), key=lambda r: (ends[r], self.figures[r].compute_s + self.figures[r].exposed_s))

    @property
    def links(self) -> dict[str, float]:
        """Bytes that crossed each link, where ns-3 recorded them."""
        return link_bytes(self.run.network, self.inputs.topology) if self.run.network else {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that must be said with the figures."""
        lost = "the log lost its beginning: there is no timeline, and exposed time and bubble are unknown"
        return (
            *(str(one) for one in self.findings), *self.cautions, *self.run.verdict.notes,
            *([lost] if self.spans and self.missing else []),
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """The figures of the slowest rank as plain data, in whole ns; None where the program did not tell."""
        report = self.run.reports[self.slowest]
        known = self.figures[self.slowest] if self.figures else None
        own = {"compute": report.compute_ns or 0, "comm": report.comm_ns or 0, "exposed": None, "bubble": None}
        times = {name: round(1e9 * getattr(known, f"{name}_s")) for name in own} if known else own
        network = self.run.network.as_dict() if self.run.network else None
        return {
            "wall_ns": self.run.wall_ns, **{f"{name}_ns": value for name, value in times.items()}, "memory": {},
            "backend": self.backend, "version": self.run.version, "calibration": "none", "links": self.links,
            "engine": self.run.engine, "notes": list(self.notes), "network": network,
        }  # fmt: skip


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
    findings = _checked(inputs, program.backend, chosen)
    with tempfile.TemporaryDirectory(prefix="ccl-astra-in-") as scratch:
        files, used, gone = _prepared(inputs, paths, Path(scratch))
        run = drive(files, program, chosen, limits, operations, keep)
    run.require()
    said = cautions(used, chosen, paths.flags)
    if gone:
        said = (f"{gone} collectives of a single rank, which ASTRA-sim never ends, were taken out", *said)
    spans, missing = spans_of(used, run.operations) if operations else ([], 0)
    return AstraResult(run, used, findings, said, spans, missing)


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


def _prepared(inputs: AstraInputs, paths: InputPaths, scratch: Path) -> tuple[RunFiles, AstraInputs, int]:
    """The files to run, with mended traces and an ns-3 configuration where needed; the inputs they hold."""
    changed, gone = without_lone_collectives(inputs)
    traces = tuple(changed.get(rank, trace) for rank, trace in enumerate(inputs.traces))
    if any(not trace.nodes for trace in traces):
        rank = next(rank for rank, trace in enumerate(traces) if not trace.nodes)
        raise BadInputError(
            f"{inputs.trace_path(rank)}: nothing but collectives of a single rank", "give the rank some work"
        )
    for rank, trace in changed.items():
        write_trace(trace_path(scratch / paths.et_prefix.name, rank), trace)
    config = _configuration(inputs, paths)
    network = paths.network or scratch / "ns3-config.txt"
    if config is not None:
        write_ns3_config(network, config)
    files = RunFiles(
        paths.et_prefix, inputs.ranks, paths.system, network,
        paths.physical, inputs.dims, paths.comm_group, paths.remote_memory, paths.flags,
        replaced=_replaced(scratch / paths.et_prefix.name, changed),
    )  # fmt: skip
    return files, replace(inputs, traces=traces, ns3=config), gone


def _replaced(prefix: Path, changed: Mapping[int, object]) -> dict[int, Path]:
    return {rank: trace_path(prefix, rank) for rank in changed}


def _configuration(inputs: AstraInputs, paths: InputPaths) -> Ns3Config | None:
    """The configuration of ns-3: the given one, else the stock one with a threshold for each rate."""
    if not inputs.is_ns3 or inputs.ns3 is not None:
        return inputs.ns3
    return stock_config("physical.txt", rates_gbps(inputs.topology), paths.congestion_control, paths.payload_bytes)
