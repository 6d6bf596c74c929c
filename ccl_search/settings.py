"""How a search is run, as the user asked for it; stored with the run so that `resume` asks nothing again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from ccl_search.loop.stoppers import MaxCost, MaxIterations, MaxSeconds, MaxXpuHours, Patience, Stopper

DEFAULT_ITERATIONS = 14
DEFAULT_MODEL = "claude-opus-5-5"
MAX_REPROPOSALS = 3


@dataclass(frozen=True)
class SearchSettings:
    """Proposer, sandbox, target and budgets. Budgets that are None do not bind.

    `proposer` None means: `claude` when a key is set, else `guided`. `time_limit_s` bounds one trial's execution
    (None: what the target says, else an hour),
    `parallel` is how many trials may be in flight (None: as many as the target's file says, else one),
    `retries` the repeats after transient failures. `max_cost_usd` is text to stay exact. `effort`, `fallback_models`
    and `prices` (a YAML file) are for the `claude` proposer. `screen` (such as `dry-run:4`) and `screen_check` are as
    the user wrote them, `screening` what they come to (a `ScreenPlan` as plain data). `constraints` are the user's
    texts, `pareto` asks the proposer for the whole front, `repeats` is how often each config is measured.

    `profiler_cost`: a search on real machines ends with one run without the profiler, where its cost there is not known
    yet. `keep_traces` is `all`, `best` or `none`; of measured trials the traces of `trace_ranks` ranks are kept and
    measured (None: of all).
    """

    iterations: int = DEFAULT_ITERATIONS
    seed: int = 0
    proposer: str | None = None
    model: str = DEFAULT_MODEL
    target: str = "dry-run"
    sandbox: str = "monty"
    unconfined: bool = False
    patience: int | None = None
    max_cost_usd: str | None = None
    max_xpu_hours: float | None = None
    max_seconds: float | None = None
    time_limit_s: float | None = None
    retries: int = 2
    parallel: int | None = None
    replay_llm: str | None = None
    effort: str | None = None
    fallback_models: tuple[str, ...] = ()
    prices: str | None = None
    constraints: tuple[str, ...] = ()
    pareto: bool = False
    repeats: int = 1
    screen: str | None = None
    screen_check: float = 0.0
    screening: dict[str, Any] | None = None
    profiler_cost: bool = True
    keep_traces: str = "all"
    trace_ranks: int | None = None
    extras: dict[str, Any] = field(default_factory=dict)

    def stoppers(self) -> list[Stopper]:
        """The stoppers these budgets ask for."""
        found: list[Stopper] = [MaxIterations(self.iterations)]
        if self.patience is not None:
            found.append(Patience(self.patience))
        if self.max_cost_usd is not None:
            found.append(MaxCost(Decimal(self.max_cost_usd)))
        if self.max_xpu_hours is not None:
            found.append(MaxXpuHours(self.max_xpu_hours))
        if self.max_seconds is not None:
            found.append(MaxSeconds(self.max_seconds))
        return found

    def budgets(self) -> dict[str, Any]:
        """The budgets that bind, by the names the run's row has for them."""
        found = {
            "iterations": self.iterations,
            "patience": self.patience,
            "cost_usd": self.max_cost_usd,
            "xpu_hours": self.max_xpu_hours,
            "seconds": self.max_seconds,
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the run's row."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SearchSettings:
        """The inverse of `as_dict`; fields of later versions are left out."""
        known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        return cls(**known)
