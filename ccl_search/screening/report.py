"""How often a screen was right: what it decided, how its predictions compare with what was measured, what it missed."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

from ccl_search.screening.plan import ScreenPlan
from runs.objective import Objective
from runs.screening import Screening, Verdict
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from runs.store import RunRecord, Store, TrialRecord

LEAST_RANKED = 3
"""Trials below which a rank correlation says nothing."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class _Pair:
    """A launched trial that was predicted and measured."""

    trial: TrialRecord
    screening: Screening


def of_run(store: Store, run: RunRecord) -> dict[str, Any] | None:
    """The screen of a run as plain data (docs/searching.md has the fields); None for a run without one."""
    stored = run.options.get("settings", {}).get("screening")
    if not stored:
        return None
    return summary(ScreenPlan.from_dict(stored), run.typed_objective(), store.trials(run.id), store.screenings(run.id))


def summary(
    plan: ScreenPlan, objective: Objective, trials: Sequence[TrialRecord], screenings: Mapping[int, Screening]
) -> dict[str, Any]:
    """As `of_run`, from its parts."""
    by_number = {trial.number: trial for trial in trials}
    counts = Counter(found.verdict for found in screenings.values())
    pairs = [
        _Pair(trial, screenings[trial.number])
        for trial in trials
        if trial.state is TrialState.SUCCEEDED and trial.number in screenings and screenings[trial.number].predicted
    ]
    return {
        "target": plan.target,
        "candidates": plan.candidates,
        "check": plan.check,
        "calibration": plan.calibration.name,
        "factor": plan.factor,
        "basis": plan.basis,
        "considered": len(screenings),
        "verdicts": {verdict.value: counts[verdict] for verdict in Verdict},
        "seconds": sum(found.seconds or 0.0 for found in screenings.values()),
        "launched_and_measured": len(pairs),
        "spearman": _rank_correlation(pairs, objective),
        "median_error": _median_errors(pairs, objective, corrected=False),
        "median_error_corrected": _median_errors(pairs, objective, corrected=True),
        "within_factor": _within(pairs, objective),
        "missed_oom": sum(_ran_out(trial) for trial in trials if trial.number in screenings),
        "checks": _checks(by_number, screenings),
        "regret": _regret(trials, screenings),
    }


def _ran_out(trial: TrialRecord) -> bool:
    return trial.failure is FailureClass.OOM


def _rank_correlation(pairs: Sequence[_Pair], objective: Objective) -> float | None:
    """Spearman's correlation of predicted and measured scores."""
    scores = [(_score(objective, p.screening.predicted), _score(objective, p.trial.values)) for p in pairs]
    known = [(a, b) for a, b in scores if a is not None and b is not None]
    if len(known) < LEAST_RANKED:
        return None
    import numpy as np

    from ccl_search.calibrating.validation import spearman

    predicted, measured = (np.array(column) for column in zip(*known, strict=True))
    return spearman(predicted, measured)


def _score(objective: Objective, values: Mapping[str, float]) -> float | None:
    try:
        return objective.score(values)
    except (KeyError, ValueError):
        return None


def _median_errors(pairs: Sequence[_Pair], objective: Objective, corrected: bool) -> dict[str, float | None]:
    """The median of |predicted / measured - 1| of every metric of the objective; `corrected`: of what was expected
    once earlier trials of the run had corrected the prediction."""
    errors: dict[str, float | None] = {}
    for term in objective.terms:
        ratios = _ratios(pairs, term.spec.name, corrected)
        errors[term.spec.name] = statistics.median(abs(r - 1) for r in ratios) if ratios else None
    return errors


def _ratios(pairs: Sequence[_Pair], name: str, corrected: bool) -> list[float]:
    found = []
    for pair in pairs:
        predicted = pair.screening.expected if corrected else pair.screening.predicted
        measured = pair.trial.values.get(name, 0.0)
        if (not corrected or pair.screening.factor is not None) and name in predicted and measured > 0:
            found.append(predicted[name] / measured)
    return found


def _within(pairs: Sequence[_Pair], objective: Objective) -> float | None:
    """Share of corrected predictions whose every metric was measured within the factor that was allowed for."""
    judged = [pair for pair in pairs if pair.screening.factor is not None]
    kept = 0
    for pair in judged:
        factor = pair.screening.factor or 1.0
        ratios = [r for term in objective.terms for r in _ratios([pair], term.spec.name, corrected=True)]
        kept += all(1 / factor <= ratio <= factor for ratio in ratios)
    return kept / len(judged) if judged else None


def _checks(trials: Mapping[int, TrialRecord], screenings: Mapping[int, Screening]) -> dict[str, Any]:
    """Hopeless proposals that were launched all the same: how many turned out better than the trial they were
    compared with, and the share of false rejections that is not excluded (one-sided, exact binomial)."""
    launched = [number for number, found in screenings.items() if found.verdict is Verdict.CHECKED]
    outcomes = [_was_wrong(trials, number, screenings[number]) for number in launched]
    settled = [wrong for wrong in outcomes if wrong is not None]
    return {
        "launched": len(launched),
        "measured": len(settled),
        "false": sum(settled),
        "false_rate": sum(settled) / len(settled) if settled else None,
        "false_rate_at_most": at_most(sum(settled), len(settled)) if settled else None,
    }


def _was_wrong(trials: Mapping[int, TrialRecord], number: int, screening: Screening) -> bool | None:
    """Whether a checked trial was rejected wrongly; None where nothing is known of it."""
    trial, reference = trials.get(number), trials.get(screening.reference if screening.reference is not None else -1)
    if trial is None or reference is None:
        return None
    if trial.failure is not None and trial.failure.is_config_property:
        return False
    if trial.score is None or reference.score is None:
        return None
    return trial.score > reference.score


def at_most(hits: int, tries: int, confidence: float = CONFIDENCE) -> float:
    """The largest rate with which `hits` of `tries` or fewer are not too rare (Clopper and Pearson 1934, one-sided)."""
    if hits >= tries:
        return 1.0
    low, high = hits / tries, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        tail = sum(comb(tries, k) * rate**k * (1 - rate) ** (tries - k) for k in range(hits + 1))
        low, high = (rate, high) if tail > 1 - confidence else (low, rate)
    return high


def _regret(trials: Sequence[TrialRecord], screenings: Mapping[int, Screening]) -> float | None:
    """How much worse the best trial would be without the checks, as a share; None where no check was measured.

    It is what the screen is known to have cost. What the rejected proposals that never ran would have given is not
    known; `false_rate_at_most` bounds how many of them were rejected wrongly.
    """
    checked = {number for number, found in screenings.items() if found.verdict is Verdict.CHECKED}
    scores = {trial.number: trial.score for trial in trials if trial.score is not None}
    others = [score for number, score in scores.items() if number not in checked]
    found = [score for number, score in scores.items() if number in checked]
    if not found or not others:
        return None
    best, rest = max(found), max(others)
    if best <= rest or best * rest <= 0:
        return 0.0
    return (rest / best if best < 0 else best / rest) - 1


def lines(found: Mapping[str, Any]) -> list[str]:
    """What a person reads of it."""
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["verdicts"].items() if count)
    said = [f"screen {found['target']} ({found['calibration']}): {found['considered']} proposals, {counts or 'none'}"]
    if found["launched_and_measured"]:
        said.append(f"     {_accuracy(found)}")
    if found["missed_oom"]:
        said.append(f"     {found['missed_oom']} trials ran out of memory that were predicted to fit")
    if found["checks"]["measured"]:
        checks = found["checks"]
        said.append(
            f"     {checks['false']} of {checks['measured']} checked rejections were wrong (at most "
            f"{checks['false_rate_at_most']:.0%} of all, 95 %); known regret {found['regret'] or 0.0:.1%}"
        )
    elif found["verdicts"]["hopeless"]:
        said.append("     whether rejections were right is not known: none was launched (--screen-check)")
    return said


def _accuracy(found: Mapping[str, Any]) -> str:
    ranks = "" if found["spearman"] is None else f", Spearman {found['spearman']:.2f}"
    errors = []
    for name, error in found["median_error"].items():
        corrected = found["median_error_corrected"][name]
        if error is not None:
            tail = f" ({corrected:.1%} once corrected by earlier trials)" if corrected is not None else ""
            errors.append(f"median error of {name} {error:.1%}{tail}")
    inside = found["within_factor"]
    share = "" if inside is None else f"; {inside:.0%} within the error allowed for"
    return f"predicted and measured {found['launched_and_measured']} trials{ranks}, {', '.join(errors)}{share}"
