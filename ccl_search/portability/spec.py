"""The metric `portability` and its place in an objective."""

from __future__ import annotations

from collections.abc import Mapping

from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec, MetricValue
from runs.objective import Objective, Term, build

NAME = "portability"
SPEC = MetricSpec(
    name=NAME,
    version="1",
    unit="1",
    direction=Direction.MAXIMIZE,
    label="Portability",
    description="share of other clusters on which the policy gives a valid config that fits, times the mean of best "
    "known over predicted step time there; 1 is best",
)
WEIGHT = 0.2
"""Weight of portability in the score where `--portable` is given without `--weights`."""
BASELINE = 1.0
SUMMARY = "summary"
"""The key of the value's detail that holds what a proposer is told."""


def spec(name: str) -> MetricSpec:
    """The spec of a metric of a trace, or of this one.

    Raises:
        BadInputError: there is no such metric.
    """
    from metrics import registry

    return SPEC if name == NAME else registry.spec(name)


def with_portability(objective: Objective, weights: tuple[float, ...]) -> Objective:
    """The objective with portability as its last term, baseline 1.

    `weights` are the user's: none (portability has `WEIGHT`), one a metric (scaled to leave `WEIGHT`), or one more.

    Raises:
        BadInputError: the weights are of another number, or portability is in the objective already.
    """
    specs = [term.spec for term in objective.terms]
    baselines = {term.spec.name: term.baseline for term in objective.terms if term.baseline is not None}
    found = list(weights or [1.0] * len(specs))
    if len(found) == len(specs):
        total = sum(found)
        found = [*(weight * (1 - WEIGHT) / total for weight in found), WEIGHT]
    if NAME in (each.name for each in specs):
        raise BadInputError(f"{NAME} is an objective already", "leave out --portable, or --objective portability")
    return build([*specs, SPEC], found, {**baselines, NAME: BASELINE})


def without_portability(objective: Objective) -> Objective | None:
    """The objective of the traces alone, with weights that add up to 1 again; None where nothing is left."""
    terms = [term for term in objective.terms if term.spec.name != NAME]
    total = sum(term.weight for term in terms)
    return Objective(tuple(Term(term.spec, term.weight / total, term.baseline) for term in terms)) if terms else None


def concerns(objective: Objective) -> bool:
    """Whether the objective has portability in it."""
    return any(term.spec.name == NAME for term in objective.terms)


def told(metrics: Mapping[str, MetricValue]) -> str:
    """What a proposer is told of the portability of a trial's policy; empty where it was not computed."""
    found = metrics.get(NAME)
    return str((found.detail or {}).get(SUMMARY) or "") if found is not None else ""
