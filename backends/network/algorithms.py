"""Collective algorithms as schedules of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backends.network.collective import Kind
from runs.errors import BadInputError

Group = Sequence[int]
Transfer = tuple[int, int, float]


@dataclass(frozen=True)
class Stage:
    """Messages (source, target, bytes) that may go at once, `repeat` times over.

    A rank sends its messages of a round once it has received all that earlier rounds address to it. `reduces`: the
    receiver reduces what arrives; `one_by_one`: buffer after buffer, as a tree node does with its children. `delay` are
    seconds that every sender spends before it sends. `reduced` is the share of a message that the reduction is charged
    with.
    """

    messages: tuple[Transfer, ...]
    repeat: int = 1
    reduces: bool = False
    one_by_one: bool = False
    delay: float = 0.0
    reduced: float = 1.0


Schedule = list[Stage]


def merge(schedules: Sequence[Schedule]) -> Schedule:
    """Schedules of different groups side by side; those of one shape stay as compact as each of them."""
    shapes = {tuple((s.repeat, s.reduces, s.one_by_one) for s in schedule) for schedule in schedules}
    if len(shapes) > 1:
        schedules = [_unrolled(schedule) for schedule in schedules]
    length = max((len(schedule) for schedule in schedules), default=0)
    merged: Schedule = []
    for index in range(length):
        stages = [schedule[index] for schedule in schedules if index < len(schedule)]
        messages = tuple(message for stage in stages for message in stage.messages)
        merged.append(replace(stages[0], messages=messages, reduces=any(stage.reduces for stage in stages)))
    return merged


def _unrolled(schedule: Schedule) -> Schedule:
    return [replace(stage, repeat=1) for stage in schedule for _ in range(stage.repeat)]


def _around(group: Group, size: float) -> tuple[Transfer, ...]:
    return tuple((rank, group[(index + 1) % len(group)], size) for index, rank in enumerate(group))


def _pairs(group: Group, size: float) -> tuple[Transfer, ...]:
    return tuple((a, group[(i + k) % len(group)], size) for k in range(1, len(group)) for i, a in enumerate(group))


def ring(kind: Kind, size: float, group: Group) -> Schedule:
    """Neighbour to neighbour: n-1 steps of size/n each for scatter and gather; all-to-all relays n(n-1)/2 times."""
    n = len(group)
    around = _around(group, size / n)
    scatter, gather = Stage(around, n - 1, reduces=True), Stage(around, n - 1)
    if kind == "broadcast":
        return [Stage(((a, b, size),)) for a, b in pairwise(group)]
    steps: dict[str, Schedule] = {
        "all_reduce": [scatter, gather],
        "reduce_scatter": [scatter],
        "all_gather": [gather],
        "all_to_all": [Stage(around, n * (n - 1) // 2)],
    }
    return steps[kind]


def direct(kind: Kind, size: float, group: Group) -> Schedule:
    """Every rank to every other at once; an all-reduce is a scatter and a gather."""
    if kind == "broadcast":
        return [Stage(tuple((group[0], rank, size) for rank in group[1:]))]
    pairs = _pairs(group, size / len(group))
    scatter, other = Stage(pairs, reduces=True), Stage(pairs)
    return {"all_reduce": [scatter, other], "reduce_scatter": [scatter]}.get(kind, [other])


def _exchange(group: Group, distance: int, size: float) -> tuple[Transfer, ...]:
    return tuple((rank, group[index ^ distance], size) for index, rank in enumerate(group))


def halving_doubling(kind: Kind, size: float, group: Group) -> Schedule:
    """Recursive vector halving, distance doubling, and back (Thakur et al. 2005); all-to-all over a hypercube.

    An all-reduce of other than a power of two ranks folds the rest into the first ranks and unfolds it at the end.
    Where reductions take time (as in ASTRA-sim), each step is charged with the next, smaller message, the last with
    nothing.
    """
    power = 1 << (len(group).bit_length() - 1)
    core, rest = group[:power], group[power:]
    if rest and kind != "all_reduce":
        raise BadInputError(
            f"halving_doubling {kind} of {len(group)} ranks", "it needs a power of two; choose ring or direct"
        )
    levels = range(power.bit_length() - 1)
    if kind == "broadcast":
        return _spread(size, core)
    if kind == "all_to_all":
        return [Stage(_exchange(core, 1 << k, size / 2)) for k in levels]
    down = [
        Stage(_exchange(core, 1 << k, size / (2 << k)), reduces=True, reduced=0.5 if k + 1 < len(levels) else 0.0)
        for k in levels
    ]
    up = [Stage(_exchange(core, 1 << k, size / (2 << k))) for k in reversed(levels)]
    fold = [Stage(tuple((rank, core[i], size) for i, rank in enumerate(rest)), reduces=True)] if rest else []
    unfold = [Stage(tuple((core[i], rank, size) for i, rank in enumerate(rest)))] if rest else []
    return {"all_reduce": [*fold, *down, *up, *unfold], "reduce_scatter": down}.get(kind, up)


def _spread(size: float, group: Group) -> Schedule:
    """Binomial broadcast from the first rank."""
    distances = [1 << k for k in reversed(range((len(group) - 1).bit_length()))]
    return [
        Stage(tuple((group[i], group[i + d], size) for i in range(0, len(group), 2 * d) if i + d < len(group)))
        for d in distances
    ]


def _parent(rank: int, ranks: int) -> int | None:
    """Parent in the in-order binary tree over 0 … ranks-1 whose root is 0 (Sanders et al. 2009)."""
    if rank == 0:
        return None
    low = rank & -rank
    above = (rank ^ low) | (low << 1)
    return above if above < ranks else rank ^ low


def _tree_levels(ranks: int) -> list[list[tuple[int, int]]]:
    """(child, parent) pairs, the deepest level first."""
    parents = {rank: _parent(rank, ranks) for rank in range(ranks)}

    def depth(rank: int) -> int:
        above = parents[rank]
        return 0 if above is None else 1 + depth(above)

    levels: dict[int, list[tuple[int, int]]] = {}
    for rank, above in parents.items():
        if above is not None:
            levels.setdefault(depth(rank), []).append((rank, above))
    return [levels[level] for level in sorted(levels, reverse=True)]


def _tree(kind: Kind, size: float, group: Group, one_by_one: bool = False) -> Schedule:
    levels = _tree_levels(len(group))
    up = [
        Stage(tuple((group[c], group[p], size) for c, p in level), reduces=True, one_by_one=one_by_one)
        for level in levels
    ]
    down = [Stage(tuple((group[p], group[c], size) for c, p in level)) for level in reversed(levels)]
    return down if kind == "broadcast" else [*up, *down]


def double_binary_tree(kind: Kind, size: float, group: Group) -> Schedule:
    """Two trees, half the buffer each, the leaves of one inside the other (Sanders, Speck, Träff 2009).

    A broadcast has one root, hence one tree.
    """
    if kind == "broadcast":
        return _tree(kind, size, group)
    mirrored = list(reversed(group)) if len(group) % 2 == 0 else [*group[1:], group[0]]
    return merge([_tree(kind, size / 2, group), _tree(kind, size / 2, mirrored)])


def double_binary_tree_astra(kind: Kind, size: float, group: Group, chunk: int = 0) -> Schedule:
    """What ASTRA-sim runs under the name: the full buffer over every edge of one tree.

    The chunks of a collective take the tree rooted at the last rank and the one rooted at the first in turns.

    Raises:
        BadInputError: the ranks are no power of two (ASTRA-sim crashes there).
    """
    if len(group) & (len(group) - 1):
        raise BadInputError(
            f"double_binary_tree_astra of {len(group)} ranks", "it needs a power of two; choose double_binary_tree"
        )
    return _tree(kind, size, group if chunk % 2 else list(reversed(group)), one_by_one=True)


def send_recv(kind: Kind, size: float, group: Group) -> Schedule:
    """One message from the first rank to the second."""
    return [Stage(((group[0], group[1], size),))]


BUILDERS: dict[str, Callable[[Kind, float, Group], Schedule]] = {
    "ring": ring,
    "direct": direct,
    "halving_doubling": halving_doubling,
    "double_binary_tree": double_binary_tree,
    "double_binary_tree_astra": double_binary_tree_astra,
}
TREES = ("double_binary_tree", "double_binary_tree_astra")
TREE_KINDS = ("all_reduce", "broadcast")
