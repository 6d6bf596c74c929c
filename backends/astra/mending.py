"""Traces that ASTRA-sim would never end, mended: collectives of one rank, and of all ranks beside groups."""

from __future__ import annotations

from dataclasses import replace

from backends.exchange.chakra import EtNode, ExecutionTrace, NodeKind
from backends.exchange.inputs import AstraInputs
from backends.exchange.values import string


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


def with_world_named(inputs: AstraInputs, traces: tuple[ExecutionTrace, ...]) -> tuple[dict[int, ExecutionTrace], str]:
    """The traces with collectives of all ranks under a group's name, and the name; nothing where none is needed.

    ASTRA-sim numbers a collective of all ranks by how many collectives of any group its rank has begun. Ranks that
    differ in that (stages of a pipeline) wait for each other for ever; a group of all ranks is numbered by itself.
    """
    before = [_before(trace) for trace in traces]
    if all(counts == before[0] for counts in before):
        return {}, ""
    name = str(1 + max((int(group) for group in inputs.groups), default=0))
    return {
        rank: replace(trace, nodes=tuple(_named(n, name) for n in trace.nodes)) for rank, trace in enumerate(traces)
    }, name


def _before(trace: ExecutionTrace) -> list[int]:
    """For each collective of all ranks, in the order of ids, how many collectives have a smaller id."""
    collectives = sorted((node for node in trace.nodes if node.kind is NodeKind.COMM_COLL), key=lambda node: node.id)
    return [place for place, node in enumerate(collectives) if _is_world(node)]


def _is_world(node: EtNode) -> bool:
    name = node.get("pg_name") or "0"
    whole = isinstance(name, str) and name.isdigit() and int(name) == 0
    return node.kind is NodeKind.COMM_COLL and whole and "involved_dim" not in node.attributes


def _named(node: EtNode, name: str) -> EtNode:
    if not _is_world(node):
        return node
    return replace(node, attributes={**node.attributes, "pg_name": string(name)})
