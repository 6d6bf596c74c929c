"""Which kernels communicate, what they do, and which serve a mixture of experts: rules as data, applied to names and
arguments.

The data and its sources are in `data/kernel_names.toml`. Order of trust: collective arguments, the launching host
annotation, then an anchored name table; free words such as "broadcast" never decide.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from metrics.traces.timeline import MOE, CopyKind, Op


@cache
def _data() -> dict[str, Any]:
    text = resources.files("metrics").joinpath("data", "kernel_names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _any_of(table: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_scoped(entry['pattern'])})" for entry in _data()[table]))


def _scoped(pattern: str) -> str:
    """A global `(?i)` as a scoped flag, so that patterns of one table can be joined."""
    return f"(?i:{pattern[4:]})" if pattern.startswith("(?i)") else pattern


@cache
def _operations() -> list[tuple[re.Pattern[str], Op]]:
    return [(re.compile(entry["pattern"]), Op[entry["op"].upper()]) for entry in _data()["operation"]]


@cache
def _collective_names() -> dict[str, Op]:
    return {name: Op[op.upper()] for op, names in _data()["collective_names"].items() for name in names}


@cache
def _element_bytes() -> dict[str, int]:
    return {name: int(size) for size, names in _data()["element_bytes"].items() for name in names}


@cache
def _xla_categories() -> dict[str, Op]:
    return {name: Op[op.upper()] for op, names in _data()["xla_categories"].items() for name in names}


def communicates(name: str) -> bool:
    """Whether a kernel of this name moves data between devices, by the anchored table."""
    return _any_of("communication").search(name) is not None


def flags(name: str) -> int:
    """`MOE` or 0."""
    return MOE if _any_of("moe").search(name) else 0


def op_of_kernel(name: str) -> Op:
    """The operation a communication kernel's own name suggests; `UNKNOWN` for SendRecv and generic kernels."""
    return next((op for pattern, op in _operations() if pattern.search(name)), Op.UNKNOWN)


@lru_cache(maxsize=1024)
def op_of_collective(name: str) -> Op:
    """The operation of a "Collective name" argument or of `nccl:<name>`; `UNKNOWN` for a name not in the table."""
    word = name.rsplit(":", 1)[-1].split(" ", 1)[0]
    return _collective_names().get(word.lower().replace("_", "").rstrip(","), Op.UNKNOWN)


def op_of_hlo(category: str) -> Op | None:
    """The collective of an XLA `hlo_category`, or None when it is none."""
    return _xla_categories().get(category)


@lru_cache(maxsize=1024)
def element_bytes(dtype: str) -> int | None:
    """Bytes of one element of a dtype as collective arguments or HLO text spell it; None when unknown."""
    return _element_bytes().get(dtype.lower())


_DIRECTIONS = (("HtoD", CopyKind.H2D), ("DtoH", CopyKind.D2H), ("DtoD", CopyKind.D2D), ("PtoP", CopyKind.P2P))


def copy_kind(name: str) -> CopyKind:
    """The direction of a Kineto transfer record, from names such as `Memcpy HtoD (Pinned -> Device)`."""
    if name.startswith("Memset"):
        return CopyKind.MEMSET
    return next((kind for text, kind in _DIRECTIONS if text in name), CopyKind.OTHER)
