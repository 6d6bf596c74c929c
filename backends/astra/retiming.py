"""A simulated step with the times that ASTRA-sim found: the same tasks and kernels, on its timeline.

The traces that went to ASTRA-sim came from a step of the built-in simulator, whose kernels between two communications
are one node there. Each node is laid back over its pieces; a node that took longer or shorter stretches its pieces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backends.exchange.drafting import ClassDraft, Draft
from backends.exchange.execution import Span
from backends.flow.accounting import rank_timelines
from backends.graph import ExecutionGraph, RankClass
from backends.timeline import Piece, RankTimeline, Repeated, SimulationResult, TaskRun

MOST_TIMELINES = 64
"""Above so many different timelines only the slowest rank of each class is kept."""


@dataclass(frozen=True)
class Retimed:
    """`graph` is that of the step, its classes split by the times of their ranks. `dropped` counts those left out."""

    graph: ExecutionGraph
    timelines: tuple[RankTimeline, ...]
    dropped: int = 0


def retimed(
    result: SimulationResult, drafts: Sequence[ClassDraft], spans: Sequence[Sequence[Span]], overhead_ns: int = 0
) -> Retimed:
    """`result` on the times of `spans` (rank by rank). `drafts` are those the traces were written from.

    A node's number in a trace is its place in the draft of the rank's class.
    """
    parts = [(place, ranks) for place, one in enumerate(drafts) for ranks in _alike(one.ranks, spans)]
    dropped = 0
    if len(parts) > MOST_TIMELINES:
        dropped = len(parts) - len(drafts)
        parts = [(place, (_slowest(one.ranks, spans), *_others(one.ranks, spans))) for place, one in enumerate(drafts)]
    classes, runs = list[RankClass](), list[TaskRun]()
    for index, (place, ranks) in enumerate(parts):
        own = result.timelines[place]
        classes.append(RankClass(index, own.rank_class.stage, ranks))
        runs += _runs(own, drafts[place], spans[ranks[0]], index)
    graph = replace(result.graph, classes=tuple(classes))
    return Retimed(graph, rank_timelines(graph, runs, overhead_ns), dropped)


def _alike(ranks: Sequence[int], spans: Sequence[Sequence[Span]]) -> Iterator[tuple[int, ...]]:
    """Ranks of a class by their times."""
    found: dict[tuple[tuple[int, int, int], ...], list[int]] = defaultdict(list)
    for rank in ranks:
        found[tuple((one.node.id, one.moving, one.end) for one in spans[rank])].append(rank)
    yield from map(tuple, found.values())


def _slowest(ranks: Sequence[int], spans: Sequence[Sequence[Span]]) -> int:
    return max(ranks, key=lambda rank: max((one.end for one in spans[rank]), default=0))


def _others(ranks: Sequence[int], spans: Sequence[Sequence[Span]]) -> list[int]:
    return [rank for rank in ranks if rank != _slowest(ranks, spans)]


def _runs(own: RankTimeline, draft: ClassDraft, spans: Sequence[Span], index: int) -> Iterator[TaskRun]:
    """The tasks of one class on the times of one of its ranks, as runs of class `index`."""
    times = {one.node.id: (one.moving, one.end) for one in spans}
    nodes: dict[int, list[tuple[Draft, tuple[int, int]]]] = defaultdict(list)
    for number, node in enumerate(draft.nodes):
        nodes[node.order[1]].append((node, times[number]))
    for run in own.runs:
        found = sorted(nodes.get(run.task.index, ()), key=lambda one: one[0].order[2])
        if found:
            yield _run(run, found, index)


def _run(run: TaskRun, nodes: list[tuple[Draft, tuple[int, int]]], index: int) -> TaskRun:
    start, end = min(at for _, (at, _) in nodes), max(end for _, (_, end) in nodes)
    timed = list(run.pieces())
    stops = [node.order[2] for node, _ in nodes[1:]] + [len(timed)]
    pieces: list[Piece] = []
    for (node, (begun, ended)), stop in zip(nodes, stops, strict=True):
        own = timed[node.order[2] : stop]
        if node.item is not None:
            pieces.append(replace(own[0][1], start=begun - start, duration=ended - begun))
            continue
        stretch = (ended - begun) / node.ns if node.ns else 1.0
        pieces += [_stretched(piece, at - node.order[0], stretch, begun - start) for at, piece in own]
    return TaskRun(replace(run.task, classes=(index,)), start, end, (Repeated(0, tuple(pieces)),))


def _stretched(piece: Piece, offset: int, stretch: float, begun: int) -> Piece:
    return replace(piece, start=begun + round(offset * stretch), duration=max(1, round(piece.duration * stretch)))
