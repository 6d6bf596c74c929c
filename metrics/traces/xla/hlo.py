"""Facts in HLO text: shapes and their bytes, replica groups, which memory a buffer lives in, operands."""

from __future__ import annotations

import re
from math import prod

import metrics.identify as identify

_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_IOTA_GROUPS = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_LISTED_GROUPS = re.compile(r"replica_groups=\{\{([\d,]*)\}")
_ALL_IN_ONE = re.compile(r"replica_groups=\{\}")
_OPERAND = re.compile(r"%([\w.\-]+)\s*\)?\s*(?:,|\)|$)")
_HOST_MEMORY = "S(5)"


def all_shapes(text: str) -> list[int]:
    """Bytes of every shape in the text whose element type is known, in order."""
    sizes = []
    for dtype, dimensions in _SHAPE.findall(text):
        size = identify.element_bytes(dtype)
        if size is not None:
            sizes.append(size * prod(int(d.lstrip("<=")) for d in dimensions.split(",") if d))
    return sizes


def result_and_operand(long_name: str) -> tuple[str, str]:
    """The text of the result's shape and of the operands, of `%name = SHAPE op(OPERANDS), attributes`."""
    _, _, right = long_name.partition(" = ")
    match = re.search(r"\s[a-z][\w\-]*\(", right)
    if match is None:
        return right, ""
    rest = right[match.end() :]
    return right[: match.start()], rest.split("), ", 1)[0]


def group_size(long_name: str) -> int | None:
    """Devices of one replica group: `[4,2]<=[8]` is 4 groups of 2, `{{0,1},{2,3}}` groups of 2; None when all or
    unsaid."""
    if match := _IOTA_GROUPS.search(long_name):
        return int(match[2])
    if match := _LISTED_GROUPS.search(long_name):
        return len([rank for rank in match[1].split(",") if rank])
    return None


def operand(long_name: str) -> str | None:
    """The name of the last operand: what a `-done` waits for."""
    _, text = result_and_operand(long_name)
    names = _OPERAND.findall(text)
    return names[-1] if names else None


def copy_direction(shape: str) -> str:
    """`H2D`, `D2H` or `D2D` of a copy-start from its result `(destination, source, context)`; host memory is `S(5)`."""
    parts = re.findall(r"[a-z]\w*\[[\d,]*\](?:\{[^}]*\})?", shape)
    if len(parts) < 2:
        return "OTHER"
    destination, source = (_HOST_MEMORY in part for part in parts[:2])
    if destination == source:
        return "OTHER" if destination else "D2D"
    return "D2H" if destination else "H2D"
