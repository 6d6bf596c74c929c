"""The small files beside a trace: communicator groups, remote memory and the logical topology, all of them JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.errors import BadInputError

Groups = dict[str, tuple[int, ...]]
MEMORY_KINDS = ("NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        BadInputError: the file cannot be read, is no JSON, or holds no object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}", "name a file that exists") from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is no JSON: {error}", "correct the file") from error
    if not isinstance(content, dict):
        raise BadInputError(f"{path} holds no object", "write an object in braces")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object, one key a line."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


_DIGITS, _SHOWN = 15, 80
_MOST = 1e12
"""Of a latency in ns or a bandwidth in bytes/ns."""


def is_digits(text: Any) -> bool:
    """Whether `text` is a whole number of zero or more in plain digits, of a length that a count can have."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _DIGITS


def is_whole(value: Any, least: int = 0) -> bool:
    """Whether `value` is an integer (no bool) of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: Any) -> bool:
    """Whether `value` is an integer or a float, and finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def shown(value: Any) -> str:
    """A value as a message quotes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def read_groups(path: Path) -> Groups:
    """Communicator groups by name; members in the order of the file, which is the order of the ring.

    Raises:
        BadInputError: the file is malformed, a name is no integer above zero (0 means all ranks to ASTRA-sim), a
            member is no rank, or stands twice in a group.
    """
    return {name: _members(path, name, ranks) for name, ranks in read_json(path).items()}


def _members(path: Path, name: str, ranks: Any) -> tuple[int, ...]:
    if not is_digits(name) or int(name) < 1:
        raise BadInputError(
            f"{path}: group {shown(name)}: the name is no integer above zero", "number the groups from 1"
        )
    if not isinstance(ranks, list) or not ranks or not all(is_whole(rank) for rank in ranks):
        raise BadInputError(f"{path}: group {name}: {shown(ranks)} is no list of ranks", "list ranks as integers")
    if len(set(ranks)) != len(ranks):
        raise BadInputError(f"{path}: group {name}: a rank stands twice in {shown(ranks)}", "list each rank once")
    return tuple(ranks)


def write_groups(path: Path, groups: Mapping[str, Sequence[int]]) -> None:
    """Write communicator groups.

    Raises:
        BadInputError: a name or a list of ranks that cannot be read back.
    """
    write_json(path, {name: list(_members(path, name, list(ranks))) for name, ranks in groups.items()})


@dataclass(frozen=True)
class RemoteMemory:
    """What memory nodes reach: latency in ns and bandwidth in bytes/ns; `nodes` times `npus_per_node` share pools."""

    kind: str = MEMORY_KINDS[0]
    latency_ns: float = 0.0
    bandwidth: float = 0.0
    nodes: int = 0
    npus_per_node: int = 0

    @property
    def exists(self) -> bool:
        """Whether memory nodes may be used."""
        return self.kind != MEMORY_KINDS[0]


_MEMORY_FIELDS = {
    "latency_ns": "remote-mem-latency",
    "bandwidth": "remote-mem-bw",
    "nodes": "num-nodes",
    "npus_per_node": "num-npus-per-node",
}


def read_remote_memory(path: Path) -> RemoteMemory:
    """The remote memory of a system.

    Raises:
        BadInputError: the file is malformed, its kind is unknown, or a figure that the kind needs is missing.
    """
    content = read_json(path)
    kind = content.get("memory-type")
    if kind not in MEMORY_KINDS:
        raise BadInputError(f"{path}: memory-type is {shown(kind)}", f"choose one of {', '.join(MEMORY_KINDS)}")
    needed = [] if kind == MEMORY_KINDS[0] else ["remote-mem-latency", "remote-mem-bw"]
    needed += ["num-nodes", "num-npus-per-node"] if kind == "PER_NODE_MEMORY_EXPANSION" else []
    for name in needed:
        least = 0 if name == "remote-mem-latency" else 1e-9
        if not is_number(content.get(name)) or not least <= content[name] <= _MOST:
            raise BadInputError(f"{path}: {name} is {shown(content.get(name))}", f"{kind} needs a figure there")
    return RemoteMemory(kind, **{name: content[key] for name, key in _MEMORY_FIELDS.items() if key in needed})


def write_remote_memory(path: Path, memory: RemoteMemory) -> None:
    """Write the remote memory of a system."""
    figures = {key: getattr(memory, name) for name, key in _MEMORY_FIELDS.items() if getattr(memory, name)}
    write_json(path, {"memory-type": memory.kind, **(figures if memory.exists else {})})


def read_logical_topology(path: Path) -> tuple[int, ...]:
    """The logical dimensions of an NS-3 run, first fastest.

    Raises:
        BadInputError: the file is malformed, or a dimension is no text holding an integer above zero (the binary takes
            nothing but text there).
    """
    dims = read_json(path).get("logical-dims")
    if not isinstance(dims, list) or not dims:
        raise BadInputError(f"{path}: there is no list logical-dims", 'write {"logical-dims": ["8", "4"]}')
    for dim in dims:
        if not is_digits(dim) or int(dim) < 1:
            raise BadInputError(f"{path}: logical-dims has {shown(dim)}", 'write each as text, such as "8"')
    return tuple(int(dim) for dim in dims)


def write_logical_topology(path: Path, dims: Sequence[int]) -> None:
    """Write the logical dimensions of an NS-3 run."""
    write_json(path, {"logical-dims": [str(dim) for dim in dims]})
