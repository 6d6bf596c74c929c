"""The objective: metrics become one score, and a higher score is always better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec


@dataclass(frozen=True)
class Term:
    """One metric of an objective, with its weight and (for a composite) the baseline it is divided by."""

    spec: MetricSpec
    weight: float = 1.0
    baseline: float | None = None


@dataclass(frozen=True)
class Objective:
    """One metric (`-value` minimised, `value` maximised) or a composite of several.

    The composite is the CCL-Bench paper's `sum(w_i * baseline_i / value_i)` (Appendix I), with the inverse ratio for
    a maximised metric; baselines are those of trial 0 unless given. Weights sum to 1.
    """

    terms: tuple[Term, ...] = field(default_factory=tuple)

    @property
    def is_composite(self) -> bool:
        """Whether several metrics are combined."""
        return len(self.terms) > 1

    @property
    def name(self) -> str:
        """`avg_step_time`, or `0.5*avg_step_time + 0.5*num_xpus`."""
        if not self.is_composite:
            return self.terms[0].spec.name
        return " + ".join(f"{term.weight:g}*{term.spec.name}" for term in self.terms)

    @property
    def needs_baseline(self) -> bool:
        """A composite cannot score before every term has a baseline."""
        return self.is_composite and any(term.baseline is None for term in self.terms)

    def with_baseline(self, values: Mapping[str, float]) -> Objective:
        """This objective with missing baselines taken from `values` (metric name to value of trial 0)."""
        terms = tuple(
            term if term.baseline is not None else Term(term.spec, term.weight, values.get(term.spec.name))
            for term in self.terms
        )
        return Objective(terms)

    def score(self, values: Mapping[str, float]) -> float:
        """The score of metric values; higher is better.

        Raises:
            KeyError: a metric of the objective has no value.
            ValueError: a composite without its baselines, or a ratio with a zero.
        """
        if not self.is_composite:
            term = self.terms[0]
            value = values[term.spec.name]
            return value if term.spec.direction is Direction.MAXIMIZE else -value
        self._require_baselines(values)
        return math.fsum(term.weight * _ratio(term, values[term.spec.name]) for term in self.terms)

    def _require_baselines(self, values: Mapping[str, float]) -> None:
        missing = [term.spec.name for term in self.terms if term.baseline is None]
        if missing:
            zero = [name for name in missing if values.get(name, 0.0) <= 0] or missing
            text = f"{', '.join(zero)} has no baseline: no trial had a value above 0 yet; give --baseline NAME=VALUE"
            raise ValueError(text)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON and for the run's row."""
        return {
            "name": self.name,
            "terms": [
                {
                    "metric": term.spec.name,
                    "version": term.spec.version,
                    "unit": term.spec.unit,
                    "direction": term.spec.direction.value,
                    "weight": term.weight,
                    "baseline": term.baseline,
                }
                for term in self.terms
            ],
        }


def build(
    specs: list[MetricSpec], weights: list[float] | None, baselines: Mapping[str, float] | None = None
) -> Objective:
    """An objective over `specs`; weights are equal when not given and are scaled to sum to 1.

    Raises:
        BadInputError: there is no metric, counts differ, a weight or a baseline is not a positive finite number, a
            metric is named twice.
    """
    if not specs:
        raise BadInputError("no objective is named", "for example --objective step_time")
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise BadInputError(f"an objective is named twice: {', '.join(names)}", "name each metric once")
    chosen = weights or [1.0] * len(specs)
    if len(chosen) != len(specs):
        raise BadInputError(f"{len(chosen)} weights for {len(specs)} objectives", "give one weight per --objective")
    if any(not math.isfinite(weight) or weight <= 0 for weight in chosen):
        raise BadInputError(f"weights must be positive numbers, got {chosen}", "for example --weights 0.5,0.5")
    known = baselines or {}
    for name, value in known.items():
        if not math.isfinite(value) or value <= 0:
            raise BadInputError(f"the baseline of {name} is {value!r}", "give a positive finite number")
    total = math.fsum(chosen)
    return Objective(
        tuple(Term(spec, weight / total, known.get(spec.name)) for spec, weight in zip(specs, chosen, strict=True))
    )


def _ratio(term: Term, value: float) -> float:
    if term.baseline is None:
        raise ValueError(f"{term.spec.name} has no baseline")
    over, under = (value, term.baseline) if term.spec.direction is Direction.MAXIMIZE else (term.baseline, value)
    if under == 0:
        raise ValueError(f"{term.spec.name}: ratio {over:g}/{under:g} is not finite")
    return over / under
