"""A calibration: the few factors that fit the simulator to measurements. The neutral one changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from runs.environment import Environment
from runs.errors import BadInputError


@dataclass(frozen=True)
class Calibration:
    """Factors on the uncalibrated model, each 1.0 (or 0.0 s) when nothing was fitted.

    `compute` multiplies the speed of a class of kernels (`gemm: 0.8` = slower by 1/0.8); `bandwidth` and `latency`
    multiply those of a link class (`intra_node`, `inter_node`); `launch` multiplies host launch costs;
    `step_overhead_s` is added to every step. `source` says what it was fitted to.
    """

    name: str = "uncalibrated"
    compute: Mapping[str, float] = field(default_factory=dict)
    bandwidth: Mapping[str, float] = field(default_factory=dict)
    latency: Mapping[str, float] = field(default_factory=dict)
    launch: float = 1.0
    step_overhead_s: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        factors = {**self.compute, **self.bandwidth, **self.latency, "launch": self.launch}
        bad = [name for name, value in factors.items() if not 0 < value < float("inf")]
        if bad or not 0 <= self.step_overhead_s < float("inf"):
            raise BadInputError(
                f"calibration {self.name!r}: {', '.join(bad) or 'step_overhead_s'} is no positive finite number",
                "fit it again or remove the entry",
            )

    def apply(self, environment: Environment) -> Environment:
        """`environment` with its link bandwidths and latencies scaled."""
        intra, inter = self.bandwidth.get("intra_node", 1.0), self.bandwidth.get("inter_node", 1.0)
        return replace(
            environment,
            intra_node_gbps=environment.intra_node_gbps and environment.intra_node_gbps * intra,
            inter_node_gbps=environment.inter_node_gbps and environment.inter_node_gbps * inter,
            intra_node_latency_us=environment.intra_node_latency_us * self.latency.get("intra_node", 1.0),
            inter_node_latency_us=environment.inter_node_latency_us * self.latency.get("inter_node", 1.0),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """The inverse of `as_dict`."""
        return cls(**data)


UNCALIBRATED = Calibration()
