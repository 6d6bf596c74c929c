"""What a policy gives in every case, and at what cost.

A policy is asked for its config in every case, and the config is checked as before a launch. Where nothing at all fits
the case says nothing about the policy. In a few cases, which do not depend on the policy, its config's step time is
predicted by the dry run and set beside the best known there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ccl_search import feasibility
from ccl_search.portability.predicting import CANDIDATES, SHARED, Predictions
from policies.runner import PolicyError
from runs.space import Config, config_key
from runs.trial import FailureClass

if TYPE_CHECKING:
    from ccl_search.portability.cases import Case
    from ccl_search.problem import Problem
    from policies.runner import PolicyRunner

Outcome = Literal["valid", "invalid", "infeasible", "raises", "impossible"]
SAMPLE = 4
"""In how many cases the step time is predicted."""

_MOST_REASONS = 3
_REASON_CHARS = 160


@dataclass(frozen=True)
class CaseResult:
    """What the policy gave in a case. `impossible`: no config fits there, so that no policy could do better.

    `step_s` is predicted where the case is sampled and the config valid, `best_known_s` wherever it is sampled.
    """

    case: str
    kind: str
    outcome: Outcome
    config: Config | None = None
    reason: str = ""
    step_s: float | None = None
    best_known_s: float | None = None
    best_known: Config | None = None

    @property
    def loss(self) -> float | None:
        """Predicted step time over the best known there, minus 1; None where it was not predicted."""
        if self.step_s is None or self.best_known_s is None:
            return None
        return self.step_s / self.best_known_s - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "loss": self.loss}


@dataclass(frozen=True)
class Portability:
    """The report on a policy: every case, and what follows.

    `share` is the share of cases with a valid config that fits, of all in which anything fits. `constant`: the same
    config everywhere. `efficiency` is the mean of best known over predicted step time, at most 1 each, over the
    sampled cases with a valid config (None where none was sampled, 0 where none is valid). `value`, the metric
    `portability`, is share times efficiency: 1 for a policy that runs everywhere as fast as the best known.
    """

    results: tuple[CaseResult, ...]
    sampled: tuple[str, ...] = field(default=())

    @property
    def counts(self) -> dict[str, int]:
        """Cases by outcome."""
        outcomes: tuple[Outcome, ...] = ("valid", "invalid", "infeasible", "raises", "impossible")
        return {name: sum(found.outcome == name for found in self.results) for name in outcomes}

    @property
    def applicable(self) -> int:
        """Cases in which anything fits."""
        return len(self.results) - self.counts["impossible"]

    @property
    def share(self) -> float:
        """See the class; 0 where nothing fits anywhere."""
        return self.counts["valid"] / self.applicable if self.applicable else 0.0

    @property
    def constant(self) -> bool:
        """Whether the policy gives one config wherever it gives any, in more than one case."""
        keys = [config_key(found.config) for found in self.results if found.config is not None]
        return len(keys) > 1 and len(set(keys)) == 1

    @property
    def losses(self) -> dict[str, float]:
        """The predicted losses by case."""
        return {found.case: found.loss for found in self.results if found.loss is not None}

    @property
    def efficiency(self) -> float | None:
        """See the class."""
        if not self.sampled:
            return None
        shares = [1 / (1 + loss) for loss in self.losses.values()]
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def value(self) -> float | None:
        """See the class."""
        return None if self.efficiency is None else self.share * self.efficiency

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        losses = self.losses.values()
        return {
            "portability": self.value,
            "share_valid": self.share,
            "efficiency": self.efficiency,
            "counts": self.counts,
            "constant": self.constant,
            "mean_loss": sum(losses) / len(losses) if losses else None,
            "worst_loss": max(losses, default=None),
            "sampled": list(self.sampled),
            "candidates_per_sample": CANDIDATES,
            "cases": [found.as_dict() for found in self.results],
        }


@dataclass
class Linter:
    """Tries policies in the same `cases`, with predicted losses in `sample` of them."""

    cases: tuple[Case, ...]
    runner: PolicyRunner
    sample: int = SAMPLE
    predictions: Predictions = field(default_factory=lambda: SHARED)
    _sampled: tuple[int, ...] | None = None

    def lint(self, source: str) -> Portability:
        """What the policy gives in every case."""
        results = [self._result(source, case) for case in self.cases]
        for place in self.sampled:
            results[place] = self._with_loss(results[place], self.cases[place])
        return Portability(tuple(results), tuple(self.cases[place].name for place in self.sampled))

    @property
    def sampled(self) -> tuple[int, ...]:
        """The cases in which step times are predicted: the same for every policy."""
        if self._sampled is None:
            self._sampled = tuple(sorted(self._sample()))
        return self._sampled

    def _sample(self) -> list[int]:
        """Spread over kinds of case, small clusters first: what large ones take to predict would not be fast."""
        told = [place for place, case in enumerate(self.cases) if not case.unset]
        kinds: dict[str, list[int]] = {}
        for place in sorted(told, key=lambda p: (self.cases[p].environment.total_xpus, p)):
            kinds.setdefault(self.cases[place].kind, []).append(place)
        picked: list[int] = []
        while len(picked) < self.sample and any(kinds.values()):
            for members in kinds.values():
                found = self._next(members) if len(picked) < self.sample else None
                picked += [] if found is None else [found]
        return picked

    def _next(self, members: list[int]) -> int | None:
        """The first of the cases in which something is known to run; it is taken off the list."""
        while members:
            place = members.pop(0)
            if self.predictions.best_known(self.cases[place], self.runner) is not None:
                return place
        return None

    def _result(self, source: str, case: Case) -> CaseResult:
        problem = case.problem
        if problem is None:
            return CaseResult(case.name, case.kind, "impossible", reason="the framework cannot run there")
        config, outcome, reason = self._outcome(source, case, problem)
        if outcome != "valid" and not self.predictions.anything_fits(case):
            outcome = "impossible"
        return CaseResult(case.name, case.kind, outcome, config, reason)

    def _outcome(self, source: str, case: Case, problem: Problem) -> tuple[Config | None, Outcome, str]:
        try:
            config = self.runner.evaluate(source, *case.inputs(problem))
        except PolicyError as error:
            return None, "raises", str(error)
        verdict = feasibility.check(config, problem, {})
        if not isinstance(verdict, feasibility.Refusal):
            return config, "valid", ""
        outcome: Outcome = "infeasible" if verdict.failure is FailureClass.PREDICTED_OOM else "invalid"
        return config, outcome, verdict.reason

    def _with_loss(self, result: CaseResult, case: Case) -> CaseResult:
        known = self.predictions.best_known(case, self.runner)
        assert known is not None
        own = None if result.outcome != "valid" or result.config is None else self.predictions.step(case, result.config)
        if own is not None and result.config is not None and own < known.step_s:
            return replace(result, step_s=own, best_known_s=own, best_known=result.config)
        return replace(result, step_s=own, best_known_s=known.step_s, best_known=known.config)


def lint(source: str, found: Sequence[Case], runner: PolicyRunner, sample: int = SAMPLE) -> Portability:
    """What the policy gives in every case, with predicted losses in `sample` of them."""
    return Linter(tuple(found), runner, sample).lint(source)


def summary(report: Portability) -> str:
    """One line for people and, as part of a trial, for proposers."""
    told = ", ".join(f"{count} {name}" for name, count in report.counts.items() if count)
    parts = [f"valid in {report.share:.0%} of the cases where anything fits ({told})"]
    losses = report.losses
    if losses:
        each = ", ".join(f"{loss:.1%} on {case}" for case, loss in losses.items())
        parts.append(f"predicted loss {sum(losses.values()) / len(losses):.1%} in the mean of {len(losses)}: {each}")
    if report.constant:
        parts.append("the policy is constant")
    return "; ".join([*parts, *_reasons(report)])


def _reasons(report: Portability) -> Iterator[str]:
    """The commonest ways in which it gives no config that could run, each with one case and its reason."""
    failed = [found for found in report.results if found.outcome not in ("valid", "impossible")]
    kinds = Counter((found.outcome, found.reason.partition(":")[0]) for found in failed)
    for (outcome, rule), count in kinds.most_common(_MOST_REASONS):
        first = next(f for f in failed if f.outcome == outcome and f.reason.partition(":")[0] == rule)
        flat = " ".join(first.reason.split())
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"{outcome} on {first.case}{more}: {flat[:_REASON_CHARS]}{'...' if len(flat) > _REASON_CHARS else ''}"
