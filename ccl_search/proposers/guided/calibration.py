"""What the recorded trials teach: the true scale of every part of a step, from the bottleneck metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ccl_search.proposers.base import TrialView
from ccl_search.proposers.guided.envelope import Envelope, estimate
from ccl_search.proposers.guided.setting import Setting
from runs.trial import FailureClass, TrialState

_TINY = 1e-9
_SWEEPS = 4
_STIFFNESS = 0.03
_GRID = tuple(2 ** (k / 4) for k in range(-8, 13))
_CAUSES = ("tensor", "data", "expert")
MEMORY_SLACK = 1.05
"""Memory, as a multiple of the device's, up to which an estimate counts as fitting."""


@dataclass(frozen=True)
class Sample:
    """A trial that succeeded: its config, what was estimated for it, and what its metrics say, in seconds."""

    config: dict[str, Any]
    envelope: Envelope
    step: float
    compute: float
    exposed: float
    bubble: float


@dataclass(frozen=True)
class Calibration:
    """Factors that turn the parts of an envelope into seconds, and its memory into GiB."""

    samples: tuple[Sample, ...]
    compute: float
    tensor: float
    data: float
    expert: float
    bubble: float
    memory: float

    def scaled(self, envelope: Envelope) -> Envelope:
        """The envelope in seconds and GiB."""
        return Envelope(
            compute=envelope.compute * self.compute,
            tensor=envelope.tensor * self.tensor,
            data=envelope.data * self.data,
            expert=envelope.expert * self.expert,
            bubble=envelope.bubble * self.bubble,
            memory_gb=envelope.memory_gb * self.memory,
        )

    def errors(self) -> list[float]:
        """The natural logarithm of measured over expected step time, of every sample."""
        return [math.log(max(s.step, _TINY) / max(self.scaled(s.envelope).total, _TINY)) for s in self.samples]


def learn(history: Sequence[TrialView], setting: Setting) -> Calibration:
    """The calibration after `history`. Without any success, estimates stand as they are."""
    samples = tuple(_sample(trial, setting) for trial in history if _has_step(trial))
    return Calibration(
        samples=samples,
        compute=_factor([(s.compute, s.envelope.compute) for s in samples]),
        bubble=_factor([(s.bubble, s.envelope.bubble) for s in samples]),
        memory=_memory_factor(history, setting),
        **_exposed_factors(samples),
    )


def _sample(trial: TrialView, setting: Setting) -> Sample:
    config, metrics = trial.config or {}, trial.metrics
    step = metrics["avg_step_time"]
    return Sample(
        config=config,
        envelope=estimate(config, setting),
        step=step,
        compute=metrics.get("step_compute_time", step),
        exposed=metrics.get("step_exposed_comm_time", 0.0),
        bubble=metrics.get("bubble_fraction", 0.0) / 100 * step,
    )


def _has_step(trial: TrialView) -> bool:
    return trial.state is TrialState.SUCCEEDED and trial.config is not None and "avg_step_time" in trial.metrics


def _factor(pairs: Sequence[tuple[float, float]]) -> float:
    """The median ratio of measured to estimated; parts that were neither are passed over."""
    ratios = [measured / estimated for measured, estimated in pairs if estimated > _TINY and measured > _TINY]
    return median(ratios) if ratios else 1.0


def _exposed_factors(samples: Sequence[Sample]) -> dict[str, float]:
    """Factors of the causes of exposed communication that explain the measured sums, kept near 1.

    A coordinate search over factors of 2^(k/4); the penalty keeps what no trial tells apart at its estimate.
    """
    factors = dict.fromkeys(_CAUSES, 1.0)
    for _ in range(_SWEEPS if samples else 0):
        for cause in _CAUSES:
            factors[cause] = min((_misfit(samples, {**factors, cause: value}), value) for value in _GRID)[1]
    return factors


def _misfit(samples: Sequence[Sample], factors: Mapping[str, float]) -> float:
    error = _STIFFNESS * sum(math.log(factor) ** 2 for factor in factors.values())
    for sample in samples:
        expected = sum(factor * getattr(sample.envelope, cause) for cause, factor in factors.items())
        error += ((expected - sample.exposed) / sample.step) ** 2
    return error


def _memory_factor(history: Sequence[TrialView], setting: Setting) -> float:
    """The median of measured over estimated memory, raised until no config that ran out would be called fitting."""
    ratios, floors = [], []
    for trial in history:
        if trial.config is None:
            continue
        guess = max(estimate(trial.config, setting).memory_gb, _TINY)
        if "peak_memory_gb" in trial.metrics:
            ratios.append(trial.metrics["peak_memory_gb"] / guess)
        elif trial.failure in (FailureClass.OOM, FailureClass.PREDICTED_OOM):
            floors.append(MEMORY_SLACK * 1.01 * setting.memory_gb / guess)
    factor = median(ratios) if ratios else 1.0
    return max([factor, *(floor for floor in floors if floor < 3 * factor)])
