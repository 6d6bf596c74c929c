"""The screen: simulate a proposal, correct the prediction by what the run has measured, and judge it."""

from __future__ import annotations

import hashlib
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccl_search.proposers.base import TrialView
from runs.errors import CclSearchError
from runs.metric import Direction
from runs.objective import Objective, Term
from runs.screening import Screening, Verdict
from runs.space import Config, config_key

if TYPE_CHECKING:
    from ccl_search.problem import Problem
    from ccl_search.screening.plan import ScreenPlan
    from runs.plan import ParallelPlan

Values = dict[str, float]


@dataclass(frozen=True)
class Known:
    """What a run knows when a proposal is judged: its objective, its measured trials, what was predicted for them.

    `pairs` are (predicted, measured) metric values of the launched trials that have both. In a `pareto` search a
    proposal is hopeless when one trial is better in every metric of the objective.
    """

    objective: Objective
    trials: Sequence[TrialView] = ()
    pairs: Sequence[tuple[Values, Values]] = ()
    pareto: bool = False

    @property
    def best(self) -> TrialView | None:
        """The succeeded trial with the highest score, the earlier of equals."""
        scored = [trial for trial in self.trials if trial.score is not None]
        return max(scored, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)


@dataclass(frozen=True)
class Prediction:
    """Simulated metric values of a config; `hindrance` says why there are none."""

    values: Values = field(default_factory=dict)
    hindrance: str = ""
    backend: str = ""
    version: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Screen:
    """Judges proposals of one problem. `seed` decides which hopeless ones are launched to check the screen."""

    plan: ScreenPlan
    problem: Problem
    seed: int = 0

    def look(self, config: Config, plan: ParallelPlan, known: Known, told: Values | None = None) -> Screening:
        """Simulate `config`, which means `plan`, and judge it; `told` are metrics known without a simulation."""
        found = self.judge(self.predict(plan, known.objective, told), known)
        if found.verdict is Verdict.HOPELESS and self._is_checked(config):
            return replace(found, verdict=Verdict.CHECKED, reason=f"launched to check the screen: {found.reason}")
        return found

    def predict(self, plan: ParallelPlan, objective: Objective, told: Values | None = None) -> Prediction:
        """The metrics of `objective` that the simulated trace of `plan` gives, and those `told`."""
        from backends.dry_run import dry_run
        from backends.trace import write_traces
        from metrics.api import compute

        problem, started = self.problem, time.perf_counter()
        try:
            result = dry_run(problem.workload, problem.environment, plan, self.plan.calibration)
            with tempfile.TemporaryDirectory(prefix="ccl-screen-") as folder:
                write_traces(result, Path(folder))
                names = [term.spec.name for term in objective.terms if term.spec.name not in (told or {})]
                values = compute(
                    folder, workload=problem.workload, environment=problem.environment, plan=plan, metrics=names
                )
        except CclSearchError as error:
            return Prediction(hindrance=error.message, seconds=time.perf_counter() - started)
        missing = [f"{name}: {value.reason}" for name, value in values.items() if value.value is None]
        numbers = {**(told or {}), **{n: value.value for n, value in values.items() if value.value is not None}}
        took = time.perf_counter() - started
        return Prediction(numbers, "; ".join(missing), result.backend, result.version, took)

    def judge(self, prediction: Prediction, known: Known) -> Screening:
        """What is to become of a proposal with this prediction."""
        names = [term.spec.name for term in known.objective.terms]
        bias, count = corrections(known.pairs, names)
        expected = {name: value * bias[name] for name, value in prediction.values.items()}
        found = Screening(
            verdict=Verdict.UNKNOWN,
            reason="",
            predicted=prediction.values,
            expected=expected,
            score=_score(known.objective, expected),
            backend=prediction.backend,
            backend_version=prediction.version,
            calibration=self.plan.calibration.name,
            seconds=prediction.seconds,
        )
        if prediction.hindrance:
            return replace(found, reason=f"not predicted: {prediction.hindrance}")
        if not count:
            return replace(found, reason="no measured trial to compare with")
        factor = math.exp(math.log(self.plan.factor) * math.sqrt(1 + 1 / count))
        found = replace(found, factor=factor)
        said = _said(found, known.objective, count)
        if known.pareto:
            return self._dominated(found, known, factor, said)
        return self._ranked(found, known, factor, said)

    def _ranked(self, found: Screening, known: Known, factor: float, said: str) -> Screening:
        best = known.best
        if best is None or not best.score or not found.score:
            return replace(found, reason="no score above or below 0 to compare with")
        found = replace(found, threshold=worse_by(best.score, factor), reference=best.number)
        if found.score is None or found.threshold is None or found.score >= found.threshold:
            return replace(found, verdict=Verdict.PASSED, reason=said)
        against = f"worse than trial {best.number} (score {best.score:.6g})"
        return replace(found, verdict=Verdict.HOPELESS, reason=self._hopeless(said, factor, against))

    def _dominated(self, found: Screening, known: Known, factor: float, said: str) -> Screening:
        for trial in known.trials:
            if trial.score is not None and _dominates(trial, found.expected, known.objective, factor):
                reason = self._hopeless(said, factor, f"worse than trial {trial.number} in every metric")
                return replace(found, verdict=Verdict.HOPELESS, reference=trial.number, reason=reason)
        return replace(found, verdict=Verdict.PASSED, reason=said)

    def _hopeless(self, said: str, factor: float, against: str) -> str:
        return f"{said}; were it {factor:.3g} times better, it would still be {against}. {self.plan.basis}"

    def _is_checked(self, config: Config) -> bool:
        """A draw that hangs on seed and config alone, so that a resumed run draws alike."""
        digest = hashlib.sha256(f"{self.seed}:{config_key(config)}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < self.plan.check


def corrections(pairs: Sequence[tuple[Values, Values]], names: Sequence[str]) -> tuple[Values, int]:
    """How much larger than predicted each metric was measured (median of the ratios), and from how many trials.

    The count is that of the metric with the fewest ratios; a metric without any is not corrected.
    """
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for predicted, measured in pairs:
        for name in names:
            if predicted.get(name, 0.0) > 0 and measured.get(name, 0.0) > 0:
                ratios[name].append(math.log(measured[name] / predicted[name]))
    bias = {name: math.exp(statistics.median(found)) if found else 1.0 for name, found in ratios.items()}
    return bias, min(map(len, ratios.values()), default=0)


def worse_by(score: float, factor: float) -> float:
    """The score of something `factor` times worse: the metric that much larger where it is minimised (a negative
    score), the metric or composite that much smaller where it is maximised."""
    return score / factor if score > 0 else score * factor


def _score(objective: Objective, values: Values) -> float | None:
    try:
        return objective.score(values)
    except (KeyError, ValueError):
        return None


def _dominates(trial: TrialView, expected: Values, objective: Objective, factor: float) -> bool:
    """Whether the trial is better in every metric even if `expected` is `factor` times too bad."""
    return all(_better(trial.metrics, expected, term, factor) for term in objective.terms)


def _better(measured: Values, expected: Values, term: Term, factor: float) -> bool:
    name = term.spec.name
    if name not in measured or name not in expected:
        return False
    if term.spec.direction is Direction.MAXIMIZE:
        return measured[name] > expected[name] * factor
    return measured[name] < expected[name] / factor


def _said(found: Screening, objective: Objective, count: int) -> str:
    """`expected avg_step_time 2.9 s (simulated 1.5 s, corrected by 3 measured trials), score -2.9`."""
    parts = [
        f"{term.spec.name} {_with_unit(term, found.expected)} (simulated {_with_unit(term, found.predicted)})"
        for term in objective.terms
    ]
    score = f", score {found.score:.6g}" if found.score is not None and objective.is_composite else ""
    trials = f"{count} measured trial{'s' if count > 1 else ''}"
    return f"expected {', '.join(parts)}{score}, corrected by {trials}"


def _with_unit(term: Term, values: Values) -> str:
    value = values.get(term.spec.name)
    return "unknown" if value is None else f"{value:.4g} {term.spec.unit}"


def out_of_memory(reason: str, total_bytes: float, limit_bytes: float) -> Screening:
    """The decision on a proposal whose estimate (bytes of one device) exceeds the limit."""
    numbers = {"device_memory_bytes": total_bytes, "limit_bytes": limit_bytes}
    return Screening(verdict=Verdict.OUT_OF_MEMORY, reason=reason, predicted=numbers)
