"""Chakra execution traces (the MLCommons schema): one file a rank, GlobalMetadata and then a message a node.

Every message is preceded by its length as a varint. Attribute values are `Value`s, which keep the protobuf type they
have in the file; `EtNode.get` gives the plain value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from backends.exchange import wire
from backends.exchange.values import (
    Value,
    decode_attribute,
    decode_text,
    encode_attribute,
    expect,
    unpack_varints,
)
from backends.exchange.wire import Field, WireError
from runs.errors import BadInputError

_DAMAGED = "the file is damaged or no Chakra trace; write it again"
_VERSION = "0.0.4"
_T = TypeVar("_T")


class NodeKind(IntEnum):
    """What a node does; numbers of the schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10


class CommKind(IntEnum):
    """Values of the attribute `comm_type`; numbers of the schema."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True)
class EtNode:
    """One operation of a rank.

    `attributes` maps names to `Value`s (None: the attribute is there without a value). `duration_micros` is the time
    of a computation in whole µs. `inputs` and `outputs` are what the producer noted about tensors: `values`, `shapes`
    and `types` as JSON text, None where the file has none. `docs` are the attributes' doc strings, `unknown` fields
    of a newer schema, both written back as they were.
    """

    id: int
    name: str
    kind: NodeKind
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    duration_micros: int = 0
    start_micros: int = 0
    inputs: dict[str, str] | None = None
    outputs: dict[str, str] | None = None
    docs: dict[str, str] = field(default_factory=dict)
    unknown: bytes = b""

    def get(self, name: str, default: Any = None) -> Any:
        """The plain value of an attribute, `default` where the node lacks it."""
        found = self.attributes.get(name)
        return found.value if isinstance(found, Value) else default

    @property
    def deps(self) -> tuple[int, ...]:
        """All nodes that must end before this one; both kinds count alike."""
        return self.data_deps + self.ctrl_deps

    @property
    def is_cpu_op(self) -> bool:
        """Whether it runs on the host; false where the file does not say."""
        return bool(self.get("is_cpu_op", False))


@dataclass(frozen=True)
class ExecutionTrace:
    """One rank's file. `metadata` has `version` (text) and, where the file has some, `attributes` (name to `Value`)."""

    metadata: dict[str, Any] = field(default_factory=lambda: {"version": _VERSION})
    nodes: tuple[EtNode, ...] = ()


def read_trace(path: Path) -> ExecutionTrace:
    """The trace in a file, which may be empty of nodes.

    Raises:
        BadInputError: the file cannot be read, is cut off, or is no Chakra trace; names the byte or the node.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}", "name the trace file of a rank") from error
    return decode_trace(data, str(path))


def write_trace(path: Path, trace: ExecutionTrace, known: dict[int, bytes] | None = None) -> None:
    """Write a trace; equal traces give equal bytes. `known` is as for `encode_trace`.

    Raises:
        BadInputError: a number or text does not fit its type.
        OSError: the file cannot be written.
    """
    path.write_bytes(encode_trace(trace, str(path), known))


def decode_trace(data: bytes, where: str = "trace") -> ExecutionTrace:
    """The trace in bytes; `where` is what errors call them.

    Raises:
        BadInputError: they are no Chakra trace.
    """
    if not data:
        raise BadInputError(f"{where} is empty", "write the trace again; an empty rank still has a metadata message")
    start, end = _message(data, 0, where)
    metadata = _guarded(_decode_metadata, data, start, end, f"{where}: metadata")
    nodes: list[EtNode] = []
    while end < len(data):
        start, end = _message(data, end, where)
        label = f"{where}: message {len(nodes) + 1} (after node {nodes[-1].id if nodes else 'none'})"
        nodes.append(_guarded(_decode_node, data, start, end, label))
    return ExecutionTrace(metadata, tuple(nodes))


def _message(data: bytes, at: int, where: str) -> tuple[int, int]:
    """Where the message whose length stands at `at` begins and ends."""
    try:
        length, start = wire.read_varint(data, at, len(data))
    except WireError as error:
        raise BadInputError(f"{where}: byte {at}: {error.reason}", _DAMAGED) from error
    if length > len(data) - start:
        raise BadInputError(
            f"{where}: byte {at}: a message of {length} bytes is cut off after {len(data) - start}", _DAMAGED
        )
    return start, start + length


def _guarded(decode: Callable[[bytes, int, int], _T], data: bytes, start: int, end: int, label: str) -> _T:
    try:
        return decode(data, start, end)
    except WireError as error:
        raise BadInputError(f"{label}, byte {error.offset}: {error.reason}", _DAMAGED) from error


def _decode_metadata(data: bytes, start: int, end: int) -> dict[str, Any]:
    found: dict[str, Any] = {"version": ""}
    attributes: dict[str, Value | None] = {}
    for one in wire.fields(data, start, end):
        if one.key == 1:
            found["version"] = decode_text(data, one)
        elif one.key == 2:
            _add_attribute(data, one, attributes, {})
    return {**found, "attributes": attributes} if attributes else found


def _add_attribute(data: bytes, one: Field, attributes: dict[str, Value | None], docs: dict[str, str]) -> None:
    expect(one, wire.DELIMITED)
    try:
        name, doc, value = decode_attribute(data[one.start : one.end])
    except WireError as error:
        raise WireError(error.reason, one.start + error.offset) from error
    if name in attributes and attributes[name] != value:
        raise WireError(f"attribute {name!r} has two values", one.start)
    attributes[name] = value
    if doc:
        docs[name] = doc


_NUMBERS = {1: "id", 6: "start_micros", 7: "duration_micros"}
_DEPS = {4: "ctrl_deps", 5: "data_deps"}
_IO = {8: "inputs", 9: "outputs"}
_IO_TEXTS = ("values", "shapes", "types")


def _decode_node(data: bytes, start: int, end: int) -> EtNode:
    found: dict[str, Any] = {"id": 0, "name": "", "kind": NodeKind.INVALID, "attributes": {}, "docs": {}}
    deps: dict[str, list[int]] = {"ctrl_deps": [], "data_deps": []}
    unknown = b""
    for one in wire.fields(data, start, end):
        if one.key == 10:
            _add_attribute(data, one, found["attributes"], found["docs"])
        elif one.key in _DEPS:
            deps[_DEPS[one.key]] += unpack_varints(data, one)
        elif one.key in _NUMBERS:
            expect(one, wire.VARINT)
            found[_NUMBERS[one.key]] = one.number
        elif one.key == 2:
            found["name"] = decode_text(data, one)
        elif one.key == 3:
            found["kind"] = _kind(one)
        elif one.key in _IO:
            found[_IO[one.key]] = {**(found.get(_IO[one.key]) or {}), **_decode_io(data, one)}
        else:
            unknown += data[one.tag : one.end]
    found |= {name: tuple(ids) for name, ids in deps.items()}
    return EtNode(**found, unknown=unknown)


def _kind(one: Field) -> NodeKind:
    expect(one, wire.VARINT)
    try:
        return NodeKind(one.number)
    except ValueError as error:
        raise WireError(f"no node has the type {one.number}", one.tag) from error


def _decode_io(data: bytes, one: Field) -> dict[str, str]:
    expect(one, wire.DELIMITED)
    inner = wire.fields(data, one.start, one.end)
    return {_IO_TEXTS[part.key - 1]: decode_text(data, part) for part in inner if 1 <= part.key <= len(_IO_TEXTS)}


def encode_trace(trace: ExecutionTrace, where: str = "trace", known: dict[int, bytes] | None = None) -> bytes:
    """The bytes of a trace, fields in the order of their numbers, as protobuf libraries write them.

    `known` keeps the bytes of nodes by their `id()`, for traces that share nodes; the caller keeps the nodes.

    Raises:
        BadInputError: a number or text does not fit its type; names the node.
    """
    metadata = wire.text_field(1, str(trace.metadata.get("version", "")))
    attributes = trace.metadata.get("attributes", {})
    parts = [_checked(lambda: metadata + _encode_attributes(2, attributes, {}), f"{where}: metadata")]
    found = [wire.varint(len(part)) + part for part in parts]
    done = {} if known is None else known
    for node in trace.nodes:
        if id(node) not in done:
            part = _checked(partial(_encode_node, node), f"{where}: node {node.id}")
            done[id(node)] = wire.varint(len(part)) + part
        found.append(done[id(node)])
    return b"".join(found)


def _checked(encode: Callable[[], bytes], label: str) -> bytes:
    try:
        return encode()
    except ValueError as error:
        raise BadInputError(f"{label}: {error}", "give a value of the attribute's type") from error


def _encode_attributes(key: int, attributes: dict[str, Any], docs: dict[str, str]) -> bytes:
    return b"".join(
        wire.delimited(key, encode_attribute(name, docs.get(name, ""), value)) for name, value in attributes.items()
    )


def _encode_node(node: EtNode) -> bytes:
    for number in (node.id, node.start_micros, node.duration_micros, *node.deps):
        if not 0 <= number < 1 << 64:
            raise ValueError(f"{number} is no unsigned number of 64 bits")
    return b"".join(
        (
            wire.number_field(1, node.id),
            wire.text_field(2, node.name),
            wire.number_field(3, int(node.kind)),
            _packed(4, node.ctrl_deps),
            _packed(5, node.data_deps),
            wire.number_field(6, node.start_micros),
            wire.number_field(7, node.duration_micros),
            _encode_io(8, node.inputs),
            _encode_io(9, node.outputs),
            _encode_attributes(10, node.attributes, node.docs),
            node.unknown,
        )
    )


def _packed(key: int, numbers: tuple[int, ...]) -> bytes:
    return wire.delimited(key, b"".join(map(wire.varint, numbers))) if numbers else b""


def _encode_io(key: int, texts: dict[str, str] | None) -> bytes:
    if texts is None:
        return b""
    return wire.delimited(key, b"".join(wire.text_field(at + 1, texts.get(n, "")) for at, n in enumerate(_IO_TEXTS)))
