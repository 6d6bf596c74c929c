"""Replicas of a serving engine: processes that run at once and count their ranks from 0 each.

SGLang with several data-parallel replicas is one case: every replica has a world of its own, so that the traces of two
replicas call themselves rank 0. Their ranks are numbered on, replica after replica, and their process groups, which
have the same names too, are kept apart. They are told from copies and from captures one after the other by their
processes, which differ, and by the times, which overlap; or by the folder of the node (`node-1/...`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from metrics.traces.split import share, two_processes
from metrics.traces.timeline import Lane

_NODE = re.compile(r"(?:^|/)node-(\d+)/")


def apart(lanes: Sequence[Lane], warnings: list[str]) -> list[Lane]:
    """`lanes` with the ranks of replicas numbered on; `warnings` says that there are some."""
    files: dict[tuple[int, ...], dict[str, list[Lane]]] = defaultdict(lambda: defaultdict(list))
    for lane in lanes:
        if lane.family == "kineto" and lane.rank >= 0:
            files[lane.ranks][lane.source].append(lane)
    number = {
        source: count
        for same in files.values()
        if len(same) > 1 and all(_at_once(a, b) for a, b in combinations(same.values(), 2))
        for count, source in enumerate(sorted(same))
    }
    if not number:
        return list(lanes)
    replicas = max(number.values()) + 1
    world = max([lane.world_size or 0 for lane in lanes] + [max(lane.ranks, default=0) + 1 for lane in lanes])
    warnings.append(f"ranks are there in {replicas} processes at once: taken as {replicas} replicas of {world} rank(s)")
    return [_moved(lane, number.get(lane.source, 0), world, replicas) for lane in lanes]


def _at_once(some: list[Lane], others: list[Lane]) -> bool:
    """Whether two files of one rank are of two processes that run side by side."""
    if share(some, others):
        return False
    nodes = [found.group(1) if (found := _NODE.search(lanes[0].source)) else None for lanes in (some, others)]
    if None not in nodes and nodes[0] != nodes[1]:
        return True
    (a, b), (c, d) = _span(some), _span(others)
    return two_processes(some, others) and max(a, c) < min(b, d)


def _span(lanes: list[Lane]) -> tuple[int, int]:
    """From the first to the last thing recorded."""
    starts = np.concatenate([column for lane in lanes for column in (lane.steps.start, lane.kernels.start)])
    ends = np.concatenate([column for lane in lanes for column in (lane.steps.end, lane.kernels.end)])
    return (int(starts.min()), int(ends.max())) if len(starts) else (0, 0)


def _moved(lane: Lane, number: int, world: int, replicas: int) -> Lane:
    """The lane as one of replica `number`; collectives without a process group get that of their replica."""
    name = f"replica {number}"
    group = np.where(lane.collectives.group >= 0, lane.collectives.group, len(lane.groups))
    return replace(
        lane,
        rank=lane.rank + number * world,
        ranks=tuple(rank + number * world for rank in lane.ranks),
        world_size=lane.world_size * replicas if lane.world_size else None,
        groups=[*(f"{name}: {group}" for group in lane.groups), name],
        collectives=replace(lane.collectives, group=group),
        memo={},
    )
