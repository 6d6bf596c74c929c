"""Traces on the built-in `flow` simulator: the figures of a run as the step simulator gives them, and its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.exchange.execution import Execution, Span
from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, MessageCall
from backends.exchange.traffic import NetworkTransport
from backends.exchange.validate import Finding, examine, require
from backends.network.parameters import CongestionControl
from runs.errors import CclSearchError

BACKEND = "flow"
VERSION = "1"
Interval = tuple[int, int]


@dataclass(frozen=True)
class RankFigures:
    """One rank in ns: unions of intervals.

    wall = compute + exposed + bubble + idle. compute: device work. comm: transfers under way. exposed: those that no
    work of the rank (device or host) hides. bubble: nothing of the rank moves or works, and it waits for another rank.
    idle: the rest (remote memory, host work, waits for the rank itself). `operations`: communication nodes from
    issue to end, what ASTRA-sim prints as `Comm time`.
    """

    wall: int
    compute: int
    comm: int
    exposed: int
    bubble: int
    operations: int


@dataclass(frozen=True)
class RawResult:
    """What running traces gave: spans and figures of every rank, bytes on each link, and what was remarkable.

    `backend` and `version` ran them; `notes` and `network` (queues, flows, pauses) are what that one has to say.
    """

    inputs: AstraInputs
    spans: tuple[tuple[Span, ...], ...]
    figures: tuple[RankFigures, ...]
    links: Mapping[str, float]
    findings: tuple[Finding, ...]
    congestion_control: str
    memory: Mapping[str, int] = field(default_factory=dict)
    backend: str = BACKEND
    version: str = VERSION
    notes: tuple[str, ...] = ()
    network: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slowest(self) -> int:
        """The rank that ends last; of several the one that works and communicates most."""
        return max(
            range(len(self.figures)),
            key=lambda rank: (self.figures[rank].wall, self.figures[rank].compute + self.figures[rank].exposed, -rank),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: ns of the slowest rank, bytes on each link."""
        own = self.figures[self.slowest]
        return {
            "wall_ns": own.wall,
            "compute_ns": own.compute,
            "comm_ns": own.comm,
            "exposed_ns": own.exposed,
            "bubble_ns": own.bubble,
            "comm_operations_ns": own.operations,
            "memory": dict(self.memory),
            "backend": self.backend,
            "version": self.version,
            "congestion_control": self.congestion_control,
            "links": dict(self.links),
            "slowest_rank": self.slowest,
            "ranks": self.inputs.ranks,
            "notes": [*(f"{one.severity}: {one}" for one in self.findings), *self.notes],
            **({"network": dict(self.network)} if self.network else {}),
        }


def run(inputs: AstraInputs, control: CongestionControl | None = None) -> RawResult:
    """Run the traces of all ranks on the network model.

    Raises:
        BadInputError: the inputs cannot be run; names file, node and reason.
        CclSearchError: the run took no time at all.
    """
    calls, findings = examine(inputs, rehearse=False)
    require(findings)
    transport = NetworkTransport(inputs, control)
    spans = Execution(inputs, calls, transport).run()
    figures = tuple(figures_of(mine) for mine in spans)
    if not any(one.wall for one in figures):
        raise CclSearchError(f"{inputs.prefix}: the run takes no time", "the nodes of the traces have sizes of zero")
    links = {inputs.topology.link_label(link): amount for link, amount in sorted(transport.link_bytes.items())}
    shown = tuple(one for one in findings if one.tool in ("", BACKEND))
    name = transport.model.parameters.congestion_control.value
    return RawResult(inputs, tuple(map(tuple, spans)), figures, links, shown, name)


def figures_of(spans: Iterable[Span]) -> RankFigures:
    """The figures of a rank from its spans."""
    work: list[Interval] = []
    other: list[Interval] = []
    moving: list[Interval] = []
    waits: list[Interval] = []
    wall = 0
    for span in spans:
        wall = max(wall, span.end)
        if isinstance(span.what, CollectiveCall | MessageCall):
            moving.append((span.moving, span.end))
            waits.append((span.start, span.end))
        else:
            is_compute = getattr(span.what, "unit", "memory") == "gpu"
            (work if is_compute else other).append((span.start, span.end))
    compute = length(work)
    busy = length([*work, *moving])
    engaged = length([*work, *moving, *other])
    return RankFigures(
        wall=wall,
        compute=compute,
        comm=length(moving),
        exposed=busy - compute,
        bubble=length([*work, *moving, *other, *waits]) - engaged,
        operations=length(waits),
    )


def length(intervals: list[Interval]) -> int:
    """The length of the union of intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
