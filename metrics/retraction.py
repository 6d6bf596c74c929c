"""Retracted tool versions: which stored values must not be trusted any more, and why."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import metrics.registry as registry


@dataclass(frozen=True)
class Retraction:
    """Versions of a metric tool that gave wrong values. `metric` is a name, or `*` for all."""

    metric: str
    versions: tuple[str, ...]
    reason: str
    replaced_by: str | None = None

    def covers(self, metric: str, version: str) -> bool:
        """Whether a value of this metric and version is affected."""
        return self.metric in ("*", metric) and version in self.versions


@cache
def retractions() -> tuple[Retraction, ...]:
    """The bundled table `data/retracted.toml` and what third-party tools declare as `RETRACTED`."""
    text = resources.files("metrics").joinpath("data", "retracted.toml").read_text(encoding="utf-8")
    bundled = [_entry(entry) for entry in tomllib.loads(text).get("retracted", [])]
    declared = [r for tool in registry.every_tool(registry.plugins()).values() for r in getattr(tool, "RETRACTED", ())]
    return (*bundled, *declared)


def _entry(data: dict[str, Any]) -> Retraction:
    return Retraction(data["metric"], tuple(data["versions"]), data["reason"], data.get("replaced_by"))


def retracted(metric: str, version: str, table: Iterable[Retraction] | None = None) -> Retraction | None:
    """The retraction that covers a stored value, or None when it stands."""
    return next((r for r in (retractions() if table is None else table) if r.covers(metric, version)), None)
