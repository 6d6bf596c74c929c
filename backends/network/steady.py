"""Long runs of equal rounds: once the state of the network returns, whole periods are skipped.

A ring of a thousand ranks is a thousand equal rounds. After some of them everything repeats but the time: the same
messages are on the way, as far along, and the same events lie as far ahead. From there on the engine can only do what
it did since it was last in that state, so all but the last periods are added as their number times their length.
States are compared with the first one of the last power of two (Brent 1980), which finds a period of any length.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import groupby

from backends.network.engine import MANY, Engine, Solver
from backends.network.rounds import Key, Program

LONG = 256
"""Runs of no more equal rounds than this are simulated to the end."""
_WATCHED, _FIRST = 1024, 4
_CLOSE, _LEFT_CLOSE = 1e-14, 1e-12


def run(program: Program, rates: Solver) -> float:
    """Seconds until every message of `program` is delivered, its messages sharing the links as fluids."""
    is_long = any(end - begin > LONG for lane in program.lanes for begin, end in _runs(lane))
    return (SteadyEngine if is_long else Engine)(program, rates).run()


def _runs(lane: tuple[tuple[int, ...], ...]) -> list[tuple[int, int]]:
    """First round and the one after the last of every run of equal rounds."""
    runs, begin = [], 0
    for _, members in groupby(lane):
        end = begin + sum(1 for _ in members)
        runs.append((begin, end))
        begin = end
    return runs


@dataclass(frozen=True)
class _State:
    """Everything that decides how it goes on, rounds counted from `bases` and times from `now`."""

    now: float
    bases: list[int]
    shape: tuple[object, ...]
    times: list[float]
    left: list[float]

    def is_like(self, other: _State, works: list[float]) -> bool:
        """Whether both go on alike, but for rounding."""
        if self.shape != other.shape:
            return False
        near = _CLOSE * self.now
        return all(abs(a - b) <= near for a, b in zip(self.times, other.times, strict=True)) and all(
            abs(a - b) <= _LEFT_CLOSE * work for a, b, work in zip(self.left, other.left, works, strict=True)
        )


class SteadyEngine(Engine):
    """An engine that skips periods; for programs that have long runs of equal rounds."""

    def __init__(self, program: Program, rates: Solver) -> None:
        super().__init__(program, rates)
        self._equal = [_runs(lane) for lane in program.lanes]
        lane, begin = max(
            ((lane, run[0]) for lane, runs in enumerate(self._equal) for run in runs),
            key=lambda place: self._end_of(*place) - place[1],
        )
        self._watched = lane, program.classes[program.lanes[lane][begin][0]].target
        self._at, self._marks, self._renewal = -1, 0, _FIRST
        self._kept: _State | None = None
        self._crowded = False

    def _step(self) -> None:
        super()._step()
        self._crowded |= len(self._active) > MANY  # how drains are grouped then depends on the time itself
        lane, rank = self._watched
        if self._frontier[lane][rank] != self._at:
            self._at = self._frontier[lane][rank]
            self._mark()

    def _mark(self) -> None:
        """The watched rank has gone on a round: look whether the state is that of an earlier one."""
        lane, _ = self._watched
        if self._marks > _WATCHED or self._at >= len(self._program.lanes[lane]):
            return
        if self._end_of(lane, self._at) - self._at < LONG // 2:
            self._marks, self._renewal, self._kept = 0, _FIRST, None
            return
        self._marks += 1
        state = self._state()
        if self._kept is not None and not self._crowded and state.is_like(self._kept, self._works()):
            self._skip(self._kept, state)
        if self._marks >= self._renewal:
            self._kept, self._crowded = state, False
            self._renewal *= 2

    def _works(self) -> list[float]:
        return [self._program.classes[member].work for _, _, member in sorted(self._active)]

    def _state(self) -> _State:
        bases = [min(lane) for lane in self._frontier]

        def relative(key: Key) -> Key:
            return key[0], key[1] - bases[key[0]], key[2]

        active, events = sorted(self._active), sorted(self._events, key=lambda event: (*event[3:], event[1]))
        fronts = [[at - base for at in lane] for base, lane in zip(bases, self._frontier, strict=True)]
        waiting = [
            [rank[at : max(front) + 1] for at, rank in zip(front, lane, strict=True)]
            for front, lane in zip(self._frontier, self._waiting, strict=True)
        ]
        lines = [(place, [relative(key) for key in line]) for place, line in sorted(self._lines.items()) if line]
        shape = (
            fronts, waiting, lines, [relative(key) for key in active], sorted(map(relative, self._begun)),
            [(event[1], *relative(event[3:])) for event in events], sorted(map(relative, self._late)),
            self._changed, id(self._rate),
        )  # fmt: skip
        times = [self._since - self._now, *(event[0] - self._now for event in events)]
        times += [self._begun[key] - self._now for key in sorted(self._begun)]
        times += [self._late[key] for key in sorted(self._late)]
        times += [max(self._reducing[place] - self._now, 0.0) for place in sorted(self._reducing)]
        return _State(self._now, bases, shape, times, [self._active[key] for key in active])

    def _skip(self, before: _State, state: _State) -> None:
        """As many periods at once as keep every lane within its run of equal rounds."""
        forward = [here - there for here, there in zip(state.bases, before.bases, strict=True)]
        periods = min(
            (self._room(lane, before.bases[lane], step) for lane, step in enumerate(forward) if step), default=0
        )
        if periods > 0:
            self._shift(periods * (state.now - before.now), [periods * step for step in forward])
            self._kept = None

    def _room(self, lane: int, since: int, step: int) -> int:
        """Periods that are left of a run that all ranks were in from round `since` on."""
        end = self._end_of(lane, since)
        if since < 0 or since < self._begin_of(lane, max(self._frontier[lane])) or max(self._frontier[lane]) >= end:
            return 0
        return (end - 1 - max(self._frontier[lane])) // step

    def _run_of(self, lane: int, at: int) -> tuple[int, int]:
        runs = self._equal[lane]
        return runs[max(0, bisect_right(runs, (at, len(self._program.lanes[lane]) + 1)) - 1)]

    def _begin_of(self, lane: int, at: int) -> int:
        return self._run_of(lane, at)[0]

    def _end_of(self, lane: int, at: int) -> int:
        return self._run_of(lane, at)[1]

    def _shift(self, seconds: float, rounds: list[int]) -> None:
        """Everything so much later and so many rounds on, lane by lane."""

        def moved(key: Key) -> Key:
            return key[0], key[1] + rounds[key[0]], key[2]

        self._now += seconds
        self._since += seconds
        self._next_drain += seconds
        self._events = [
            (when + seconds, kind, count, *moved((lane, at, member)))
            for when, kind, count, lane, at, member in self._events
        ]
        heapq.heapify(self._events)
        self._active = {moved(key): left for key, left in self._active.items()}
        self._begun = {moved(key): when + seconds for key, when in self._begun.items()}
        self._late = {moved(key): late for key, late in self._late.items()}
        self._lines = {place: deque(map(moved, line)) for place, line in self._lines.items()}
        self._reducing = {place: when + seconds for place, when in self._reducing.items()}
        for lane, on in enumerate(rounds):
            self._move_ranks(lane, on)
        lane, rank = self._watched
        self._at = self._frontier[lane][rank]

    def _move_ranks(self, lane: int, on: int) -> None:
        last = max(self._frontier[lane])
        for rank, at in enumerate(self._frontier[lane]):
            waiting = self._waiting[lane][rank]
            waiting[at + on : last + on + 1] = waiting[at : last + 1]
            self._frontier[lane][rank] = at + on
