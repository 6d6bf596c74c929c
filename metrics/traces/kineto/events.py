"""The events of a Kineto file as msgspec structs, and exact integer nanoseconds from their decimal microseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from metrics.traces.timeline import Ints

_EMPTY = msgspec.Raw(b"")


class KernelArgs(msgspec.Struct, gc=False):
    """Arguments of a device event that a metric reads."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    coverage: Any = msgspec.field(default=None, name="blocks per SM")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    dtype: Any = None
    sequence: Any = msgspec.field(default=None, name="Seq")


class LaunchArgs(msgspec.Struct, gc=False):
    """Arguments of a runtime or driver call."""

    correlation: Any = None


class MemoryArgs(msgspec.Struct, gc=False):
    """Arguments of a `[memory]` instant."""

    device_type: Any = msgspec.field(default=None, name="Device Type")
    device: Any = msgspec.field(default=None, name="Device Id")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")


class DeviceEvent(msgspec.Struct, gc=False):
    """A kernel, copy or memset."""

    args: KernelArgs | None = None
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY


class LaunchEvent(msgspec.Struct, gc=False):
    """A runtime or driver call."""

    args: LaunchArgs | None = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY


class AnyEvent(msgspec.Struct, gc=False):
    """Any other event; its arguments stay raw until they are wanted."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: msgspec.Raw = _EMPTY


KERNEL_CATS = frozenset({"kernel", "Kernel"})
COPY_CATS = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
DEVICE_CATS = KERNEL_CATS | COPY_CATS
LAUNCH_CATS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "mtia_runtime"})

_EXACT = re.compile(rb"(?:(?:\d{1,15}|[0-3]\d{15})\.\d{3} )++")  # below 2**62 ns, so that a start and a duration add up
_WHOLE = re.compile(rb"(?:(?:\d{1,15}|[0-3]\d{15}) )++")
_LIMIT = 2**62
_PLAIN = re.compile(r"-?\d+(?:\.\d+)?")


def nanoseconds(texts: Sequence[Any]) -> tuple[Ints, dict[int, str]]:
    """Exact integer nanoseconds of decimal microseconds as JSON writes them, and the rows that are no time, with the
    word why.

    Absolute epoch times keep every digit: a float64 of them would step by 0.25 µs. More than three decimals are
    rounded.
    """
    joined = b" ".join(texts) + b" "
    if _EXACT.fullmatch(joined):
        return np.fromstring(joined.translate(None, b"."), np.int64, sep=" "), {}
    if _WHOLE.fullmatch(joined):
        return np.fromstring(joined, np.int64, sep=" ") * 1000, {}
    out, bad = np.zeros(len(texts), np.int64), {}
    for row, text in enumerate(texts):
        value = _one(bytes(text).decode("ascii", "replace").strip('" '))
        if isinstance(value, str):
            bad[row] = value
        else:
            out[row] = value
    return out, bad


def _one(text: str) -> int | str:
    """Nanoseconds, or a word for what stands there instead of a time."""
    value = _decimal(text)
    return value if isinstance(value, str) or abs(value) < _LIMIT else "out of range"


def _decimal(text: str) -> int | str:
    if _PLAIN.fullmatch(text):
        whole, _, decimals = text.partition(".")
        tail = decimals[3:4]
        magnitude = int(whole.lstrip("-") + (decimals + "000")[:3]) + (1 if tail >= "5" else 0)
        return -magnitude if text.startswith("-") else magnitude
    try:
        value = float(text)
    except ValueError:
        return text if text in ("null", "") else f"{text[:20]!r}"
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity"
    return round(value * 1000)


def integers(values: list[Any]) -> Ints:
    """A column of integers; texts of digits count, anything else is -1, and so is what 64 bits cannot hold."""
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -_LIMIT <= number <= _LIMIT else -1


def real(value: Any) -> float:
    """A real number; NaN for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
