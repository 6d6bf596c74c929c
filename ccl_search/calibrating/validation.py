"""How good a calibration is where it was not fitted: repeated cross-validation with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccl_search.calibrating.fitting import Anchors, fit
from ccl_search.calibrating.parameters import SIZE

if TYPE_CHECKING:
    from ccl_search.calibrating.parameters import Vector

FOLDS = 5
REPEATS = 5
_DRAWS = 1000


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % bootstrap interval over measured configs (percentiles; Efron 1979)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Errors:
    """Rank correlation (Spearman 1904), median of |predicted / measured - 1|, and the factor, either way, that nine of
    ten predictions keep to; each with its interval."""

    spearman: Estimate
    median_error: Estimate
    factor_90: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def spearman(a: Vector, b: Vector) -> float:
    """Rank correlation with mean ranks for ties; 0 where one of the two is constant."""
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (a, b)]
    bottom = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / bottom if bottom else 0.0


def _ranks(values: Vector) -> Vector:
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    ranks: Vector = below + (equal - 1) / 2
    return ranks


def errors(predictions: Vector, measured: Vector, seed: int = 0) -> Errors:
    """The errors of `predictions` (repeats, n) against `measured` (n,), in seconds; figures are means over repeats."""
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(measured), size=(_DRAWS, len(measured)))
    drawn = np.array([_figures(predictions[:, draw], measured[draw]) for draw in draws])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    values = _figures(predictions, measured)
    return Errors(*(Estimate(values[k], float(low[k]), float(high[k])) for k in range(3)))


def _figures(predictions: Vector, measured: Vector) -> tuple[float, float, float]:
    correlation = float(np.mean([spearman(row, measured) for row in predictions]))
    ratios = predictions / measured
    median = float(np.mean(np.median(np.abs(ratios - 1), axis=1)))
    return correlation, median, float(np.exp(np.percentile(np.abs(np.log(ratios)), 90)))


def folds(count: int, seed: int, parts: int = FOLDS) -> list[list[int]]:
    """`count` indices dealt at random into `parts` folds whose sizes differ by one at most."""
    order = np.random.default_rng(seed).permutation(count)
    return [sorted(order[part::parts].tolist()) for part in range(min(parts, count))]


def held_out(anchors: Anchors, measured: Vector, repeats: int = REPEATS, seed: int = 0) -> Vector:
    """Predictions (repeats, n) in seconds, each by a fit that never saw the measurement it predicts."""
    count = len(measured)
    found = np.zeros((repeats, count))
    for repeat in range(repeats):
        for fold in folds(count, seed + repeat):
            found[repeat, fold] = predict(anchors, measured, fold)
    return found


def predict(anchors: Anchors, measured: Vector, fold: Sequence[int]) -> list[float]:
    """Seconds of the measurements in `fold` by the fit to all others."""
    kept = [index for index in range(len(measured)) if index not in set(fold)]
    point = fit(anchors, measured, kept)
    return [anchors.model.seconds(index, point.costs) + point.overhead_s for index in fold]


def uncalibrated(anchors: Anchors, count: int) -> Vector:
    """Predictions (1, n) of the neutral calibration."""
    return np.array([[anchors.model.seconds(index, np.ones(SIZE)) for index in range(count)]])
