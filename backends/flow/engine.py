"""The event loop: tasks start when what they wait for has ended, collectives on crowded links share them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from backends.flow.contention import Crowding, SharedNetwork, stream_of
from backends.flow.timing import SegmentTimer, repeat
from backends.graph import ExecutionGraph, Segment, Task
from backends.ops import Communication
from backends.parts import run_lengths
from backends.timeline import Piece, Repeated, TaskRun
from runs.errors import CclSearchError

_Runs = tuple[Repeated, ...]
_Slot = tuple[Piece, int, Any]
"""A piece, the time until the next one, and its collective if other collectives can slow it."""


@dataclass
class _Stepwise:
    """A task on a crowded stream, item by item: its slots, and the pieces that have run."""

    task: Task
    slots: list[_Slot]
    start: int
    position: int = 0
    began: int = 0
    done: list[Piece] = field(default_factory=list)


@dataclass
class EventLoop:
    """Runs a graph once. Times are whole nanoseconds from the start of the step."""

    graph: ExecutionGraph
    timer: SegmentTimer
    heap: list[tuple[int, int, int, int]] = field(default_factory=list)
    ended: dict[int, TaskRun] = field(default_factory=dict)
    stepping: dict[int, _Stepwise] = field(default_factory=dict)
    _sealed: dict[tuple[int, int], tuple[int, _Runs]] = field(default_factory=dict)
    _stepwise: dict[tuple[int, int], list[_Slot]] = field(default_factory=dict)

    def run(self) -> list[TaskRun]:
        """All tasks in the order they ended.

        Raises:
            CclSearchError: some tasks can never start (the graph has a cycle).
        """
        tasks = self.graph.tasks
        crowding = Crowding.of(self.graph, self.timer)
        self.crowded, self.shared = crowding.streams, SharedNetwork(self.timer.network, crowding)
        missing, followers = self._dependencies()
        for task in tasks:
            if not missing[task.index]:
                self._start(task, 0)
        while self.heap:
            now, _, index, version = heapq.heappop(self.heap)
            if version >= 0 and not self._collective_ended(index, now, version):
                continue
            if version < 0 and index not in self.ended and not self._proceed(index, now):
                continue
            for follower in followers[index]:
                missing[follower] -= 1
                if not missing[follower]:
                    self._start(tasks[follower], now)
        if len(self.ended) < len(tasks):
            stuck = next(t for t in tasks if t.index not in self.ended)
            raise CclSearchError(
                f"the step deadlocks at {stuck.label!r} of stage {stuck.classes[0]}", "report this plan"
            )
        return list(self.ended.values())

    def _proceed(self, index: int, now: int) -> bool:
        state = self.stepping.get(index)
        return self._step(state, now) if state else self._begin(self.graph.tasks[index], now)

    def _dependencies(self) -> tuple[list[int], list[list[int]]]:
        followers: list[list[int]] = [[] for _ in self.graph.tasks]
        missing = [0] * len(followers)
        for task in self.graph.tasks:
            for dep in set(task.deps):
                followers[dep].append(task.index)
                missing[task.index] += 1
        return missing, followers

    def _start(self, task: Task, now: int) -> None:
        if stream_of(task) in self.crowded and any(shared is not None for _, _, shared in self._slots(task)):
            heapq.heappush(self.heap, (now, 1, task.index, -1))
            return
        duration, runs = self._whole(task)
        self.ended[task.index] = TaskRun(task, now, now + duration, runs)
        heapq.heappush(self.heap, (now + duration, 0, task.index, -1))

    def _whole(self, task: Task) -> tuple[int, _Runs]:
        """Duration and pieces of a task that nothing from outside can slow; memoised by its segments."""
        key = (id(task.segments), task.classes[0])
        if key not in self._sealed:
            at, runs = 0, list[Repeated]()
            for segment, times in run_lengths(list(task.segments)):
                timed = self.timer.timed(segment, task)
                if self.timer.detail == "pass" and times > 1:
                    runs.append(Repeated(at, repeat(timed.pieces, times)))
                else:
                    runs.append(Repeated(at, timed.pieces, times, timed.duration))
                at += timed.duration * times
            self._sealed[key] = (at, tuple(runs))
        return self._sealed[key]

    # --- tasks that share links -------------------------------------------------------------------------------------

    def _begin(self, task: Task, now: int) -> bool:
        """Begin a task of a crowded stream; whether it ended at once.

        When nothing else happens before it would end alone, nothing can slow it, and it runs as a whole.
        """
        duration, runs = self._whole(task)
        if not self.shared.active and (not self.heap or self.heap[0][0] >= now + duration):
            self.ended[task.index] = TaskRun(task, now, now + duration, runs)
            heapq.heappush(self.heap, (now + duration, 0, task.index, -1))
            return False
        state = _Stepwise(task, self._slots(task), now)
        self.stepping[task.index] = state
        return self._step(state, now)

    def _slots(self, task: Task) -> list[_Slot]:
        """The pieces of a task with the time until the next piece, launch gaps included; memoised by its segments."""
        key = (id(task.segments), task.classes[0])
        if key not in self._stepwise:
            self._stepwise[key] = [slot for segment in task.segments for slot in self._segment_slots(segment, task)]
        return self._stepwise[key]

    def _segment_slots(self, segment: Segment, task: Task) -> list[_Slot]:
        timed = self.timer.timed(segment, task, whole=False)
        starts = [piece.start for piece in timed.pieces] + [timed.duration]
        found = []
        for i, piece in enumerate(timed.pieces):
            shared = None
            if isinstance(piece.item, Communication):
                collective = self.timer.collective(piece.item, task)
                shared = collective if self.shared.crowding.links[id(collective)] else None
            found.append((piece, starts[i + 1] - starts[i], shared))
        return found

    def _step(self, state: _Stepwise, now: int) -> bool:
        """Go on with `state` at `now`; whether its task has ended. What nothing can slow runs without an event."""
        at, slots = now, state.slots
        while state.position < len(slots):
            piece, slot, collective = slots[state.position]
            if collective is not None and not self._undisturbed(collective, at + piece.duration):
                break
            state.done.append(_at(piece, at - state.start, piece.duration))
            state.position += 1
            at += slot
        if at > now:
            heapq.heappush(self.heap, (at, 1, state.task.index, -1))
            return False
        if state.position == len(slots):
            self._finish(state, now)
            return True
        state.began = now
        piece, _, collective = slots[state.position]
        self._announce(self.shared.start(state.task.index, collective, float(piece.duration), now))
        return False

    def _undisturbed(self, collective: Any, end: int) -> bool:
        """Whether nothing that runs slows `collective`, and nothing new can start before `end`."""
        return (not self.heap or self.heap[0][0] >= end) and not self.shared.slows(collective)

    def _finish(self, state: _Stepwise, now: int) -> None:
        index = state.task.index
        del self.stepping[index]
        self.ended[index] = TaskRun(state.task, state.start, now, (Repeated(0, tuple(state.done)),))

    def _announce(self, ends: list[tuple[float, int, int]]) -> None:
        for end, owner, version in ends:
            heapq.heappush(self.heap, (ceil(end), 2, owner, version))

    def _collective_ended(self, index: int, now: int, version: int) -> bool:
        """A collective may have ended at `now`; whether its task ended with it. Outdated news is dropped."""
        if not self.shared.is_current(index, version):
            return False
        state = self.stepping[index]
        self._announce(self.shared.finish(index, float(now)))
        piece, slot, _ = state.slots[state.position]
        took = now - state.began
        state.done.append(_at(piece, state.began - state.start, took))
        state.position += 1
        gap = slot - took
        if gap > 0:
            heapq.heappush(self.heap, (now + gap, 1, index, -1))
            return False
        return self._step(state, now)


def _at(piece: Piece, start: int, duration: int) -> Piece:
    return Piece(piece.name, piece.what, start, duration, piece.item, piece.blocks, piece.count, piece.groups)


def runs_of(segments: tuple[Segment, ...]) -> int:
    """How many items a task would show at full detail."""
    return sum(len(segment.items) for segment in segments)
