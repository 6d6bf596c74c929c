"""Segments in time: each item of a segment gets its place, kernels folded as far as the wanted detail says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from backends.compute import System
from backends.graph import ExecutionGraph, Segment, Task
from backends.ops import Communication, Compute, Item, Transfer
from backends.timeline import Detail, Piece
from runs.errors import BadInputError

ALGORITHM_NAMES = {"tree": "double_binary_tree", "double-binary-tree": "double_binary_tree", "auto": None}
"""Spellings of frameworks and of NCCL_ALGO for the algorithms that the network knows."""


class Timing(Protocol):
    """What a network says about one collective alone."""

    @property
    def seconds(self) -> float: ...
    @property
    def link_bytes(self) -> Mapping[int, float]: ...


class Network(Protocol):
    """The network as the simulator needs it (`backends.network.NetworkModel`)."""

    topology: Any

    def time(self, collective: Any, /) -> Timing:
        """Time a collective that has the network to itself."""
        ...

    def rates(self, active: Sequence[Any], /) -> list[float]:
        """Speed of each of several concurrent collectives, as a share of its speed alone."""
        ...


@dataclass(frozen=True, slots=True)
class Timed:
    """A segment in time: `duration` ns, its `pieces`, and its collectives with how often each runs."""

    duration: int
    pieces: tuple[Piece, ...]
    collectives: tuple[tuple[Any, int], ...] = ()


def ns(seconds: float) -> int:
    """Whole nanoseconds, at least one for anything that takes time."""
    return max(1, round(seconds * 1e9)) if seconds > 0 else 0


@dataclass
class SegmentTimer:
    """Times segments for the classes of one graph; memoised by segment and class."""

    graph: ExecutionGraph
    system: System
    network: Network
    detail: Detail = "kernel"
    _memo: dict[tuple[int, int, bool], Timed] = field(default_factory=dict)
    _collectives: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def collective(self, item: Communication, task: Task) -> Any | None:
        """The network's view of `item`; None where its axis has a single rank."""
        from backends.network.collective import Collective

        groups = self.graph.groups_of(item, task)
        if not groups or item.nbytes <= 0:
            return None
        key = (item.kind, item.nbytes, id(groups), item.axis)
        if key not in self._collectives:
            algorithm = collective_algorithm(self.graph.algorithm(item), item.kind)
            self._collectives[key] = Collective(item.kind, item.nbytes, groups, algorithm)
        return self._collectives[key]

    def timed(self, segment: Segment, task: Task, whole: bool = True) -> Timed:
        """`segment` as `task` runs it; `whole`: nothing contends with its collectives, so that they may be folded."""
        key = (id(segment), task.classes[0], whole)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._time(segment, task, whole)
        return found

    def _time(self, segment: Segment, task: Task, whole: bool) -> Timed:
        at, pieces, used = 0, list[Piece](), list[tuple[Any, int]]()
        for item in segment.items:
            piece, slot = self._place(item, task, at)
            at += slot
            if piece:
                pieces.append(piece)
            if piece and isinstance(item, Communication):
                used.append((self.collective(item, task), 1))
        if self.detail != "kernel":
            pieces = fold_compute(pieces) if self.detail == "block" or not whole else fold_all(pieces)
        return Timed(at, tuple(pieces), tuple(used))

    def _place(self, item: Item, task: Task, at: int) -> tuple[Piece | None, int]:
        """The piece of one item at `at`, and how long its slot is."""
        if isinstance(item, Compute):
            kernel = self.system.kernel(item)
            if not kernel.seconds:
                return None, ns(kernel.slot)
            took = ns(kernel.seconds)
            return Piece(item.name, "compute", at, took, item, kernel.blocks), max(took, ns(kernel.slot))
        if isinstance(item, Transfer):
            took = ns(self.system.transfer(item))
            return Piece(item.name, "copy", at, took, item), took
        collective = self.collective(item, task)
        if collective is None:
            return None, 0
        took = ns(self.network.time(collective).seconds)
        if not took:
            raise BadInputError(
                f"{item.name}: the network moved {item.nbytes:.0f} bytes in no time", "check the topology's bandwidths"
            )
        piece = Piece(item.name, "communication", at, took, item, 0, 1, self.graph.groups_of(item, task))
        return piece, max(took, ns(self.system.collective_launch_s))


def collective_algorithm(name: str | None, kind: str) -> Any:
    """The network's name of an algorithm; trees reduce and broadcast only, other kinds keep the automatic choice."""
    if name is None:
        return None
    known = ALGORITHM_NAMES.get(name, name.replace("-", "_"))
    if known and "tree" in known and kind not in ("all_reduce", "broadcast"):
        return None
    return known


def fold_compute(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbouring kernels become one: their busy time first, their launch gaps after it."""
    folded: list[Piece] = []
    for piece in pieces:
        last = folded[-1] if folded else None
        if last and last.what == piece.what == "compute":
            folded[-1] = _joined(last, piece)
        else:
            folded.append(piece)
    return folded


def fold_all(pieces: Sequence[Piece]) -> list[Piece]:
    """One kernel for all computation, then one for each kind of collective on each set of groups."""
    groups: dict[tuple[Any, ...], Piece] = {}
    for piece in pieces:
        kind = (piece.item.kind, id(piece.groups)) if isinstance(piece.item, Communication) else ()
        key = (piece.what, *kind)
        groups[key] = _joined(groups[key], piece) if key in groups else piece
    at, folded = 0, list[Piece]()
    for piece in sorted(groups.values(), key=lambda p: p.what == "communication"):
        folded.append(replace(piece, start=at))
        at += piece.duration
    return folded


def _joined(a: Piece, b: Piece) -> Piece:
    """Both as one piece at the place of the first; the longer one lends its item, sizes of messages add up."""
    item: Item = a.item if a.duration >= b.duration else b.item
    if isinstance(a.item, Communication) and isinstance(b.item, Communication):
        item = replace(a.item, nbytes=a.item.nbytes + b.item.nbytes)
    name = a.name if a.name.startswith("fused_") or a.what != "compute" else f"fused_{a.name}"
    blocks = max(a.blocks, b.blocks)
    return Piece(name, a.what, a.start, a.duration + b.duration, item, blocks, a.count + b.count, a.groups)


def repeat(pieces: Sequence[Piece], times: int) -> tuple[Piece, ...]:
    """`times` equal runs as one, each piece `times` as long."""
    at, out = 0, list[Piece]()
    for piece in pieces:
        item = piece.item
        if isinstance(item, Communication):
            item = replace(item, nbytes=item.nbytes * times)
        took = piece.duration * times
        out.append(replace(piece, start=at, duration=took, item=item, count=piece.count * times))
        at += took
    return tuple(out)
