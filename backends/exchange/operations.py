"""What the nodes of a trace ask for, as ASTRA-sim understands their attributes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from backends.exchange.chakra import CommKind, EtNode, NodeKind
from backends.exchange.inputs import AstraInputs
from backends.exchange.settings import is_digits, shown
from backends.exchange.values import Value
from backends.network.collective import Kind
from runs.errors import BadInputError

_INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_KINDS: dict[CommKind, Kind] = {
    CommKind.ALL_REDUCE: "all_reduce",
    CommKind.ALL_GATHER: "all_gather",
    CommKind.BROADCAST: "broadcast",
    CommKind.ALL_TO_ALL: "all_to_all",
    CommKind.REDUCE_SCATTER: "reduce_scatter",
}
WORLD = "world"
_LARGEST = 10**18
"""No figure of a trace is larger; sums of a few thousand of them stay within what times are counted in."""
_LONGEST = 10**12
"""Microseconds that one node may take: eleven days."""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A rank's part in a collective: `size` as in the file (the share of a rank for all_gather, else its buffer).

    `group` names the communicator: `world`, a number of comm_group.json, or a line along `dims` (places of the network
    dimensions that take part; empty for a numbered group).
    """

    kind: Kind
    size: int
    group: str
    members: tuple[int, ...]
    dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A message that this rank sends (`sends`) or waits for."""

    sends: bool
    source: int
    target: int
    tag: int
    size: int


@dataclass(frozen=True, slots=True)
class Work:
    """`nanoseconds` on the device (`gpu`) or the host (`cpu`); None: the roofline skips the node, no time at all."""

    nanoseconds: int | None
    unit: str = "gpu"


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """`size` bytes to or from remote memory."""

    size: int


Operation = CollectiveCall | MessageCall | Work | MemoryAccess


def operation(inputs: AstraInputs, rank: int, node: EtNode) -> Operation:
    """What `node` of `rank` does.

    Raises:
        BadInputError: an attribute is missing or of a type that ASTRA-sim refuses, the collective is unsupported, the
            group unknown or the rank no member, or the kind of node cannot run. Names file and node.
    """
    where = inputs.where(rank, node)
    if node.kind is NodeKind.COMP:
        return _work(inputs, node, where)
    if node.kind is NodeKind.COMM_COLL:
        return _collective(inputs, rank, node, where)
    if node.kind in (NodeKind.COMM_SEND, NodeKind.COMM_RECV):
        return _message(inputs, rank, node, where)
    if node.kind in (NodeKind.MEM_LOAD, NodeKind.MEM_STORE):
        return _memory(inputs, node, where)
    raise BadInputError(
        f"{where}: nodes of kind {node.kind.name} cannot run", "remove the node and join what it depends on"
    )


def integer(node: EtNode, name: str, where: str, default: int | None = None) -> int:
    """An integer attribute of zero or more.

    Raises:
        BadInputError: it is missing and has no default, no integer, or below zero.
    """
    found = node.attributes.get(name)
    if found is None:
        if default is None:
            raise BadInputError(f"{where}: attribute {name} is missing", f"write {name} as an integer")
        return default
    if found.type not in _INTEGERS:
        raise BadInputError(f"{where}: {name} is a {found.type}, ASTRA-sim takes integers only", f"write {name} as one")
    if not 0 <= found.value <= _LARGEST:
        raise BadInputError(f"{where}: {name} is {found.value}", "write zero or more, within reason")
    return int(found.value)


def _work(inputs: AstraInputs, node: EtNode, where: str) -> Work:
    if node.duration_micros > _LONGEST:
        raise BadInputError(f"{where}: duration_micros is {node.duration_micros}", "write microseconds")
    if node.is_cpu_op:
        return Work(max(1, 1000 * node.duration_micros), "cpu")
    if not inputs.system.roofline:
        return Work(max(1, 1000 * node.duration_micros))
    flops, nbytes = integer(node, "num_ops", where), integer(node, "tensor_size", where)
    return Work(roofline_ns(inputs, flops, nbytes) if nbytes else None)


def roofline_ns(inputs: AstraInputs, flops: int, nbytes: int) -> int:
    """max(FLOPs / peak, bytes / bandwidth) in whole ns (Williams et al. 2009).

    Raises:
        BadInputError: the system file lacks one of the two.
    """
    system = inputs.system
    for name, figure in (("peak-perf", system.peak), ("local-mem-bw", system.local_bandwidth)):
        if not figure:
            raise BadInputError(f"{system.where}: the roofline needs {name}", "give it, or set roofline-enabled to 0")
    return int(1e9 * max(flops / system.peak, nbytes / system.local_bandwidth))


def _collective(inputs: AstraInputs, rank: int, node: EtNode, where: str) -> CollectiveCall:
    try:
        kind = _KINDS.get(CommKind(integer(node, "comm_type", where)))
    except ValueError:
        kind = None
    if kind is None:
        raise BadInputError(
            f"{where}: comm_type {node.get('comm_type')} is no collective that ASTRA-sim runs",
            "use all-reduce 0, all-gather 2, broadcast 5, all-to-all 6 or reduce-scatter 7",
        )
    size = integer(node, "comm_size", where)
    if size * inputs.ranks > _LARGEST:
        raise BadInputError(f"{where}: comm_size is {size}", "write the bytes of one rank")
    group, members, dims = _members(inputs, rank, node, where)
    return CollectiveCall(kind, size, group, members, dims)


def _members(inputs: AstraInputs, rank: int, node: EtNode, where: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    name = _group_name(node, where)
    if name is None:
        return _line(inputs, rank, node, where)
    members = inputs.groups.get(name)
    if members is None:
        place = inputs.groups_path or "no communicator file is given"
        raise BadInputError(f"{where}: group {name} is not there ({place})", "name a file that has the group")
    if rank not in inputs.members[name]:
        raise BadInputError(
            f"{where}: rank {rank} is no member of group {name}, {_short(members)}", "correct pg_name or the group"
        )
    if inputs.highest[name] >= inputs.ranks:
        raise BadInputError(
            f"{where}: group {name} has rank {inputs.highest[name]}, the network has {inputs.ranks}",
            "take the ranks out or take a larger network",
        )
    everybody = len(members) == inputs.ranks
    return name, members, tuple(range(len(inputs.dims))) if everybody else ()


def _short(ranks: tuple[int, ...]) -> str:
    return f"ranks {', '.join(map(str, ranks[:8]))}{', …' if len(ranks) > 8 else ''}"


def _group_name(node: EtNode, where: str) -> str | None:
    found = node.attributes.get("pg_name")
    if found is None:
        return None
    if found.type != "string" or not (found.value == "" or is_digits(found.value)):
        raise BadInputError(
            f"{where}: pg_name is the {found.type} {shown(found.value)}", "write it as a string that holds an integer"
        )
    return str(int(found.value)) if found.value and int(found.value) else None


def _line(inputs: AstraInputs, rank: int, node: EtNode, where: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The ranks that differ from `rank` only in the dimensions that `involved_dim` names; all of them by default."""
    found: Any = node.attributes.get("involved_dim", Value("bool_list", ()))
    if found is None or found.type != "bool_list":
        raise BadInputError(f"{where}: involved_dim is no list of bools", "write it as a bool_list")
    flags = [*found.value, *[True] * len(inputs.dims)][: len(inputs.dims)]
    dims = tuple(place for place, is_in in enumerate(flags) if is_in)
    if not dims:
        raise BadInputError(f"{where}: involved_dim takes part in no dimension", "set one of its entries")
    if len(dims) == len(inputs.dims):
        return WORLD, tuple(range(inputs.ranks)), dims
    members = line(inputs.dims, rank, dims)
    return f"dims {'+'.join(map(str, dims))} from {members[0]}", members, dims


def line(sizes: tuple[int, ...], rank: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that differ from `rank` at most in `dims`, of a grid of `sizes` whose first dimension is fastest."""
    strides = [1]
    for size in sizes[:-1]:
        strides.append(strides[-1] * size)
    base = rank - sum((rank // strides[d] % sizes[d]) * strides[d] for d in dims)
    offsets = [[strides[d] * place for place in range(sizes[d])] for d in reversed(dims)]
    return tuple(base + sum(steps) for steps in product(*offsets))


def _message(inputs: AstraInputs, rank: int, node: EtNode, where: str) -> MessageCall:
    sends = node.kind is NodeKind.COMM_SEND
    own, other = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
    peer, stated = integer(node, other, where), integer(node, own, where, rank)
    if stated != rank:
        raise BadInputError(f"{where}: {own} is {stated} in the trace of rank {rank}", f"write {own} {rank}")
    if peer >= inputs.ranks:
        raise BadInputError(f"{where}: {other} is {peer}, the network has {inputs.ranks} ranks", "correct the rank")
    if peer == rank:
        raise BadInputError(f"{where}: rank {rank} sends to itself", "leave the message out")
    ends = (rank, peer) if sends else (peer, rank)
    return MessageCall(sends, *ends, integer(node, "comm_tag", where, 0), integer(node, "comm_size", where))


def _memory(inputs: AstraInputs, node: EtNode, where: str) -> MemoryAccess:
    size = integer(node, "tensor_size", where)
    if inputs.memory is None or not inputs.memory.exists:
        raise BadInputError(
            f"{where}: there is no remote memory", "name a remote memory file of another type than NO_MEMORY_EXPANSION"
        )
    return MemoryAccess(size)
