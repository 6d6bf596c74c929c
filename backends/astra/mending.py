"""Collectives of one rank, which ASTRA-sim never ends, taken out of traces before a run."""

from __future__ import annotations

from dataclasses import replace

from backends.exchange.chakra import EtNode, ExecutionTrace, NodeKind
from backends.exchange.inputs import AstraInputs


def without_lone_collectives(inputs: AstraInputs) -> tuple[dict[int, ExecutionTrace], int]:
    """The traces that change, by rank, and how many nodes go.

    What depended on such a node depends on what it depended on; a rank that has nothing else keeps the node out all
    the same, so that its trace can become empty.
    """
    changed: dict[int, ExecutionTrace] = {}
    gone = 0
    for rank, trace in enumerate(inputs.traces):
        lone = {node.id: node for node in trace.nodes if _is_alone(inputs, node)}
        if lone:
            changed[rank] = replace(trace, nodes=_bridged(trace.nodes, lone))
            gone += len(lone)
    return changed, gone


def _is_alone(inputs: AstraInputs, node: EtNode) -> bool:
    name = node.get("pg_name")
    if node.kind is not NodeKind.COMM_COLL or not isinstance(name, str) or not name.isdigit() or not int(name):
        return False
    return len(inputs.groups.get(str(int(name)), ())) == 1


def _bridged(nodes: tuple[EtNode, ...], lone: dict[int, EtNode]) -> tuple[EtNode, ...]:
    kept = []
    for node in nodes:
        if node.id in lone:
            continue
        if any(dep in lone for dep in node.deps):
            node = replace(node, data_deps=_through(node.deps, lone), ctrl_deps=())
        kept.append(node)
    return tuple(kept)


def _through(deps: tuple[int, ...], lone: dict[int, EtNode]) -> tuple[int, ...]:
    """`deps` with nodes of `lone` replaced by what those depend on, in the end."""
    found: dict[int, None] = {}
    waiting, seen = list(deps), set[int]()
    while waiting:
        dep = waiting.pop(0)
        if dep in seen:
            continue
        seen.add(dep)
        if dep in lone:
            waiting += lone[dep].deps
        else:
            found[dep] = None
    return tuple(found)
