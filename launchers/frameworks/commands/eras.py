"""Eras: the spellings of a framework's arguments between two of its releases, read from `launchers/frameworks/eras`.

An era file has `framework`, `default` (the version taken where nobody names one), `known_until` (the newest release
the tables were read from) and a list `eras`, oldest first. See docs/frameworks.md for the fields of an era.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import resources
from typing import Any

import yaml

Version = tuple[int, ...]
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_NIGHTLY = re.compile(r"(?:^|dev|[-_.])(20\d\d)[-.]?(0[1-9]|1[0-2])[-.]?(0[1-9]|[12]\d|3[01])(?!\d)")


@dataclass(frozen=True)
class Era:
    """The arguments of a framework in a range of versions (upper ends are not part of it).

    `start` are the words before the arguments, `constant` those that are always given. `knobs` and `facts` map names
    to how a value of them is spelled (see `words`). `models` maps a model family to what the framework calls it.
    `traces` are patterns in the trace folder, `traces_per_rank` how many files a rank leaves there. `profiler` are the
    words (or program lines) that switch the profiler on, `step_log` how a log line tells a step's length (`StepLog`).
    """

    framework: str
    name: str
    source: str
    versions: tuple[str | None, str | None] = (None, None)
    dates: tuple[str | None, str | None] = (None, None)
    form: str = "flags"
    start: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    traces: tuple[str, ...] = ()
    traces_per_rank: int = 1
    profiler: tuple[str, ...] = ()
    step_log: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Eras:
    """All eras of a framework, oldest first."""

    framework: str
    default: str
    known_until: str
    eras: tuple[Era, ...]


@cache
def read(framework: str) -> Eras:
    """The eras of `framework`, from its file."""
    file = resources.files("launchers.frameworks").joinpath("eras", f"{framework}.yaml")
    data: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    found = tuple(_era(framework, entry) for entry in data["eras"])
    return Eras(framework, str(data["default"]), str(data["known_until"]), found)


def pick(framework: str, version: str) -> tuple[Era, str | None]:
    """The era that `version` falls into, and a warning where that is a guess.

    A version is a release (`0.2.2`, `v0.19.0`, `core_r0.12.0`), a day (`2026-05-01`, or the day of a nightly as in
    `0.1.0.dev20251215+cu126`), or any other text, which stands for the newest era.
    """
    table = read(framework)
    if len(table.eras) == 1:
        return table.eras[0], None
    text = version.strip() or table.default
    day, release = day_of(text), release_of(text)
    if day is not None:
        return _by_day(table, text, day)
    if release:
        return _by_release(table, text, release)
    newest = table.eras[-1]
    return newest, f"{framework} {text!r} is no release: taken as {newest.name}, the newest known"


def day_of(version: str) -> date | None:
    """The day that a version names, or None."""
    found = _NIGHTLY.search(version)
    return date(*(int(part) for part in found.groups())) if found else None


def release_of(version: str) -> Version:
    """The numbers of a release; empty where a version has none."""
    found = _NUMBERS.search(version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _by_release(table: Eras, text: str, release: Version) -> tuple[Era, str | None]:
    released = [era for era in table.eras if era.versions != (None, None)]
    for era in released:
        low, high = (release_of(bound) if bound else None for bound in era.versions)
        if (low is None or release >= low) and (high is None or release < high):
            known = release_of(table.known_until)
            newer = high is None and day_of(table.known_until) is None and release > known
            note = f"{table.framework} {text} is newer than {table.known_until}: taken as {era.name}" if newer else None
            return era, note
    nearest = _nearest(released, release)
    return nearest, f"{table.framework} {text} is in no known era: taken as {nearest.name}, the nearest"


def _by_day(table: Eras, text: str, day: date) -> tuple[Era, str | None]:
    dated = [era for era in table.eras if era.dates != (None, None)]
    for era in dated:
        low, high = (date.fromisoformat(bound) if bound else None for bound in era.dates)
        if (low is None or day >= low) and (high is None or day < high):
            known = day_of(table.known_until)
            newer = high is None and known is not None and day > known
            note = f"{table.framework} {text} is newer than {table.known_until}: taken as {era.name}" if newer else None
            return era, note
    nearest = dated[0] if dated else table.eras[-1]
    return nearest, f"{table.framework} {text} is in no known era: taken as {nearest.name}, the nearest"


def _nearest(released: Sequence[Era], release: Version) -> Era:
    """The last era that begins before `release`; the first one if none does."""
    before = [era for era in released if era.versions[0] and release_of(era.versions[0]) <= release]
    return before[-1] if before else released[0]


_SEQUENCES = ("versions", "dates", "start", "constant", "traces", "profiler")
_OWN = tuple(name for name in Era.__dataclass_fields__ if name not in ("framework", "more"))


def _era(framework: str, entry: Mapping[str, Any]) -> Era:
    own: dict[str, Any] = {key: value for key, value in entry.items() if key in _OWN}
    own |= {key: tuple(value) for key, value in own.items() if key in _SEQUENCES}
    return Era(framework=framework, more={key: entry[key] for key in entry if key not in _OWN}, **own)
