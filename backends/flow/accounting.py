"""Figures of a timeline: unions of intervals per step, so that they equal what metrics read from its trace."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from backends.flow.timing import SegmentTimer
from backends.graph import COMPUTE, ExecutionGraph, RankClass, Task
from backends.parts import run_lengths
from backends.timeline import RankTimeline, Repeated, StepFigures, TaskRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHATS = ("compute", "communication", "copy")


def union_ns(intervals: NDArray[Any]) -> int:
    """Total length covered by `intervals`, shape (n, 2), ns."""
    import numpy as np

    if not len(intervals):
        return 0
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ordered[:, 1])
    before = np.concatenate(([ordered[0, 0]], reach[:-1]))
    return int(np.maximum(reach - np.maximum(ordered[:, 0], before), 0).sum())


class _Intervals:
    """Intervals of a task's pieces as arrays, kept per tuple of runs: passes repeat many times."""

    def __init__(self) -> None:
        self._memo: dict[int, dict[str, NDArray[Any]]] = {}

    def of(self, runs: tuple[Repeated, ...]) -> dict[str, NDArray[Any]]:
        """The intervals of each kind of piece, from the task's start, shape (n, 2), ns."""
        import numpy as np

        found = self._memo.get(id(runs))
        if found is None:
            parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
            for run in runs:
                offsets = run.offset + run.stride * np.arange(run.times)
                for what in _WHATS:
                    rows = [(p.start, p.start + p.duration) for p in run.pieces if p.what == what]
                    if rows:
                        parts[what].append((np.array(rows)[None] + offsets[:, None, None]).reshape(-1, 2))
            found = self._memo[id(runs)] = {what: np.concatenate(rows) for what, rows in parts.items()}
        return found


def _gather(runs: Iterable[TaskRun], memo: _Intervals) -> dict[str, NDArray[Any]]:
    import numpy as np

    parts: dict[str, list[NDArray[Any]]] = {what: [] for what in _WHATS}
    for run in runs:
        for what, rows in memo.of(run.runs).items():
            parts[what].append(rows + run.start)
    empty = np.zeros((0, 2), dtype=np.int64)
    return {what: np.concatenate(rows) if rows else empty for what, rows in parts.items()}


def _figures(runs: Sequence[TaskRun], span: tuple[int, int], memo: _Intervals) -> StepFigures:
    import numpy as np

    kinds = _gather(runs, memo)
    compute = union_ns(kinds["compute"])
    comm = union_ns(kinds["communication"])
    busy = union_ns(np.concatenate((kinds["compute"], kinds["communication"])))
    all_busy = union_ns(np.concatenate(tuple(kinds.values())))
    own = union_ns(np.clip(np.array([(run.start, run.end) for run in runs]), *span))
    wall = span[1] - span[0]
    scale = 1e-9
    return StepFigures(
        wall_s=wall * scale,
        compute_s=compute * scale,
        comm_s=comm * scale,
        exposed_s=(busy - compute) * scale,
        bubble_s=max(0, wall - own) * scale,
        copy_s=(all_busy - busy) * scale,
        idle_s=max(0, own - all_busy) * scale,
    )


def rank_timelines(graph: ExecutionGraph, runs: Sequence[TaskRun], overhead_ns: int) -> tuple[RankTimeline, ...]:
    """Timelines of all classes. Every step of training lasts as long as the slowest class needs, plus `overhead_ns`."""
    by_class: dict[int, list[TaskRun]] = defaultdict(list)
    for run in runs:
        for one in run.task.classes:
            by_class[one].append(run)
    end = max(run.end for run in runs)
    return tuple(_timeline(graph, c, sorted(by_class[c.index], key=_order), end, overhead_ns) for c in graph.classes)


def _order(run: TaskRun) -> tuple[int, int]:
    return run.start, run.task.index


def _timeline(graph: ExecutionGraph, rank_class: RankClass, runs: list[TaskRun], end: int, extra: int) -> RankTimeline:
    spans = _spans(graph, rank_class, runs, end)
    memo, steps = _Intervals(), []
    by_step = _by_step(graph, runs, spans)
    for step, (start, stop) in enumerate(spans):
        figures = _figures(by_step[step], (start, stop), memo)
        seconds = extra * 1e-9
        steps.append(StepFigures(**{**_fields(figures), "wall_s": figures.wall_s + seconds,
                                    "idle_s": figures.idle_s + seconds}))  # fmt: skip
    shifted = tuple((a + i * extra, b + (i + 1) * extra) for i, (a, b) in enumerate(spans))
    return RankTimeline(rank_class, tuple(runs), shifted, tuple(steps), tuple(map(tuple, by_step)))


def _by_step(graph: ExecutionGraph, runs: list[TaskRun], spans: list[tuple[int, int]]) -> list[list[TaskRun]]:
    """Runs by step; a message of inference that begins after its iteration's end belongs to the iteration under way."""
    found: list[list[TaskRun]] = [[] for _ in spans]
    starts = [start for start, _ in spans]
    for run in runs:
        own = run.task.step if run.task.stream == COMPUTE or graph.steps == 1 else bisect_right(starts, run.start) - 1
        found[own].append(run)
    return found


def _fields(figures: StepFigures) -> dict[str, float]:
    return {name: getattr(figures, name) for name in StepFigures.__dataclass_fields__}


def _spans(graph: ExecutionGraph, rank_class: RankClass, runs: list[TaskRun], end: int) -> list[tuple[int, int]]:
    """Start and end of each step on this class: a step ends where its last computation does, the last one with all."""
    if graph.steps == 1:
        return [(0, end)]
    ends = [0] * graph.steps
    for run in runs:
        if run.task.stream == COMPUTE:
            ends[run.task.step] = max(ends[run.task.step], run.end)
    starts = [0, *ends[:-1]]
    return list(zip(starts, ends, strict=True))


def link_bytes(graph: ExecutionGraph, timer: SegmentTimer) -> dict[str, float]:
    """Bytes over each link of the network, by the link's name, in all that was simulated."""
    counts: Counter[tuple[int, int]] = Counter()
    example: dict[tuple[int, int], Task] = {}
    for task in graph.tasks:
        key = (id(task.segments), task.classes[0])
        counts[key] += 1
        example.setdefault(key, task)
    used: Counter[int] = Counter()
    collectives: dict[int, Any] = {}
    for key, times in counts.items():
        for segment, repeats in run_lengths(list(example[key].segments)):
            for collective, each in timer.timed(segment, example[key]).collectives:
                used[id(collective)] += times * repeats * each
                collectives[id(collective)] = collective
    totals: dict[int, float] = defaultdict(float)
    for key_of, times in used.items():
        for link, nbytes in timer.network.time(collectives[key_of]).link_bytes.items():
            totals[link] += nbytes * times
    return {timer.network.topology.link_label(link): nbytes for link, nbytes in sorted(totals.items())}
