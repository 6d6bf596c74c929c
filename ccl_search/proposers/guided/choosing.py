"""Choosing the next config: estimate every untried one with what the trials taught, and take the most promising."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ccl_search.proposers.base import ProposalContext, ProposerExhaustedError, TrialView
from ccl_search.proposers.guided import surprise
from ccl_search.proposers.guided.calibration import MEMORY_SLACK, Calibration, learn
from ccl_search.proposers.guided.envelope import Envelope, estimate
from ccl_search.proposers.guided.setting import Setting
from ccl_search.proposers.samplers import seen_configs
from runs.metric import Direction
from runs.objective import Objective, Term
from runs.space import Config, config_key

if TYPE_CHECKING:
    from ccl_search.proposers.guided.surprise import Floats

_MAX_CANDIDATES = 20_000
_BOLD, _CAUTIOUS = 1.0, 0.2
_STEP_METRICS = ("avg_step_time", "step_time_p50", "step_time_p95")
_FASTER_STEP_HELPS = ("tokens_per_s", "tokens_per_s_per_xpu", "mfu")


@dataclass(frozen=True)
class Candidate:
    """A valid config with its raw estimate and its place among configs."""

    config: Config
    key: str
    envelope: Envelope
    devices: int


@dataclass(frozen=True)
class Choice:
    """The config to propose and the step time expected of it, in seconds."""

    config: Config
    step: float


@dataclass
class Chooser:
    """The valid configs of one problem, with all that does not change from iteration to iteration."""

    setting: Setting
    candidates: list[Candidate]
    places: Floats
    by_key: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, context: ProposalContext) -> Chooser:
        """Enumerate the space of `context` (at most the first 20,000 valid configs)."""
        setting = Setting.of(context.workload, context.environment)
        candidates: list[Candidate] = []
        for config in context.space.valid_configs(context.workload, context.environment):
            devices = context.space.world_size(config, context.workload, context.environment)
            candidates.append(Candidate(config, config_key(config), estimate(config, setting), devices))
            if len(candidates) >= _MAX_CANDIDATES:
                break
        places = surprise.coordinates([found.config for found in candidates], context.space)
        return cls(setting, candidates, places)

    def choose(self, context: ProposalContext) -> Choice:
        """The untried config with the best score when the step is as short as it plausibly may be.

        How plausible: one standard deviation of the estimate's error at first, ever less towards the last iteration.

        Raises:
            ProposerExhaustedError: every valid config has been tried.
        """
        calibration = learn(context.history, self.setting)
        open_ones = self._open(context, calibration)
        errors = self._errors(open_ones, calibration, context)
        boldness = _boldness(context)
        best: tuple[float, str, Choice] | None = None
        for row, index in enumerate(open_ones):
            candidate = self.candidates[index]
            expected = calibration.scaled(candidate.envelope)
            step = expected.total * math.exp(float(errors.mean[row]))
            hoped = step * math.exp(-boldness * float(errors.deviation[row]))
            promise = _score(candidate, expected, hoped, context)
            if best is None or (promise, candidate.key) > best[:2]:
                best = (promise, candidate.key, Choice(candidate.config, step))
        if best is None:
            raise ProposerExhaustedError("every valid config of the space has been tried")
        return best[2]

    def _open(self, context: ProposalContext, calibration: Calibration) -> list[int]:
        """Candidates not tried yet; those that should not fit in memory only when no others are left."""
        seen = seen_configs(context)
        left = [index for index, found in enumerate(self.candidates) if found.key not in seen]
        limit = self.setting.memory_gb * MEMORY_SLACK / calibration.memory
        return [index for index in left if self.candidates[index].envelope.memory_gb <= limit] or left

    def _errors(self, rows: Sequence[int], calibration: Calibration, context: ProposalContext) -> surprise.Surprise:
        tried = surprise.coordinates([sample.config for sample in calibration.samples], context.space)
        return surprise.regress(self.places[list(rows)], tried, calibration.errors())


def explain(choice: Choice, context: ProposalContext) -> str:
    """Why: where the best trial loses its time, and what changes."""
    best = context.best
    if best is None or best.config is None:
        return "nothing has succeeded yet: the config that should be fastest among those that fit"
    changes = [
        f"{key} {best.config.get(key)} to {value}"
        for key, value in choice.config.items()
        if best.config.get(key) != value
    ]
    return f"best is trial {best.number}; {_bottleneck(best)}. Change {', '.join(changes)}; expect {choice.step:.4g} s"


def _boldness(context: ProposalContext) -> float:
    left = 1 - (context.iteration - 1) / max(1, context.iterations - 1)
    return _CAUTIOUS + (_BOLD - _CAUTIOUS) * max(0.0, left)


def _score(candidate: Candidate, expected: Envelope, step: float, context: ProposalContext) -> float:
    """The objective's score of the expected metrics; baselines that are not known yet count as 1."""
    terms = tuple(
        Term(term.spec, term.weight, 1.0 if term.baseline is None else term.baseline)
        for term in context.objective.terms
    )
    values = {term.spec.name: _expected(term, candidate, expected, step, context.history) for term in terms}
    return Objective(terms).score(values)


def _expected(term: Term, candidate: Candidate, expected: Envelope, step: float, history: Sequence[TrialView]) -> float:
    name = term.spec.name
    if name in _STEP_METRICS:
        return step
    if name == "num_xpus":
        return float(candidate.devices)
    if name == "peak_memory_gb":
        return expected.memory_gb
    if name in _FASTER_STEP_HELPS or term.spec.direction is Direction.MAXIMIZE:
        return 1 / step
    known = [trial.metrics[name] / trial.metrics["avg_step_time"] for trial in history if _has(trial, name)]
    return step * (sum(known) / len(known) if known else 1.0)


def _has(trial: TrialView, name: str) -> bool:
    return name in trial.metrics and trial.metrics.get("avg_step_time", 0.0) > 0


def _bottleneck(trial: TrialView) -> str:
    step = trial.metrics.get("avg_step_time")
    if not step:
        return "its step time is unknown"
    parts = {
        "exposed communication": trial.metrics.get("step_exposed_comm_time", 0.0) / step,
        "the pipeline bubble": trial.metrics.get("bubble_fraction", 0.0) / 100,
        "compute": trial.metrics.get("step_compute_time", 0.0) / step,
    }
    name, share = max(parts.items(), key=lambda part: part[1])
    return f"{name} is {share:.0%} of its step"
