"""The fitted parameters: what each scales, and a vector of them as a `Calibration`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TYPE_CHECKING, Literal

from backends.calibration import Calibration

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Parameter:
    """One fitted factor. Its *cost* multiplies times: a speed's factor is 1 / cost, a latency's the cost itself.

    `least` is the cost at which the device's peak, its memory or a link is used to the full: nothing is fitted below.
    """

    name: str
    kind: Literal["compute", "bandwidth", "latency", "launch"]
    scales: tuple[str, ...] = ()
    least: float = 0.0


PARAMETERS = (
    Parameter("compute.matrix", "compute", ("gemm", "grouped_gemm"), 0.80),
    Parameter("compute.attention", "compute", ("attention", "attention_backward"), 0.58),
    Parameter(
        "compute.memory",
        "compute",
        ("elementwise", "norm", "routing", "embedding", "loss", "optimizer", "copy"),
        0.80,
    ),
    Parameter("bandwidth.intra_node", "bandwidth", ("intra_node",), 1.0),
    Parameter("bandwidth.inter_node", "bandwidth", ("inter_node",), 1.0),
    Parameter("latency.intra_node", "latency", ("intra_node",)),
    Parameter("latency.inter_node", "latency", ("inter_node",)),
    Parameter("launch", "launch"),
)
"""Operation classes in three groups (products, attention, bound by memory), two link classes, host launches."""

SIZE = len(PARAMETERS)
LINKS = tuple(place for place, each in enumerate(PARAMETERS) if each.kind in ("bandwidth", "latency"))
"""Places of the link classes' parameters."""


@dataclass(frozen=True)
class Point:
    """Values of all parameters: `costs` (SIZE,) multiply times, 1 changes nothing; `overhead_s` is added to a step."""

    costs: Vector
    overhead_s: float = 0.0


def link_costs(found: Sequence[Calibration]) -> dict[int, float]:
    """The costs of the link classes by place: those of a calibration, of several their geometric mean."""
    costs = {}
    for place in LINKS:
        kind, scaled = PARAMETERS[place].kind, PARAMETERS[place].scales[0]
        factors = [(each.latency if kind == "latency" else each.bandwidth).get(scaled, 1.0) for each in found]
        mean = geometric_mean(factors)
        costs[place] = mean if kind == "latency" else 1 / mean
    return costs


def calibration(name: str, point: Point, source: str = "") -> Calibration:
    """The calibration that `point` stands for."""
    factors: dict[str, dict[str, float]] = {"compute": {}, "bandwidth": {}, "latency": {}}
    launch = 1.0
    for parameter, cost in zip(PARAMETERS, point.costs.tolist(), strict=True):
        if parameter.kind == "launch":
            launch = cost
        else:
            value = cost if parameter.kind == "latency" else 1 / cost
            factors[parameter.kind].update(dict.fromkeys(parameter.scales, value))
    return Calibration(name, **factors, launch=launch, step_overhead_s=point.overhead_s, source=source)
