"""The execution graph of a step: tasks on streams of rank classes, each a run of segments, joined by dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from backends.layout import Groups, Layout
from backends.ops import Communication, Item
from runs.plan import ParallelPlan
from runs.workload import Workload

COMPUTE = "compute"


@dataclass(frozen=True, eq=False)
class Segment:
    """A run of items that follow each other without anything from outside between them: one layer's pass, say."""

    name: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class RankClass:
    """Ranks whose timelines are the same up to symmetry: those of one pipeline stage."""

    index: int
    stage: int
    ranks: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Task:
    """Segments that run back to back on one stream of one class (of several for a message or a global collective).

    `deps` are indices of tasks that must have ended. `groups` are the ranks of its collectives where they do not
    follow from class and axis. `label` is what a profiler would show; `step` counts iterations of inference, `work`
    the sequences and tokens of one.
    """

    index: int
    classes: tuple[int, ...]
    stream: str
    segments: tuple[Segment, ...]
    deps: list[int]
    label: str
    phase: str
    microbatch: int = 0
    chunk: int = 0
    step: int = 0
    groups: Groups | None = None
    work: tuple[int, int] = (0, 0)


@dataclass
class ExecutionGraph:
    """All tasks of one step (training) or of all iterations (inference), and what they were built from."""

    workload: Workload
    plan: ParallelPlan
    layout: Layout
    classes: tuple[RankClass, ...]
    tasks: list[Task] = field(default_factory=list)
    steps: int = 1
    _last: dict[tuple[int, str], int] = field(default_factory=dict)
    _groups: dict[tuple[str, int], Groups] = field(default_factory=dict)

    def add(
        self, classes: tuple[int, ...], stream: str, segments: tuple[Segment, ...], label: str, phase: str, *,
        deps: Iterable[int | None] = (), microbatch: int = 0, chunk: int = 0, step: int = 0,
        groups: Groups | None = None, work: tuple[int, int] = (0, 0),
    ) -> int:  # fmt: skip
        """Append a task; it also waits for the task before it on each of its streams. Returns its index."""
        index = len(self.tasks)
        needed = {d for d in deps if d is not None}
        for one in classes:
            before = self._last.get((one, stream))
            if before is not None:
                needed.add(before)
            self._last[one, stream] = index
        self.tasks.append(
            Task(index, classes, stream, segments, sorted(needed), label, phase, microbatch, chunk, step, groups, work)
        )
        return index

    def last(self, rank_class: int, stream: str = COMPUTE) -> int | None:
        """The latest task on a stream."""
        return self._last.get((rank_class, stream))

    def groups_of(self, item: Communication, task: Task) -> Groups:
        """The rank groups that run `item` at the same time."""
        if task.groups is not None:
            return task.groups
        key = (item.axis, task.classes[0])
        if key not in self._groups:
            self._groups[key] = self.layout.groups(item.axis, self.classes[task.classes[0]].stage)
        return self._groups[key]

    def algorithm(self, item: Communication) -> str | None:
        """The collective algorithm the plan asks for on this item's axis; None leaves the choice to the network."""
        if item.kind == "send_recv":
            return None
        if item.axis == "tp" and self.plan.tp_algorithm:
            return self.plan.tp_algorithm
        if item.axis == "ep" and self.plan.ep_algorithm:
            return self.plan.ep_algorithm
        return self.plan.collective_algorithm if item.kind != "all_to_all" else None

    @cached_property
    def has_communication(self) -> bool:
        """Whether any task communicates."""
        return any(isinstance(item, Communication) for t in self.tasks for s in t.segments for item in s.items)
