"""Options in groups: a parameter of a `grouped` command that has one of these types stands for an option a field."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, get_type_hints

from ccl_search.cli import options
from runs.errors import BadInputError

if TYPE_CHECKING:
    from ccl_search.problem import ProblemSource


@dataclass(frozen=True)
class Subject:
    """What is run, and where: a card, or a workload, environment and framework by name; and which configs there are."""

    card: options.Card = None
    workload: options.Workload = None
    environment: options.Environment = None
    framework: options.Framework = None
    space: options.Space = None

    def source(self, **more: Any) -> ProblemSource:
        """What the user named; `more` are further fields of `ProblemSource`."""
        from ccl_search.problem import ProblemSource

        return ProblemSource(**{**vars(self), **more})


@dataclass(frozen=True)
class Goal:
    """What makes a config good."""

    objective: options.Objective = None
    weights: options.Weights = None
    baseline: options.Baseline = None
    constraint: options.Constraint = None

    @property
    def terms(self) -> dict[str, Any]:
        """The objective, as fields of `ProblemSource`.

        Raises:
            BadInputError: a weight or a baseline is no number.
        """
        from ccl_search.problem import DEFAULT_OBJECTIVE

        return {
            "objectives": tuple(self.objective or (DEFAULT_OBJECTIVE,)),
            "weights": weight_numbers(self.weights),
            "baselines": baseline_values(self.baseline or []),
        }

    @property
    def constraints(self) -> tuple[str, ...]:
        """The user's bounds, as texts."""
        return tuple(self.constraint or ())


@dataclass(frozen=True)
class How:
    """How a search proposes and evaluates policies."""

    repeats: options.Repeats = 1
    policy: options.Policy = None
    proposer: options.Proposer = None
    model: options.Model = "claude-opus-5-5"
    effort: options.Effort = None
    fallback_model: options.FallbackModel = None
    prices: options.Prices = None
    replay_llm: options.ReplayLlm = None
    sandbox: options.Sandbox = "monty"
    unconfined: options.Unconfined = False
    seed: options.Seed = 0

    @property
    def settings(self) -> dict[str, Any]:
        """These options as fields of `SearchSettings`; the policy to start from is none of them."""
        same = ("repeats", "proposer", "model", "effort", "replay_llm", "sandbox", "unconfined", "seed")
        return {
            **{name: getattr(self, name) for name in same},
            "fallback_models": tuple(self.fallback_model or ()),
            "prices": str(self.prices) if self.prices is not None else None,
        }


@dataclass(frozen=True)
class NewBudgets:
    """Budgets of a run that goes on: what is not given stays as it was."""

    iterations: options.NewIterations = None
    patience: options.Patience = None
    max_cost: options.MaxCost = None
    max_xpu_hours: options.MaxXpuHours = None
    max_minutes: options.MaxMinutes = None
    time_limit: options.NewTimeLimit = None
    retries: options.NewRetries = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are given, as fields of `SearchSettings`.

        Raises:
            BadInputError: one of them is no budget.
        """
        _check_budgets(self.max_xpu_hours, self.max_minutes, self.time_limit)
        found = {
            "iterations": self.iterations,
            "patience": self.patience,
            "max_cost_usd": _dollars(self.max_cost),
            "max_xpu_hours": self.max_xpu_hours,
            "max_seconds": self.max_minutes * 60 if self.max_minutes is not None else None,
            "time_limit_s": self.time_limit,
            "retries": self.retries,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Budgets(NewBudgets):
    """Budgets of a new run."""

    iterations: options.Iterations = 14
    time_limit: options.TimeLimit = None
    retries: options.Retries = 2


@dataclass(frozen=True)
class Where:
    """Where configs run, what simulates them, and what is kept."""

    target: options.Target = "dry-run"
    backend: options.Backend = None
    screen: options.Screen = None
    screen_check: options.ScreenCheck = 0.0
    parallel: options.Parallel = None
    within_allocation: options.WithinAllocation = False
    keep_traces: options.KeepTraces = "all"
    trace_ranks: options.TraceRanks = None
    profiler_cost: options.ProfilerCost = True

    @property
    def settings(self) -> dict[str, Any]:
        """These options as fields of `SearchSettings`.

        Raises:
            BadInputError: the backend does not go with the target, or traces cannot be kept so.
        """
        from ccl_search import retention, targets

        same = ("screen", "screen_check", "parallel", "trace_ranks", "profiler_cost")
        return {
            **{name: getattr(self, name) for name in same},
            "target": targets.with_backend(self.target, self.backend),
            "extras": {"within_allocation": True} if self.within_allocation else {},
            "keep_traces": retention.check_keep(self.keep_traces),
        }


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer wants it: with a group's fields in the place of the group."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    found = signature(command).replace(parameters=list(_parameters(command, hints)))
    flat.__signature__ = found  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in found.parameters.values()}
    return flat


def _parameters(command: Callable[..., None], hints: dict[str, Any]) -> Iterator[Parameter]:
    for parameter in signature(command).parameters.values():
        hint = hints[parameter.name]
        if not is_dataclass(hint):
            yield parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint)
            continue
        kinds = get_type_hints(hint, include_extras=True)
        for each in fields(hint):
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=kinds[each.name])


def weight_numbers(text: str | None) -> tuple[float, ...]:
    """The weights written as `0.5,0.5`; BadInputError where they are no numbers."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise BadInputError(f"--weights {text}: {error}", "write numbers with commas, as 0.5,0.5") from error


def baseline_values(entries: list[str]) -> dict[str, float]:
    """The entries written as `NAME=VALUE`; BadInputError where one is not."""
    found: dict[str, float] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise BadInputError(f"--baseline {entry} is no NAME=VALUE", "for example avg_step_time=1.5") from error
    return found


def _check_budgets(*values: float | None) -> None:
    for value in values:
        if value is not None and not 0 < value < math.inf:
            raise BadInputError(f"{value:g} is no budget", "--max-xpu-hours, --max-minutes, --time-limit are above 0")


def _dollars(text: str | None) -> str | None:
    from decimal import Decimal, InvalidOperation

    if text is None:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise BadInputError(f"--max-cost {text} is no amount", "write dollars, as 2.50") from error
    if not amount.is_finite() or amount < 0:
        raise BadInputError(f"--max-cost {text} is no amount", "write dollars, as 2.50")
    return text
