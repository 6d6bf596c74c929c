"""What a device does, free of any hardware: computations with FLOPs and bytes, and communications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OpClass = Literal[
    "gemm", "grouped_gemm", "attention", "attention_backward", "elementwise", "norm", "routing", "embedding", "loss",
    "optimizer", "copy", "host",
]  # fmt: skip
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
Axis = Literal["tp", "cp", "ep", "dp", "edp", "pp", "replicate", "world"]


@dataclass(frozen=True)
class Compute:
    """One kernel. `flops` and `nbytes` (device memory traffic) are totals; `shape` is (m, n, k) of a matrix product.

    `launches` is how many kernels an eager framework starts for it; `passes` how often it then walks its data.
    A `host` operation keeps the device idle for `seconds`.
    """

    name: str
    kind: OpClass
    flops: float
    nbytes: float
    shape: tuple[float, float, float] = (0.0, 0.0, 0.0)
    launches: int = 1
    batch: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Communication:
    """One collective along an axis of the plan.

    `nbytes` is the whole input buffer of one rank for all_reduce, reduce_scatter and all_to_all, the whole output
    for all_gather, the message for send_recv. `dtype_bytes` sizes an element.
    """

    name: str
    kind: CollectiveKind
    axis: Axis
    nbytes: float
    dtype_bytes: int = 2


@dataclass(frozen=True)
class Transfer:
    """A copy between device and host memory."""

    name: str
    direction: Literal["HtoD", "DtoH"]
    nbytes: float


Item = Compute | Communication | Transfer
