"""The protobuf wire format: varints, tags, fixed-width numbers and length-delimited fields.

Source: the encoding section of the Protocol Buffers documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_LARGEST = 1 << 64


class WireError(ValueError):
    """Bytes that are no protobuf; `offset` counts from the beginning of the buffer."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class Field(NamedTuple):
    """One field of a message.

    `number` of a varint field; the others lie at `start` to `end` of the buffer. `tag` is where the field begins.
    """

    key: int
    kind: int
    number: int
    start: int
    end: int
    tag: int


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The unsigned number that begins at `at`, and where it ends.

    Raises:
        WireError: it runs beyond `end` or 64 bits.
    """
    value = shift = 0
    for place in range(at, min(end, at + 10)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _LARGEST:
                raise WireError("a number has more than 64 bits", at)
            return value, place + 1
        shift += 7
    raise WireError("a number has more than 64 bits" if end - at >= 10 else "cut off inside a number", at)


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message at `start` to `end`, in the order they are stored.

    Raises:
        WireError: the bytes are no message.
    """
    at = start
    while at < end:
        tag = at
        head, at = read_varint(data, at, end)
        key, kind = head >> 3, head & 7
        if key == 0 or kind not in (VARINT, FIXED64, DELIMITED, FIXED32):
            raise WireError(f"no field has the tag {head}", tag)
        if kind == VARINT:
            number, after = read_varint(data, at, end)
            yield Field(key, kind, number, at, after, tag)
            at = after
            continue
        length, at = read_varint(data, at, end) if kind == DELIMITED else (_WIDTHS[kind], at)
        if length > end - at:
            raise WireError(f"field {key} is {length} bytes long, {end - at} are left", tag)
        yield Field(key, kind, 0, at, at + length, tag)
        at += length


def varint(value: int) -> bytes:
    """An unsigned number of at most 64 bits."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def tag(key: int, kind: int) -> bytes:
    """What stands before a field."""
    return varint(key << 3 | kind)


def delimited(key: int, content: bytes) -> bytes:
    """A field of text, bytes, a message or packed numbers."""
    return tag(key, DELIMITED) + varint(len(content)) + content


def text_field(key: int, text: str) -> bytes:
    """A text field; nothing for empty text, as proto3 has it."""
    return delimited(key, text.encode()) if text else b""


def number_field(key: int, value: int) -> bytes:
    """A varint field; nothing for zero, as proto3 has it."""
    return tag(key, VARINT) + varint(value) if value else b""
