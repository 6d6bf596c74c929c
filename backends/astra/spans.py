"""From the times that ASTRA-sim logs to what each rank did: work, transfers once they are under way, and waiting.

The program counts a communication from the moment a rank asks for it. A collective is under way once its last member
has asked, a message once its sender has: what comes before is waiting, and is kept apart from communication here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from backends.astra.output import Operation as Logged
from backends.exchange.execution import Span
from backends.exchange.inputs import AstraInputs
from backends.exchange.operations import CollectiveCall, MessageCall, operation


def spans_of(inputs: AstraInputs, logged: Iterable[Logged]) -> tuple[list[list[Span]], int]:
    """The spans of every rank by start, and how many nodes of the traces the log does not have."""
    nodes = [{node.id: node for node in trace.nodes} for trace in inputs.traces]
    found: list[list[Span]] = [[] for _ in inputs.traces]
    for one in logged:
        node = nodes[one.rank].pop(one.node, None) if one.rank < len(nodes) else None
        if node is not None:
            what = operation(inputs, one.rank, node)
            found[one.rank].append(Span(node, what, one.start, one.start, one.end))
    return _under_way(found), sum(len(left) for left in nodes)


def _under_way(spans: list[list[Span]]) -> list[list[Span]]:
    """The same spans, with the moment each transfer got under way."""
    moments: dict[Any, int] = defaultdict(int)
    keys: list[list[Any]] = []
    for mine in spans:
        turns: dict[Any, int] = defaultdict(int)
        keys.append([])
        for span in mine:
            key = _key(span)
            if key is not None:
                key = (key, turns[key, _asks(span)])
                turns[key[0], _asks(span)] += 1
            keys[-1].append(key)
            if key is not None and not _asks(span):
                moments[key] = max(moments[key], span.start)
    return [
        [_moved(span, moments[key]) if key in moments else span for span, key in zip(mine, theirs, strict=True)]
        for mine, theirs in zip(spans, keys, strict=True)
    ]


def _key(span: Span) -> Any:
    what = span.what
    if isinstance(what, CollectiveCall):
        return what.group
    return (what.source, what.target, what.tag) if isinstance(what, MessageCall) else None


def _asks(span: Span) -> bool:
    """Whether it only waits for what somebody else sets in motion."""
    return isinstance(span.what, MessageCall) and not span.what.sends


def _moved(span: Span, moment: int) -> Span:
    return replace(span, moving=min(max(span.start, moment), span.end))
