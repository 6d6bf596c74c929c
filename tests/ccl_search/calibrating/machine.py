"""A machine whose factors are known: a step is the longer of two chains, each a weighted sum of costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccl_search.calibrating.parameters import SIZE


class SyntheticMachine:
    """Step times of `count` configs with random loads; `calls` counts evaluations."""

    def __init__(self, count: int, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.loads = rng.gamma(0.6, 1.0, size=(2, count, SIZE)) * rng.uniform(0.3, 3.0, size=(1, count, 1))
        self.calls = 0

    def seconds(self, index: int, costs: Any, /) -> float:
        self.calls += 1
        return float(max(chain[index] @ costs for chain in self.loads))

    def measured(self, costs: Any, overhead: float = 0.0) -> Any:
        """What a stopwatch would show with these true costs."""
        return np.array([self.seconds(index, costs) + overhead for index in range(self.loads.shape[1])])
