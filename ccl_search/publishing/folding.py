"""Folding: a simulated trace in a few per cent of its gzip size, and back, byte for byte.

Simulated traces repeat: five recorded steps, dozens of equal layers. What keeps gzip from seeing it are the time stamps
and ids in every event. Folding takes the events apart: a list of distinct lines with those numbers taken out, the order
in which lines follow each other, and one column for each kind of number (time stamps and ids as differences, which
repeat where the events repeat). Only text that unfolds to itself is ever folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import msgspec

FORMAT = "ccl-search folded trace 1"
_NUMBER = re.compile(r'"(ts|dur|correlation|Seq)":(0|[1-9]\d{0,17})(\.\d{3})?(?=[,}])')
_MARK = re.compile("\x00[A-Za-z]+[.]?")
_START, _BETWEEN, _END = '"traceEvents":[\n', ",\n", "\n]"
_DIFFERENCES = ("ts", "ts.", "correlation", "Seq", "Seq.", "correlation.")


class Folded(msgspec.Struct, forbid_unknown_fields=True):
    """`head` and `tail` stand around the events; `order` are indices of `lines`; `columns` are the numbers by kind."""

    format: str
    head: str
    tail: str
    lines: list[str]
    order: list[int]
    columns: dict[str, list[int]]


def fold(data: bytes) -> bytes | None:
    """The folded form of a trace's text; None where folding would not give back exactly these bytes."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    head, start, rest = text.partition(_START)
    body, end, tail = rest.rpartition(_END)
    if not start or not end or "\x00" in text:
        return None
    lines: dict[str, int] = {}
    columns = _Columns()
    order = [lines.setdefault(columns.taken_out(line), len(lines)) for line in body.split(_BETWEEN)]
    folded = Folded(FORMAT, head + start, end + tail, list(lines), order, columns.values)
    same = b"".join(part.encode() for part in _parts(folded)) == data
    return msgspec.json.encode(folded) if same else None


def unfold(data: bytes, size: int) -> bytes:
    """The trace that was folded, which has `size` bytes.

    Raises:
        ValueError: this is no folded trace, or it unfolds to another size.
    """
    try:
        folded = msgspec.json.decode(data, type=Folded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no folded trace: {error}") from error
    if folded.format != FORMAT:
        raise ValueError(f"the folded trace has the format {folded.format!r}, {FORMAT!r} is known")
    found = bytearray()
    try:
        for part in _parts(folded):
            found += part.encode()
            if len(found) > size:
                raise ValueError(f"the folded trace holds more than the {size} bytes it should")
    except (IndexError, KeyError, TypeError, OverflowError) as error:
        raise ValueError("the folded trace is damaged: lines and numbers do not match") from error
    if len(found) != size:
        raise ValueError(f"the folded trace holds {len(found)} bytes where it should hold {size}")
    return bytes(found)


class _Columns:
    """The numbers taken out of lines, by kind: `ts` for whole ones, `ts.` for those with three decimals."""

    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {}
        self._last: dict[str, int] = {}

    def taken_out(self, line: str) -> str:
        return _NUMBER.sub(self._take, line)

    def _take(self, match: re.Match[str]) -> str:
        name, whole, decimals = match.groups()
        kind = name + ("." if decimals else "")
        value = int(whole) * 1000 + int(decimals[1:]) if decimals else int(whole)
        column = self.values.setdefault(kind, [])
        if kind in _DIFFERENCES:
            column.append(value - self._last.get(kind, 0))
            self._last[kind] = value
        else:
            column.append(value)
        return f'"{name}":\x00{kind}'


def _parts(folded: Folded) -> Iterator[str]:
    """The text in pieces: head, every line with the number that belongs at each mark, tail."""
    numbers = {kind: iter(_texts(kind, column)) for kind, column in folded.columns.items()}
    patterns = [_MARK.sub("%s", line.replace("%", "%%")) for line in folded.lines]
    sources = [tuple(numbers[mark[1:]] for mark in _MARK.findall(line)) for line in folded.lines]
    yield folded.head
    for place, index in enumerate(folded.order):
        line = patterns[index] % tuple(map(next, sources[index]))
        yield _BETWEEN + line if place else line
    yield folded.tail


def _texts(kind: str, column: list[int]) -> list[str]:
    values = accumulate(column) if kind in _DIFFERENCES else column
    if not kind.endswith("."):
        return list(map(str, values))
    return [f"{value // 1000}.{value % 1000:03d}" for value in values]
