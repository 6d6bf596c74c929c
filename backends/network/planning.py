"""Which schedule a collective runs on a topology: the algorithm, its levels, and the stated choice of `auto`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from backends.network.algorithms import (
    BUILDERS,
    TREE_KINDS,
    TREES,
    Group,
    Schedule,
    double_binary_tree_astra,
    merge,
    send_recv,
)
from backends.network.collective import Collective, Kind
from backends.network.topology import Topology

SMALL_ALL_REDUCE = 256 * 1024


def chosen_algorithm(collective: Collective, topology: Topology) -> str:
    """The algorithm that runs: as named, trees giving way to ring where they serve no such kind, `auto` decided.

    auto, as communication libraries of the NCCL family decide: point to point and all-to-all direct; within a full
    mesh direct, which uses all its cables as their several rings do; an all-reduce or broadcast of less than 256 KiB
    over more than four ranks by trees; groups that span several nodes evenly by rings, one for each rank of a node,
    which leaves and enters nodes there; broadcasts over them, and lines of a torus, hierarchical; the rest by ring.
    """
    named = collective.algorithm or "auto"
    if collective.kind == "send_recv":
        return "direct"
    if named in TREES and collective.kind not in TREE_KINDS:
        return "direct" if collective.kind == "all_to_all" else "ring"
    return named if named != "auto" else _auto(collective, topology)


def _auto(collective: Collective, topology: Topology) -> str:
    if collective.kind == "all_to_all":
        return "direct"
    if topology.shape and all(levels(topology, group) for group in collective.groups):
        return "hierarchical"
    if all(_meshed(topology, group) for group in collective.groups):
        return "direct"
    if collective.kind in TREE_KINDS and collective.nbytes < SMALL_ALL_REDUCE and len(collective.groups[0]) > 4:
        return "double_binary_tree"
    if all(levels(topology, group) for group in collective.groups):
        return "hierarchical" if collective.kind == "broadcast" else "multi_ring"
    return "ring"


def _meshed(topology: Topology, group: Group) -> bool:
    """Whether the ranks are joined by cables of their own."""
    pairs = [(a, b) for a in group[:4] for b in group if a != b]
    return all(len(topology.route(a, b)) == 1 for a, b in pairs) and not topology.shape


def levels(topology: Topology, group: Group) -> list[list[int]] | None:
    """The group as equal rows, one a scale-up domain (torus: one a line of the first dimension); None where uneven."""
    domain = topology.tiers[0] if topology.tiers else None
    if domain is None and len(topology.shape) > 1:
        domain = tuple(device // topology.shape[0] for device in range(topology.devices))
    if domain is None:
        return None
    rows: dict[int, list[int]] = {}
    for rank in group:
        rows.setdefault(domain[rank], []).append(rank)
    sizes = {len(row) for row in rows.values()}
    return list(rows.values()) if len(rows) > 1 and len(sizes) == 1 and sizes != {1} else None


def schedule(collective: Collective, topology: Topology, algorithm: str, nbytes: float, chunk: int = 0) -> Schedule:
    """The merged schedule of all groups of more than one rank, for chunk number `chunk` of `nbytes` a rank."""
    groups = [group for group in collective.groups if len(group) > 1]
    if collective.kind == "send_recv":
        return merge([send_recv(collective.kind, nbytes, group) for group in groups])
    builders: dict[str, Callable[[Kind, float, Group], Schedule]] = {
        **BUILDERS,
        "hierarchical": partial(_hierarchical, topology),
        "multi_ring": partial(_multi_ring, topology),
        "double_binary_tree_astra": partial(double_binary_tree_astra, chunk=chunk),
    }
    merged = merge([builders[algorithm](collective.kind, nbytes, group) for group in groups])
    return [stage for stage in merged if stage.messages and stage.repeat]


def variants(algorithm: str) -> int:
    """After how many chunks the schedules repeat."""
    return 2 if algorithm == "double_binary_tree_astra" else 1


def _inner(topology: Topology, kind: Kind, size: float, row: Group) -> Schedule:
    return BUILDERS["direct" if _meshed(topology, row) else "ring"](kind, size, row)


def _multi_ring(topology: Topology, kind: Kind, size: float, group: Group) -> Schedule:
    """As many rings as a domain has ranks of the group, each with its part and its own ranks at the domain's borders.

    What crosses a border is that of one ring over all ranks, 2 (n-1)/n of the buffer in an all-reduce; where every
    rank has a network card of its own, all of them carry it.
    """
    rows = levels(topology, group)
    if rows is None or kind == "broadcast":
        return BUILDERS["direct" if kind == "all_to_all" else "ring"](kind, size, group)
    count = len(rows[0])
    orders = [[rank for row in rows for rank in (*row[turn:], *row[:turn])] for turn in range(count)]
    return merge([BUILDERS["ring"](kind, size / count, order) for order in orders])


def _hierarchical(topology: Topology, kind: Kind, size: float, group: Group) -> Schedule:
    """Inside the domains and across them, so that each byte crosses the slow level once a domain; else ring."""
    rows = levels(topology, group)
    if rows is None:
        return BUILDERS["direct" if kind == "all_to_all" else "ring"](kind, size, group)
    columns = [list(column) for column in zip(*rows, strict=True)]
    part = size / len(rows[0])

    def inside(step: Kind) -> Schedule:
        return merge([_inner(topology, step, size, row) for row in rows])

    def across(step: Kind, amount: float) -> Schedule:
        name = "direct" if step == "all_to_all" else "ring"
        return merge([BUILDERS[name](step, amount, column) for column in columns])

    if kind == "broadcast":
        return [*BUILDERS["ring"](kind, size, columns[0]), *inside("broadcast")]
    if kind == "all_to_all":
        return [*inside(kind), *across(kind, size)]
    if kind == "all_gather":
        return [*across(kind, part), *inside(kind)]
    if kind == "reduce_scatter":
        return [*inside(kind), *across(kind, part)]
    return [*inside("reduce_scatter"), *across("all_reduce", part), *inside("all_gather")]
