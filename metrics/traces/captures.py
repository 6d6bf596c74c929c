"""Short captures in a row: a profiler that records one step at a time and writes each into a folder of its own.

TorchTitan 0.1 is one: `profile_traces/iteration_N/rankR_trace.json`, one step each. Such files of a rank are one trace
of several steps. The time between captures was not recorded, so it is left out: each capture is moved to where the one
before it ends, by the same amount on all ranks, so that ranks stay comparable.

Captures that overlap in time are copies, and captures of more than two steps stand for themselves: neither is joined.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from metrics.traces.timeline import NEVER, Collectives, Copies, Kernels, Lane, Marks, Samples, Steps

MOST_STEPS = 2
_FOLDER = re.compile(r"(?P<above>(?:.*/)?)iteration_(?P<number>\d+)/[^/]+\Z")
_TIMES = {
    Kernels: ("start", "end", "launch"), Copies: ("start", "end", "launch"), Steps: ("start", "end"),
    Marks: ("bubble_start", "bubble_end", "memory_time"), Samples: ("time",),
}  # fmt: skip


def in_a_row(lanes: Sequence[Lane], warnings: list[str]) -> list[Lane]:
    """`lanes` with the short captures of each rank joined; `warnings` grows where a rank lacks a capture."""
    folders: dict[str, dict[int, list[Lane]]] = defaultdict(lambda: defaultdict(list))
    others: list[Lane] = []
    for lane in lanes:
        found = _FOLDER.fullmatch(lane.source) if lane.family == "kineto" else None
        if found is None:
            others.append(lane)
        else:
            folders[found["above"]][int(found["number"])].append(lane)
    return others + [lane for captures in folders.values() for lane in _joined(captures, warnings)]


def _joined(captures: dict[int, list[Lane]], warnings: list[str]) -> list[Lane]:
    ordered = [captures[number] for number in sorted(captures)]
    spans = [_span(lanes) for lanes in ordered]
    short = all(len(lane.steps) <= MOST_STEPS for lanes in ordered for lane in lanes)
    if len(ordered) < 2 or not short or any(later[0] < before[1] for before, later in pairwise(spans)):
        return [lane for lanes in ordered for lane in lanes]
    parts: dict[tuple[int, str], list[Lane]] = defaultdict(list)
    moved = 0
    for number, lanes in enumerate(ordered):
        moved += spans[number][0] - spans[number - 1][1] if number else 0
        for lane in lanes:
            parts[lane.rank, lane.device].append(_earlier(lane, moved))
    few = [same for same in parts.values() if len(same) < len(ordered)]
    warnings += [f"{same[0].label} has {len(same)} of {len(ordered)} captures" for same in few]
    return [_one(same) for same in parts.values()]


def _span(lanes: Sequence[Lane]) -> tuple[int, int]:
    """When the first thing of a capture begins and its last one ends, on any rank."""
    times = [getattr(table, name) for lane in lanes for table in _tables(lane).values() for name in _own_times(table)]
    known = [column[column != NEVER] for column in times]
    edges = np.concatenate([column for column in known if len(column)] or [np.zeros(1, np.int64)])
    return int(edges.min()), int(edges.max())


def _tables(lane: Lane) -> dict[str, Any]:
    tables = {field.name: getattr(lane, field.name) for field in fields(lane)}
    return {name: table for name, table in tables.items() if type(table) in _TIMES}


def _own_times(table: Any) -> tuple[str, ...]:
    return _TIMES[type(table)]


def _earlier(lane: Lane, by: int) -> Lane:
    """The lane with everything `by` nanoseconds earlier."""
    changed = {}
    for name, table in _tables(lane).items():
        columns = {key: getattr(table, key) for key in _own_times(table)}
        changed[name] = replace(table, **{k: np.where(c == NEVER, c, c - by) for k, c in columns.items()})
    return replace(lane, **changed, memo={})


def _one(parts: Sequence[Lane]) -> Lane:
    """The lanes of one device in one; names and groups are numbered anew."""
    names, groups = _numbered([lane.names for lane in parts]), _numbered([lane.groups for lane in parts])
    before = np.cumsum([0, *(len(lane.kernels) for lane in parts)])
    kernels = [replace(p.kernels, name=_renumbered(p.kernels.name, p.names, names)) for p in parts]
    collectives = [
        replace(
            p.collectives, kernel=p.collectives.kernel + at, group=_renumbered(p.collectives.group, p.groups, groups)
        )
        for p, at in zip(parts, before, strict=False)
    ]
    return replace(
        parts[0],
        names=list(names),
        groups=list(groups),
        launches=any(lane.launches for lane in parts),
        kernels=_appended(Kernels, kernels),
        collectives=_appended(Collectives, collectives),
        copies=_appended(Copies, [lane.copies for lane in parts]),
        steps=_appended(Steps, [lane.steps for lane in parts]),
        marks=_appended(Marks, [lane.marks for lane in parts]),
        why={key: why for key, why in parts[0].why.items() if all(key in lane.why for lane in parts)},
        facts={**parts[0].facts, "captures": len(parts)},
    )


def _numbered(lists: Sequence[Sequence[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for names in lists:
        for name in names:
            found.setdefault(name, len(found))
    return found


def _renumbered(column: Any, own: Sequence[str], numbers: dict[str, int]) -> Any:
    table = np.array([*(numbers[name] for name in own), -1], np.int64)
    return table[column] if len(column) else column


def _appended(kind: Any, tables: Sequence[Any]) -> Any:
    columns = {f.name: np.concatenate([getattr(table, f.name) for table in tables]) for f in fields(kind)}
    return kind(**columns)
