"""Lanes as bytes and back, for the cache and for reading in other processes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np

from metrics.traces.timeline import Collectives, Copies, Kernels, Lane, Marks, Samples, Steps

_INTS, _REALS = 1, 2
_TABLES = {
    "kernels": Kernels, "collectives": Collectives, "copies": Copies,
    "steps": Steps, "marks": Marks, "samples": Samples,
}  # fmt: skip


def encode(lanes: list[Lane], warnings: list[str]) -> bytes:
    """Lanes of one file and the warnings about it as one blob."""
    return msgspec.msgpack.encode([[_plain(lane) for lane in lanes], warnings], enc_hook=_array)


def _plain(table: Any) -> dict[str, Any]:
    out = {}
    for field in fields(table):
        if field.name != "memo":
            value = getattr(table, field.name)
            out[field.name] = _plain(value) if is_dataclass(value) else value
    return out


def _array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        whole = np.issubdtype(value.dtype, np.integer)
        kind, dtype = (_INTS, "<i8") if whole else (_REALS, "<f8")
        return msgspec.msgpack.Ext(kind, np.ascontiguousarray(value, dtype).tobytes())
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot store {type(value).__name__}")


def _back(kind: int, data: memoryview) -> Any:
    return np.frombuffer(data, "<i8" if kind == _INTS else "<f8")


def decode(blob: bytes) -> tuple[list[Lane], list[str]]:
    """The inverse of `encode`; the columns are read-only views of `blob`.

    Raises:
        ValueError: the blob is not what `encode` wrote (another version, a damaged file).
    """
    try:
        lanes, warnings = msgspec.msgpack.decode(blob, ext_hook=_back)
        return [_lane(lane) for lane in lanes], list(warnings)
    except (msgspec.MsgspecError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not a stored trace: {error}") from error


def _lane(data: dict[str, Any]) -> Lane:
    tables = {name: kind(**data.pop(name)) for name, kind in _TABLES.items()}
    return Lane(**{**data, **tables, "ranks": tuple(data["ranks"])})
