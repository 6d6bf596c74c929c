"""Measured step times: distinct configs with their repetitions, and what was left out and why."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload

LEAST = 5
"""Distinct configs below which there is nothing to fit and to hold out."""


@dataclass(frozen=True)
class Measurement:
    """One distinct config of one software stack with all its measured step times in seconds.

    `rows` say where each is from (a line of a file, a trial of a run).
    """

    stack: str
    workload: Workload
    environment: Environment
    plan: ParallelPlan
    seconds: tuple[float, ...]
    rows: tuple[str, ...] = ()

    @property
    def median(self) -> float:
        """The step time, in seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Measurements:
    """What a calibration is fitted to. `dropped` maps a reason to the rows left out for it.

    `source` names the run or file, `sha256` its content (files), `date` the latest day in the data, where it has any.
    """

    source: str
    configs: tuple[Measurement, ...]
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sha256: str | None = None
    date: str | None = None

    @property
    def stacks(self) -> tuple[str, ...]:
        """The software stacks, in order of appearance."""
        return tuple(dict.fromkeys(config.stack for config in self.configs))

    def provenance(self) -> dict[str, Any]:
        """Plain data: where it is from, rows used and dropped, the date of the data."""
        return {
            "source": self.source,
            "sha256": self.sha256,
            "date": self.date,
            "stacks": list(self.stacks),
            "environments": sorted({config.environment.name for config in self.configs}),
            "configs": len(self.configs),
            "rows_used": [row for config in self.configs for row in config.rows],
            "rows_dropped": {reason: list(rows) for reason, rows in self.dropped.items()},
        }

    def require_enough(self) -> None:
        """Return if there are at least `LEAST` distinct configs.

        Raises:
            BadInputError: there are fewer; the message counts what was dropped.
        """
        if len(self.configs) >= LEAST:
            return
        dropped = "; ".join(f"{len(rows)} {reason}" for reason, rows in self.dropped.items())
        raise BadInputError(
            f"{self.source} has {len(self.configs)} distinct measured configs, a calibration needs {LEAST}",
            f"dropped: {dropped}" if dropped else "measure more configs",
        )


@dataclass(frozen=True)
class Spread:
    """Repeated measurements: how many configs have any, and max / min - 1, its median and its largest."""

    configs: int
    median: float | None
    largest: float | None


def replicate_spread(configs: Iterable[Measurement]) -> Spread:
    """The spread of those measured more than once."""
    found = [max(c.seconds) / min(c.seconds) - 1 for c in configs if len(c.seconds) > 1]
    return Spread(len(found), statistics.median(found) if found else None, max(found, default=None))


def merged(found: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """One measurement for each distinct stack, workload, environment and plan, with all step times."""
    groups: dict[Any, list[Measurement]] = {}
    for one in found:
        groups.setdefault((one.stack, one.workload, one.environment.name, one.plan), []).append(one)
    return tuple(
        Measurement(
            same[0].stack, same[0].workload, same[0].environment, same[0].plan,
            tuple(s for each in same for s in each.seconds), tuple(r for each in same for r in each.rows),
        )
        for same in groups.values()
    )  # fmt: skip
