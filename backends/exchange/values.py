"""Attribute values of a Chakra node, each with the protobuf type it has in the file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from backends.exchange import wire
from backends.exchange.wire import Field, WireError

_MASK32, _MASK64 = 2**32 - 1, 2**64 - 1
_FIRST = 3  # field number of double_val; the others follow in the order of the schema, each with its list


@dataclass(frozen=True, slots=True)
class Value:
    """`type` is the schema's name without `_val` (`int64`, `bool`, `string`, `bool_list`, …); a list is a tuple.

    Equal values of different types are different: ASTRA-sim refuses some attributes that have an unexpected type.
    """

    type: str
    value: Any

    def __post_init__(self) -> None:
        if self.type not in _NUMBERS:
            raise ValueError(f"no attribute type is called {self.type!r}")


def int32(value: int) -> Value:
    return Value("int32", value)


def int64(value: int) -> Value:
    return Value("int64", value)


def uint64(value: int) -> Value:
    return Value("uint64", value)


def boolean(value: bool) -> Value:
    return Value("bool", value)


def string(value: str) -> Value:
    return Value("string", value)


def _signed(bits: int) -> Callable[[int], int]:
    half = 1 << (bits - 1)
    return lambda raw: ((raw & (2 * half - 1)) ^ half) - half


def _zigzag(bits: int) -> Callable[[int], int]:
    return lambda raw: ((raw & ((1 << bits) - 1)) >> 1) ^ -(raw & 1)


@dataclass(frozen=True, slots=True)
class _Codec:
    """How one scalar type lies on the wire: `layout` of fixed width, or `decode` and `encode` of a varint."""

    kind: int
    layout: str = ""
    decode: Callable[[int], Any] = int
    encode: Callable[[Any], int] = int


def _varint(decode: Callable[[int], Any], encode: Callable[[Any], int]) -> _Codec:
    return _Codec(wire.VARINT, "", decode, encode)


_SCALARS: dict[str, _Codec] = {
    "double": _Codec(wire.FIXED64, "<d"),
    "float": _Codec(wire.FIXED32, "<f"),
    "int32": _varint(_signed(32), lambda value: value & _MASK64),
    "int64": _varint(_signed(64), lambda value: value & _MASK64),
    "uint32": _varint(lambda raw: raw & _MASK32, int),
    "uint64": _varint(int, int),
    "sint32": _varint(_zigzag(32), lambda value: ((value << 1) ^ (value >> 31)) & _MASK32),
    "sint64": _varint(_zigzag(64), lambda value: ((value << 1) ^ (value >> 63)) & _MASK64),
    "fixed32": _Codec(wire.FIXED32, "<I"),
    "fixed64": _Codec(wire.FIXED64, "<Q"),
    "sfixed32": _Codec(wire.FIXED32, "<i"),
    "sfixed64": _Codec(wire.FIXED64, "<q"),
    "bool": _varint(bool, int),
    "string": _Codec(wire.DELIMITED),
    "bytes": _Codec(wire.DELIMITED),
}
_NUMBERS: dict[str, int] = {
    name: _FIRST + 2 * place + is_list
    for place, scalar in enumerate(_SCALARS)
    for is_list, name in enumerate((scalar, f"{scalar}_list"))
}
_TYPES = {number: name for name, number in _NUMBERS.items()}


@lru_cache(maxsize=4096)
def decode_attribute(data: bytes) -> tuple[str, str, Value | None]:
    """Name, doc string and value of an attribute message; the last value given counts, None if there is none.

    Raises:
        WireError: the bytes are no such message; its offset counts from their beginning.
    """
    name = doc = ""
    value: Value | None = None
    for field in wire.fields(data, 0, len(data)):
        if field.key == 1:
            name = decode_text(data, field)
        elif field.key == 2:
            doc = decode_text(data, field)
        elif field.key in _TYPES:
            value = Value(_TYPES[field.key], _decode_value(data, field, _TYPES[field.key]))
    return name, doc, value


def decode_text(data: bytes, field: Field) -> str:
    """The text of a field.

    Raises:
        WireError: the field is no text, or not in UTF-8.
    """
    expect(field, wire.DELIMITED)
    try:
        return data[field.start : field.end].decode()
    except UnicodeDecodeError as error:
        raise WireError("a text is not in UTF-8", field.start) from error


def expect(field: Field, kind: int) -> None:
    """Return if the field is encoded as `kind`.

    Raises:
        WireError: it is not.
    """
    if field.kind != kind:
        raise WireError(f"field {field.key} has the wrong encoding", field.tag)


def _decode_value(data: bytes, field: Field, name: str) -> Any:
    if not name.endswith("_list"):
        return _decode_scalar(data, field, name)
    expect(field, wire.DELIMITED)
    scalar, found = name.removesuffix("_list"), []
    for one in wire.fields(data, field.start, field.end):
        if one.key != 1:
            continue
        packed = one.kind == wire.DELIMITED and _SCALARS[scalar].kind != wire.DELIMITED
        found += _unpack(data, one, scalar) if packed else [_decode_scalar(data, one, scalar)]
    return tuple(found)


def _decode_scalar(data: bytes, field: Field, scalar: str) -> Any:
    codec = _SCALARS[scalar]
    expect(field, codec.kind)
    if codec.kind == wire.VARINT:
        return codec.decode(field.number)
    if codec.layout:
        return struct.unpack(codec.layout, data[field.start : field.end])[0]
    return decode_text(data, field) if scalar == "string" else data[field.start : field.end]


def _unpack(data: bytes, field: Field, scalar: str) -> list[Any]:
    codec = _SCALARS[scalar]
    if codec.kind == wire.VARINT:
        return [codec.decode(number) for number in unpack_varints(data, field)]
    width = struct.calcsize(codec.layout)
    if (field.end - field.start) % width:
        raise WireError("a list of numbers ends inside a number", field.start)
    return [one[0] for one in struct.iter_unpack(codec.layout, data[field.start : field.end])]


def unpack_varints(data: bytes, field: Field) -> list[int]:
    """The numbers of a repeated field, packed (many in one field) or not (one a field)."""
    if field.kind == wire.VARINT:
        return [field.number]
    expect(field, wire.DELIMITED)
    found, at = [], field.start
    while at < field.end:
        number, at = wire.read_varint(data, at, field.end)
        found.append(number)
    return found


def encode_attribute(name: str, doc: str, value: Value | None) -> bytes:
    """An attribute message.

    Raises:
        ValueError: the value does not fit its type.
    """
    head = wire.text_field(1, name) + wire.text_field(2, doc)
    if value is None:
        return head
    try:
        return head + _encode_value(value)
    except (struct.error, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"attribute {name}: {value.value!r} is no {value.type}") from error


def _encode_value(value: Value) -> bytes:
    key = _NUMBERS[value.type]
    if not value.type.endswith("_list"):
        return _encode_scalar(key, value.type, value.value)
    scalar = value.type.removesuffix("_list")
    if _SCALARS[scalar].kind == wire.DELIMITED:
        content = b"".join(_encode_scalar(1, scalar, one) for one in value.value)
    else:
        packed = b"".join(_bare(scalar, one) for one in value.value)
        content = wire.delimited(1, packed) if packed else b""
    return wire.delimited(key, content)


def _encode_scalar(key: int, scalar: str, value: Any) -> bytes:
    codec = _SCALARS[scalar]
    if codec.kind == wire.DELIMITED:
        return wire.delimited(key, value.encode() if scalar == "string" else bytes(value))
    return wire.tag(key, codec.kind) + _bare(scalar, value)


def _bare(scalar: str, value: Any) -> bytes:
    codec = _SCALARS[scalar]
    if codec.layout:
        return struct.pack(codec.layout, value)
    if codec.decode(codec.encode(value)) != value:
        raise OverflowError(value)
    raw = codec.encode(value)
    if not 0 <= raw <= _MASK64:
        raise OverflowError(value)
    return wire.varint(raw)
