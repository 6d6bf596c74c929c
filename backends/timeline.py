"""What a simulation yields: timelines of rank classes, and the figures that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.graph import ExecutionGraph, RankClass, Task
from backends.layout import Groups
from backends.memory import MemoryEstimate
from backends.ops import Item

What = Literal["compute", "communication", "copy"]
Detail = Literal["kernel", "block", "pass"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A kernel or copy inside a run: `start` and `duration` in ns, from the run's start.

    `count` is how many operations of the plan it stands for (above one when details were folded).
    """

    name: str
    what: What
    start: int
    duration: int
    item: Item
    blocks: int = 0
    count: int = 1
    groups: Groups = ()


@dataclass(frozen=True, slots=True)
class Repeated:
    """`pieces` that run `times` times, `stride` ns apart, the first time `offset` ns after their task's start."""

    offset: int
    pieces: tuple[Piece, ...]
    times: int = 1
    stride: int = 0


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task as it ran, ns from the start of the step."""

    task: Task
    start: int
    end: int
    runs: tuple[Repeated, ...]

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Every piece with the moment it starts, ns from the start of the step."""
        for repeated in self.runs:
            for turn in range(repeated.times):
                base = self.start + repeated.offset + turn * repeated.stride
                for piece in repeated.pieces:
                    yield base + piece.start, piece


@dataclass(frozen=True)
class StepFigures:
    """Seconds of one step on one rank: how long it lasted, and unions of intervals within it.

    `exposed_s`: communication that no computation hides. `bubble_s`: the rank waits for another pipeline stage and
    nothing of its own runs. `idle_s`: the rest (launch gaps, a host that computes). wall = compute + exposed + copies
    that nothing hides + bubble + idle.
    """

    wall_s: float
    compute_s: float
    comm_s: float
    exposed_s: float
    bubble_s: float
    copy_s: float = 0.0
    idle_s: float = 0.0


@dataclass(frozen=True)
class RankTimeline:
    """One rank class: what ran when, its steps as (start, end) in ns, and the figures of each.

    `step_runs`: what belongs to each step: its own computation, and the messages that begin within it.
    """

    rank_class: RankClass
    runs: tuple[TaskRun, ...]
    spans: tuple[tuple[int, int], ...]
    steps: tuple[StepFigures, ...]
    step_runs: tuple[tuple[TaskRun, ...], ...] = ()

    @property
    def represents(self) -> tuple[int, ...]:
        """Ranks that share this timeline."""
        return self.rank_class.ranks

    @property
    def figures(self) -> StepFigures:
        """Mean over inner steps: all but the first and the last where there are more than two."""
        inner = self.steps[1:-1] if len(self.steps) > 2 else self.steps
        names = StepFigures.__dataclass_fields__
        return StepFigures(**{n: sum(getattr(s, n) for s in inner) / len(inner) for n in names})


@dataclass(frozen=True)
class SimulationResult:
    """A simulated step (training) or the iterations of one batch (inference).

    `wall_s`, `compute_s`, `comm_s`, `exposed_s`, `bubble_s`: seconds per step on the slowest rank (the one with
    most work where all end together). `ttft_s`, `tpot_s`: prefill and one decode step, inference only. `links`:
    bytes that crossed each link of the network in all simulated steps. `detail`: how far kernels were folded. `notes`
    and `network` (queues, flows, pauses) are what a backend has to say beyond that.
    """

    graph: ExecutionGraph
    timelines: tuple[RankTimeline, ...]
    wall_s: float
    compute_s: float
    comm_s: float
    exposed_s: float
    bubble_s: float
    memory: MemoryEstimate | None
    backend: str
    version: str
    calibration: str
    detail: Detail = "kernel"
    ttft_s: float | None = None
    tpot_s: float | None = None
    links: Mapping[str, float] = field(default_factory=dict)
    device_name: str = ""
    multiprocessors: int = 0
    notes: tuple[str, ...] = ()
    network: Mapping[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """The figures as plain data; times in whole nanoseconds, of the slowest rank."""
        figures = {
            f"{name}_ns": round(1e9 * getattr(self, f"{name}_s"))
            for name in ("wall", "compute", "comm", "exposed", "bubble")
        }
        memory = self.memory.as_dict() if self.memory else {}
        return {
            **figures, "memory": memory, "backend": self.backend, "version": self.version,
            "calibration": self.calibration, "links": dict(self.links),
            **({"backend_notes": list(self.notes)} if self.notes else {}),
            **({"network": dict(self.network)} if self.network else {}),
        }  # fmt: skip
