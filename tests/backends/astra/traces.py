"""Small inputs made in memory: traces of a few nodes on one switch, written where a program would read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.astra.simulate import InputPaths
from backends.exchange.chakra import EtNode, ExecutionTrace, NodeKind, write_trace
from backends.exchange.inputs import AstraInputs
from backends.exchange.values import boolean, int64, string

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["direct"], "local-mem-bw": 1600,
}  # fmt: skip


def work(number: int, micros: int, deps: tuple[int, ...] = ()) -> EtNode:
    return EtNode(number, f"work{number}", NodeKind.COMP, deps, (), {"is_cpu_op": boolean(False)}, micros)


def collective(number: int, size: int, deps: tuple[int, ...] = (), group: str | None = None, kind: int = 0) -> EtNode:
    named = {"pg_name": string(group)} if group else {}
    facts = {"is_cpu_op": boolean(False), "comm_type": int64(kind), "comm_size": int64(size), **named}
    return EtNode(number, f"coll{number}", NodeKind.COMM_COLL, deps, (), facts)


def message(number: int, source: int, target: int, size: int, sends: bool, deps: tuple[int, ...] = ()) -> EtNode:
    kind = NodeKind.COMM_SEND if sends else NodeKind.COMM_RECV
    ends = {"comm_src": int64(source), "comm_dst": int64(target), "comm_tag": int64(3), "comm_size": int64(size)}
    return EtNode(number, f"msg{number}", kind, deps, (), {"is_cpu_op": boolean(False), **ends})


def write(
    folder: Path, ranks: Sequence[Sequence[EtNode]], groups: dict[str, list[int]] | None = None,
    system: dict[str, Any] | None = None, network: str | None = None,
) -> InputPaths:  # fmt: skip
    """Write the inputs of a run of `ranks` on one switch (or on the network.yml text `network`)."""
    for rank, nodes in enumerate(ranks):
        write_trace(folder / f"w.{rank}.et", ExecutionTrace(nodes=tuple(nodes)))
    (folder / "system.json").write_text(json.dumps({**SYSTEM, **(system or {})}), encoding="utf-8")
    text = network or f"topology: [Switch]\nnpus_count: [{len(ranks)}]\nbandwidth: [100]\nlatency: [500]\n"
    (folder / "network.yml").write_text(text, encoding="utf-8")
    paths = InputPaths(folder / "w", folder / "system.json", network=folder / "network.yml")
    if groups is not None:
        (folder / "groups.json").write_text(json.dumps(groups), encoding="utf-8")
        paths = replace(paths, comm_group=folder / "groups.json")
    return paths


def load(folder: Path, ranks: Sequence[Sequence[EtNode]], **rest: Any) -> AstraInputs:
    """The inputs of `write`, read back."""
    return write(folder, ranks, **rest).load()
