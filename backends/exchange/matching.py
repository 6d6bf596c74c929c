"""Whether the ranks of a run agree: collectives of a group, messages sent and received, and an order that ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from backends.exchange.execution import Calls, Execution, UnitTransport
from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, MessageCall
from runs.errors import BadInputError

Mismatch = tuple[str, str, str]
"""Where, what, hint."""


def match_calls(inputs: AstraInputs, calls: Calls, rehearse: bool = True) -> Iterator[Mismatch]:
    """Every disagreement between ranks; only where there is none of these, the first place that waits for ever.

    Without `rehearse` the latter is left to the run itself, which finds it too.
    """
    found = [*_collectives(inputs, calls), *_messages(inputs, calls)]
    yield from found
    if rehearse and not found:
        try:
            Execution(inputs, calls, UnitTransport()).run()
        except BadInputError as error:
            where, _, what = error.message.partition(")")
            yield f"{where})", what.lstrip(": "), error.hint


def _collectives(inputs: AstraInputs, calls: Calls) -> Iterator[Mismatch]:
    """Groups whose members do not run the same kinds, sizes and numbers of collectives."""
    asked: dict[str, dict[int, Counter[tuple[str, int]]]] = defaultdict(dict)
    members: dict[str, tuple[int, ...]] = {}
    for rank, mine in enumerate(calls):
        for _, what in mine:
            if isinstance(what, CollectiveCall) and len(what.members) > 1:
                members[what.group] = what.members
                asked[what.group].setdefault(rank, Counter())[what.kind, what.size] += 1
    for group, counts in asked.items():
        everything = Counter[tuple[str, int]]()
        for count in counts.values():
            everything |= count
        for rank in members[group]:
            lacking = everything - counts.get(rank, Counter())
            if lacking:
                (kind, size), times = next(iter(lacking.items()))
                where = _first(inputs, calls, group, (kind, size))
                reason = f"{kind} of {size} bytes in group {group}: rank {rank} runs {times} fewer than others of it"
                yield where, reason, "let all ranks of a group run the same collectives of the same sizes"
                break


def _first(inputs: AstraInputs, calls: Calls, group: str, asked: tuple[str, int]) -> str:
    for rank, mine in enumerate(calls):
        for node, what in mine:
            if isinstance(what, CollectiveCall) and what.group == group and (what.kind, what.size) == asked:
                return inputs.where(rank, node)
    return str(inputs.prefix)


def _messages(inputs: AstraInputs, calls: Calls) -> Iterator[Mismatch]:
    """Messages that only one side knows of, or that the two sides size differently."""
    posts: dict[tuple[int, int, int], dict[bool, list[tuple[int, str]]]] = {}
    for rank, mine in enumerate(calls):
        for node, what in mine:
            if isinstance(what, MessageCall):
                sides = posts.setdefault((what.source, what.target, what.tag), {True: [], False: []})
                sides[what.sends].append((what.size, inputs.where(rank, node)))
    for (source, target, tag), sides in posts.items():
        sent, asked = sides[True], sides[False]
        name = f"message from rank {source} to rank {target} with tag {tag}"
        if len(sent) != len(asked):
            is_short = len(sent) < len(asked)
            where = (asked if is_short else sent)[min(len(sent), len(asked))][1]
            reason = "is received but never sent" if is_short else "is sent but never received"
            yield where, f"{name} {reason}", "give both sides the same tag, and each message both a send and a receive"
        elif Counter(size for size, _ in sent) != Counter(size for size, _ in asked):
            (size, where), other = next(
                (s, a) for s, a in zip(sorted(sent), sorted(asked), strict=True) if s[0] != a[0]
            )
            yield where, f"{name} has {size} bytes here, {other[0]} at {other[1]}", "give both sides the same size"
