"""Usable values out of what a card says: a value of the right kind, or None."""

from __future__ import annotations

import math
import re
from typing import Any

_VERSIONED = re.compile(r"(?P<name>.+?)-(?P<version>v?\d+(?:\.[\w+]+)*)")


def whole(value: Any) -> int | None:
    """An integer as it is, else None (True is no integer, nor is 8.0)."""
    return value if type(value) is int else None


def count(value: Any) -> int | None:
    """An integer above zero, else None."""
    return value if type(value) is int and value > 0 else None


def number(value: Any) -> int | float | None:
    """A finite number as it is, else None."""
    return value if type(value) in (int, float) and math.isfinite(value) else None


def positive(value: Any) -> int | float | None:
    """A finite number above zero as it is, else None."""
    return value if number(value) is not None and value > 0 else None


def text(value: Any) -> str | None:
    """Text that is not blank, without blanks around it, else None."""
    return value.strip() or None if isinstance(value, str) else None


def entries(value: Any) -> list[Any]:
    """A list as it is; nothing for anything else."""
    return value if isinstance(value, list) else []


def family(value: Any) -> str | None:
    """A model family in the spelling all cards are compared by: `Qwen-3_4B` is `qwen3-4b`."""
    name = text(value)
    return name and name.lower().replace("_", "-").replace("qwen-3-", "qwen3-")


def split_version(name: str) -> tuple[str, str | None]:
    """A framework's name without a version at its end, and that version: `torchtitan-0.1.0`."""
    match = _VERSIONED.fullmatch(name)
    return (match["name"], match["version"]) if match else (name, None)
