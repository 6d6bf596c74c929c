"""From a simulated step to Chakra traces: every rank of every class, groups, and an order that cannot deadlock.

ASTRA-sim runs one communication of a rank at a time. Streams that overlap in the simulated step are therefore put into
one order, that of their starts, which is the same on all ranks; every send and collective of a rank also depends on
the one before it. The first communication of that order that is not over can always go on, so nothing waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from backends.exchange.chakra import CommKind, EtNode, ExecutionTrace, NodeKind
from backends.exchange.values import Value, boolean, int32, int64, string, uint64
from backends.layout import Groups
from backends.ops import Communication, Compute, Item, Transfer
from backends.timeline import Piece, RankTimeline, SimulationResult, TaskRun

COMM_KINDS = {
    "all_reduce": CommKind.ALL_REDUCE,
    "all_gather": CommKind.ALL_GATHER,
    "broadcast": CommKind.BROADCAST,
    "all_to_all": CommKind.ALL_TO_ALL,
    "reduce_scatter": CommKind.REDUCE_SCATTER,
}


@dataclass
class Draft:
    """A node of every rank of a class. `ns` is how long work keeps the stream, launch gaps included.

    `order` is (start, task, place), equal on all ranks of a communication. `deps` are places in the class's drafts.
    """

    name: str
    order: tuple[int, int, int]
    ns: int = 0
    flops: float = 0.0
    nbytes: float = 0.0
    item: Communication | None = None
    groups: Groups = ()
    deps: list[int] = field(default_factory=list)
    behind: int | None = None
    """The communication before it in the rank's order."""


@dataclass(frozen=True)
class ClassDraft:
    """The nodes of one class of ranks, in the order of their starts."""

    ranks: tuple[int, ...]
    nodes: list[Draft]


@dataclass(frozen=True)
class Workload:
    """Traces in rank order and the groups they name."""

    traces: tuple[ExecutionTrace, ...]
    groups: dict[str, tuple[int, ...]]


def draft(result: SimulationResult, kernels: bool = False) -> list[ClassDraft]:
    """The nodes of every class of `result`, which must show every kernel (detail `kernel`).

    Kernels between two communications become one node unless `kernels` is set.
    """
    return [_Drafting(timeline, kernels).run() for timeline in result.timelines]


class _Drafting:
    def __init__(self, timeline: RankTimeline, kernels: bool) -> None:
        self._timeline, self._kernels = timeline, kernels
        self._nodes: list[Draft] = []
        self._ends: dict[int, list[int]] = {}

    def run(self) -> ClassDraft:
        # a task can wait for one with a higher index, a message of the backward pass: order them by their times
        for run in sorted(self._timeline.runs, key=lambda run: (run.start, run.end, run.task.index)):
            self._task(run)
        return ClassDraft(self._timeline.represents, self._sorted())

    def _task(self, run: TaskRun) -> None:
        """A task's nodes in a row; a task without any hands on what it waits for."""
        waits = [end for dep in run.task.deps for end in self._ends.get(dep, ())]
        before = sorted(set(waits))
        for node in self._parts(run):
            node.deps = before
            self._nodes.append(node)
            before = [len(self._nodes) - 1]
        self._ends[run.task.index] = before

    def _parts(self, run: TaskRun) -> Iterator[Draft]:
        timed = list(pieces_of(run))
        starts = [start for start, _ in timed[1:]] + [run.end]
        work: Draft | None = None
        for place, ((start, piece), following) in enumerate(zip(timed, starts, strict=True)):
            order = (start, run.task.index, place)
            if isinstance(piece.item, Communication):
                if work is not None:
                    yield work
                work = None
                yield Draft(piece.item.name, order, item=piece.item, groups=piece.groups)
                continue
            took = max(piece.duration, following - (run.start if place == 0 else start))
            if work is None or self._kernels:
                if work is not None:
                    yield work
                work = Draft(piece.name, order)
            work.ns += took
            _add(work, piece.item)
        if work is not None:
            yield work

    def _sorted(self) -> list[Draft]:
        """Nodes by start, with the chain of communications."""
        places = sorted(range(len(self._nodes)), key=lambda place: self._nodes[place].order)
        now = {place: at for at, place in enumerate(places)}
        nodes = [self._nodes[place] for place in places]
        last: int | None = None
        for at, node in enumerate(nodes):
            node.deps = sorted(now[dep] for dep in node.deps)
            if node.item is not None and (node.item.kind != "send_recv" or self._sends(node)):
                node.behind, last = last, at
        return nodes

    def _sends(self, node: Draft) -> bool:
        first = self._timeline.represents[0]
        return any(group[0] == first for group in node.groups)


def pieces_of(run: TaskRun) -> Iterator[tuple[int, Piece]]:
    """The pieces of a task with their starts, ns from the start of the step."""
    for repeated in run.runs:
        for turn in range(repeated.times):
            base = run.start + repeated.offset + turn * repeated.stride
            for piece in repeated.pieces:
                yield base + piece.start, piece


def _add(node: Draft, item: Item) -> None:
    if isinstance(item, Compute):
        node.flops += item.flops
        node.nbytes += item.nbytes
    elif isinstance(item, Transfer):
        node.nbytes += item.nbytes


def workload(drafts: Sequence[ClassDraft]) -> Workload:
    """One trace for each rank of each class; ranks share the nodes in which they do not differ.

    A collective of all ranks has no group's name only where there are no others: ASTRA-sim numbers nameless ones by how
    many collectives of any group their rank has begun, and stages of a pipeline differ in that.
    """
    world = sorted(rank for one in drafts for rank in one.ranks)
    nodes = [node for one in drafts for node in one.nodes if node.item is not None and node.item.kind != "send_recv"]
    nameless = len(world) if all(len(group) == len(world) for node in nodes for group in node.groups) else 0
    names: dict[tuple[int, ...], str] = {}
    traces = {}
    for one in drafts:
        shared: _Shared = {}
        for rank in one.ranks:
            traces[rank] = _trace(one, rank, nameless, names, shared)
    return Workload(tuple(traces[rank] for rank in world), {name: members for members, name in names.items()})


_Shared = dict[tuple[int, tuple[int, ...]], EtNode]
"""Nodes by place and members: a computation has none, a message has its two ends and the rank."""


def _trace(
    one: ClassDraft, rank: int, nameless: int, names: dict[tuple[int, ...], str], shared: _Shared
) -> ExecutionTrace:
    nodes: list[EtNode] = []
    owed = 0.0
    for place, node in enumerate(one.nodes):
        key = (place, _key(node, rank))
        if node.item is None:
            owed += node.ns / 1000
            micros = max(1, round(owed))
            owed -= micros
            if key not in shared:
                shared[key] = _work(place, node, micros)
        elif key not in shared:
            shared[key] = EtNode(**_common(place, node), **_communication(node, rank, nameless, names))
        nodes.append(shared[key])
    return ExecutionTrace(nodes=tuple(nodes))


def _key(node: Draft, rank: int) -> tuple[int, ...]:
    if node.item is None:
        return ()
    members = next(group for group in node.groups if rank in group)
    return (*members, rank) if node.item.kind == "send_recv" else members


def _common(place: int, node: Draft) -> dict[str, Any]:
    behind = () if node.behind is None or node.behind in node.deps else (node.behind,)
    return {"id": place, "name": node.name, "data_deps": tuple(node.deps), "ctrl_deps": behind}


def _work(place: int, node: Draft, micros: int) -> EtNode:
    sizes = {"num_ops": int64(max(1, round(node.flops))), "tensor_size": uint64(max(1, round(node.nbytes)))}
    attributes = {"is_cpu_op": boolean(False), **sizes}
    return EtNode(**_common(place, node), kind=NodeKind.COMP, attributes=attributes, duration_micros=micros)


def _communication(node: Draft, rank: int, nameless: int, names: dict[tuple[int, ...], str]) -> dict[str, Any]:
    item = node.item
    assert item is not None
    members = next(group for group in node.groups if rank in group)
    attributes: dict[str, Value] = {"is_cpu_op": boolean(False)}
    if item.kind == "send_recv":
        ends = {"comm_src": int32(members[0]), "comm_dst": int32(members[1])}
        kind = NodeKind.COMM_SEND if rank == members[0] else NodeKind.COMM_RECV
        attributes |= {**ends, "comm_size": int64(ceil(item.nbytes)), "comm_tag": int32(_tag(node))}
        return {"kind": kind, "attributes": attributes}
    attributes |= {
        "comm_type": int64(COMM_KINDS[item.kind]),
        "comm_size": int64(comm_size(item, len(members))),
    }
    if len(members) != nameless:
        attributes["pg_name"] = string(names.setdefault(members, str(len(names) + 1)))
    return {"kind": NodeKind.COMM_COLL, "attributes": attributes}


def comm_size(item: Communication, ranks: int) -> int:
    """The size as ASTRA-sim counts it: the share of a rank for an all-gather, else its whole buffer.

    At least a byte for each rank, as ASTRA-sim rounds up itself.
    """
    return max(1, ceil(item.nbytes / ranks)) if item.kind == "all_gather" else max(ranks, ceil(item.nbytes))


def _tag(node: Draft) -> int:
    """The same on both sides, another for each message of a step."""
    _, task, place = node.order
    return task * 64 + place
