"""When a search ends: small objects that look at its progress and answer with a reason, or with None to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from runs.trial import FailureClass, TrialState

_IGNORED_BY_PATIENCE = frozenset({FailureClass.CANCELLED, FailureClass.TRACE_MISSING, FailureClass.METRIC_ERROR})


@dataclass(frozen=True)
class Outcome:
    """What a stopper sees of one finished iteration: its last trial's state, failure and score."""

    state: TrialState
    score: float | None = None
    failure: FailureClass | None = None


@dataclass
class Progress:
    """How far a search is: one outcome per finished iteration (trial 0 included) and what was spent.

    `known_cost_usd` sums the LLM calls whose price is known. `begun` counts iterations after trial 0 that are over or
    in flight.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    known_cost_usd: Decimal = Decimal(0)
    xpu_hours: float = 0.0
    seconds: float = 0.0
    begun: int = 0

    @property
    def iterations(self) -> int:
        """Iterations after trial 0 that are over or in flight."""
        return max(self.begun, len(self.outcomes) - 1)


class Stopper(Protocol):
    """Says why a search should end now, or None."""

    def __call__(self, progress: Progress) -> str | None:
        """The reason to stop, in words for the user."""
        ...


@dataclass(frozen=True)
class MaxIterations:
    """Ends after `limit` iterations beyond the seed policy."""

    limit: int

    def __call__(self, progress: Progress) -> str | None:
        return (
            f"{self.limit} iteration{'' if self.limit == 1 else 's'} done"
            if progress.iterations >= self.limit
            else None
        )


@dataclass(frozen=True)
class Patience:
    """Ends after `limit` iterations in a row without a better score.

    Failures of the machines and of the metric tools do not count: they say nothing about the proposals.
    """

    limit: int

    def __call__(self, progress: Progress) -> str | None:
        stale = _iterations_without_improvement(progress.outcomes)
        return f"no improvement in {stale} iterations" if stale >= self.limit else None


@dataclass(frozen=True)
class MaxCost:
    """Ends when the known LLM cost reaches `usd` dollars."""

    usd: Decimal

    def __call__(self, progress: Progress) -> str | None:
        if progress.known_cost_usd < self.usd:
            return None
        return f"LLM budget of ${self.usd} is spent (${progress.known_cost_usd:.2f})"


@dataclass(frozen=True)
class MaxXpuHours:
    """Ends when trials have occupied `hours` accelerator-hours."""

    hours: float

    def __call__(self, progress: Progress) -> str | None:
        if progress.xpu_hours < self.hours:
            return None
        return f"accelerator budget of {self.hours:g} XPU-hours is spent ({progress.xpu_hours:.2f})"


@dataclass(frozen=True)
class MaxSeconds:
    """Ends when the search has run for `seconds` of wall time."""

    seconds: float

    def __call__(self, progress: Progress) -> str | None:
        return f"time budget of {self.seconds:g} s is used up" if progress.seconds >= self.seconds else None


def first_reason(stoppers: Sequence[Stopper], progress: Progress) -> str | None:
    """The reason of the first stopper that has one."""
    reasons = (stopper(progress) for stopper in stoppers)
    return next((reason for reason in reasons if reason), None)


def _iterations_without_improvement(outcomes: Sequence[Outcome]) -> int:
    best: float | None = None
    stale = 0
    for outcome in outcomes:
        if outcome.score is not None and (best is None or outcome.score > best):
            best, stale = outcome.score, 0
        elif not _says_nothing(outcome):
            stale += 1
    return stale


def _says_nothing(outcome: Outcome) -> bool:
    failure = outcome.failure
    return failure is not None and (failure.is_transient or failure in _IGNORED_BY_PATIENCE)
