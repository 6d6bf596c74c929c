"""What a metric is (`MetricSpec`) and what a metric tool answers (`MetricValue`). Both are stored with a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Direction(StrEnum):
    """Which way a metric improves."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


@dataclass(frozen=True)
class MetricSpec:
    """A metric's identity: name, tool version, unit, direction, and where it applies.

    `formats` are trace families (`kineto`, `xla`, `nsys`), `phases` workload phases (`training`, `inference`);
    an empty tuple means any. `aliases` are other names the CLI accepts.
    """

    name: str
    version: str
    unit: str
    direction: Direction
    label: str = ""
    description: str = ""
    formats: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricValue:
    """A finite `value` in `unit`, or None with the `reason` why there is none. Never both, never a sentinel.

    Raises:
        ValueError: the value is not finite, or value and reason are both given or both missing.
    """

    name: str
    version: str
    unit: str
    value: float | None
    reason: str | None = None
    detail: dict[str, Any] | None = None
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.value is None and not self.reason:
            raise ValueError(f"{self.name}: a metric without a value needs a reason")
        if self.value is not None and (self.reason or not math.isfinite(self.value)):
            raise ValueError(f"{self.name}: a value must be finite and stand without a reason, got {self.value!r}")

    @classmethod
    def of(cls, spec: MetricSpec, value: float, **more: Any) -> MetricValue:
        """A value of `spec`; `more` may hold `detail` and `warnings`."""
        return cls(spec.name, spec.version, spec.unit, float(value), **more)

    @classmethod
    def none(cls, spec: MetricSpec, reason: str, **more: Any) -> MetricValue:
        """No value of `spec`, and why."""
        return cls(spec.name, spec.version, spec.unit, None, reason, **more)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: every field, with `warnings` as a list."""
        return {**vars(self), "warnings": list(self.warnings)}
