"""The fit: robust least squares on the logarithm of step times, with a weak prior that every factor is 1.

The simulator is expensive and, in the costs (what multiplies times), close to piecewise linear: a step is the longest
chain of kernels and messages. So it is linearised at anchors, which lie on a lattice of costs that no measurement
moves, and each linear model is fitted exactly; the next anchor is the one nearest to that fit. Fits of several folds
share what the simulator said at an anchor, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ccl_search.calibrating.parameters import PARAMETERS, SIZE, Point

if TYPE_CHECKING:
    from ccl_search.calibrating.parameters import Vector

SCALE = 0.15
"""Deviation of a log step time that counts as one unit: what a good calibration leaves (the goal is 15 %)."""
PRIORS = {"compute": 1.5, "bandwidth": 2.0, "latency": 4.0, "launch": 2.0}
"""One unit of the prior, as a factor either way. Shares of a peak are known well, bandwidths depend on the transport,
and a message costs ten times as much over sockets as over remote memory access."""
OVERHEAD_PRIOR = 0.3
"""Square root of the share of a typical step that is a usual overhead (9 %)."""
MOST_OVERHEAD = 0.9
"""Square root of the largest share of a typical step that an overhead may be."""
HUBER = 1.345
"""Units beyond which a deviation counts linearly (Huber 1964, 95 % efficiency for normal errors)."""
LATTICE = float(np.log(2.0))
"""Distance between neighbouring anchors in the logarithm of a cost."""
LIMIT = float(np.log(30.0))
"""No factor is fitted beyond 30 either way."""
_LEAST = np.array([max(-LIMIT, float(np.log(each.least)) if each.least else -LIMIT) for each in PARAMETERS])
_STEP = 0.05
_ROUNDS = 6
_STAY = 0.7
_INNER = 80


class Model(Protocol):
    """What is calibrated: step times of numbered measurements."""

    def seconds(self, index: int, costs: Vector, /) -> float:
        """Step time of measurement `index` in seconds when `costs` (SIZE,) multiply the parts, without overhead."""
        ...


@dataclass
class Anchors:
    """What the model says at anchors: time and slopes by cost, kept for each measurement.

    `overhead`: whether a constant may be added to every time, as the overhead of a step is. `kept`: costs by place
    that are known from elsewhere and not fitted.
    """

    model: Model
    overhead: bool = True
    kept: Mapping[int, float] = field(default_factory=dict)
    _known: dict[tuple[tuple[int, ...], int], tuple[float, Vector]] = field(default_factory=dict)

    def at(self, anchor: tuple[int, ...], indices: Sequence[int]) -> tuple[Vector, Vector]:
        """Times (n,) and slopes (n, SIZE) in seconds per unit of cost, at lattice point `anchor`."""
        self._learn(anchor, [index for index in indices if (anchor, index) not in self._known])
        found = [self._known[anchor, index] for index in indices]
        return np.array([time for time, _ in found]), np.array([slopes for _, slopes in found])

    def _learn(self, anchor: tuple[int, ...], indices: Sequence[int]) -> None:
        """Forward differences; one cost at a time for all measurements, which then share one network."""
        costs = self.costs(anchor)
        times = {index: self.model.seconds(index, costs) for index in indices}
        slopes = {index: np.zeros(SIZE) for index in indices}
        for place in (place for place in range(SIZE) if place not in self.kept):
            moved = costs.copy()
            moved[place] *= 1 + _STEP
            for index in indices:
                slopes[index][place] = (self.model.seconds(index, moved) - times[index]) / (costs[place] * _STEP)
        for index in indices:
            self._known[anchor, index] = times[index], slopes[index]

    def costs(self, anchor: Sequence[int]) -> Vector:
        """The costs of a lattice point, with those that are kept."""
        costs: Vector = np.exp(LATTICE * np.array(anchor, dtype=float))
        costs[list(self.kept)] = list(self.kept.values())
        return costs


def fit(anchors: Anchors, measured: Vector, indices: Sequence[int]) -> Point:
    """The point that explains `measured[indices]` (seconds) best; no other entry of `measured` is looked at.

    Goes from anchor to anchor until one comes again, at most `_ROUNDS` times; of the fits on the way, the one with the
    least objective by the model itself, not by its linear stand-in, counts.
    """
    known = measured[list(indices)]
    anchor = (0,) * SIZE
    state = np.append(np.log(anchors.costs(anchor)), 0.1 if anchors.overhead else 0.0)
    best: tuple[float, Vector] | None = None
    visited: set[tuple[int, ...]] = set()
    while anchor not in visited and len(visited) < _ROUNDS:
        visited.add(anchor)
        linear = _Linear(anchors, anchor, indices, known)
        state = linear.minimise(state)
        costs = np.exp(state[:-1])
        times = np.array([anchors.model.seconds(index, costs) for index in indices])
        value = linear.objective(state, times)
        if best is None or value < best[0]:
            best = value, state
        anchor = _nearest(state, anchor, anchors.kept)
    assert best is not None
    return Point(np.exp(best[1][:-1]), float(np.median(known) * best[1][-1] ** 2))


def _nearest(state: Vector, anchor: tuple[int, ...], kept: Mapping[int, float]) -> tuple[int, ...]:
    """The lattice point near `state`; a coordinate leaves its old place only for more than 0.7 of a step."""
    moved = state[:-1] / LATTICE - np.array(anchor)
    moved[list(kept)] = 0.0
    return tuple(old + (round(by) if abs(by) > _STAY else 0) for old, by in zip(anchor, moved.tolist(), strict=True))


class _Linear:
    """The least-squares problem at one anchor. State: logarithms of costs, then the root of the overhead's share."""

    def __init__(self, anchors: Anchors, anchor: tuple[int, ...], indices: Sequence[int], known: Vector) -> None:
        self.times, self.slopes = anchors.at(anchor, indices)
        self.known, self.unit = known, float(np.median(known))
        self.middle = np.log(anchors.costs(anchor))
        reach = np.full(SIZE, 1.5 * LATTICE)
        reach[list(anchors.kept)] = 0.0
        self.low, self.high = np.maximum(self.middle - reach, _LEAST), np.minimum(self.middle + reach, LIMIT)
        self.most_overhead = MOST_OVERHEAD if anchors.overhead else 0.0

    def minimise(self, start: Vector) -> Vector:
        """Levenberg-Marquardt (Marquardt 1963) with Huber weights, within one and a half lattice steps."""
        state = self._inside(start)
        value, damping = self.objective(state), 1e-2
        for _ in range(_INNER):
            residuals, jacobian = self._residuals(state)
            weights = np.minimum(1.0, HUBER / np.maximum(np.abs(residuals), 1e-12))
            normal = jacobian.T @ (weights[:, None] * jacobian) + self._prior_matrix()
            gradient = jacobian.T @ (weights * residuals) + self._prior_matrix() @ state
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            tried = self._inside(state + step)
            new = self.objective(tried)
            if new < value - 1e-10 * (1 + abs(value)):
                state, value, damping = tried, new, damping / 3
            else:
                damping *= 4
            if damping > 1e8:
                break
        return state

    def objective(self, state: Vector, times: Vector | None = None) -> float:
        """Huber's loss of the deviations plus the prior's squares, halved; with the model's own `times` where given."""
        predicted = self._predicted(state) if times is None else times + self._overhead(state)
        size = np.abs(self._deviations(predicted))
        losses = np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2))
        return float(losses.sum() + state @ self._prior_matrix() @ state / 2)

    def _overhead(self, state: Vector) -> float:
        return self.unit * float(state[-1]) ** 2

    def _predicted(self, state: Vector) -> Vector:
        linear = self.times + self.slopes @ (np.exp(state[:-1]) - np.exp(self.middle))
        predicted: Vector = np.maximum(linear, 0.05 * self.times) + self._overhead(state)
        return predicted

    def _deviations(self, predicted: Vector) -> Vector:
        deviations: Vector = np.log(predicted / self.known) / SCALE
        return deviations

    def _residuals(self, state: Vector) -> tuple[Vector, Vector]:
        predicted = self._predicted(state)
        slopes = np.column_stack([self.slopes * np.exp(state[:-1]), np.full(len(predicted), 2 * self.unit * state[-1])])
        return self._deviations(predicted), slopes / (predicted[:, None] * SCALE)

    def _prior_matrix(self) -> Vector:
        return np.diag([*[float(np.log(PRIORS[each.kind])) ** -2 for each in PARAMETERS], OVERHEAD_PRIOR**-2])

    def _inside(self, state: Vector) -> Vector:
        return np.append(np.clip(state[:-1], self.low, self.high), np.clip(state[-1], 0.0, self.most_overhead))
