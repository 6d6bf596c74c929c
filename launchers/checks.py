"""One line of a diagnosis: what was looked at, how it went, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, how it went, what was found, and the fix where it did not go well."""

    name: str
    level: Level
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Check:
    """A check that went well."""
    return Check(name, Level.OK, found)


def bad(name: str, found: str, fix: str, level: Level = Level.FAIL) -> Check:
    """A check that did not; `fix` is what to do."""
    return Check(name, level, found, fix)
