"""The ground of all layer builders: items with FLOPs and bytes from tokens and widths."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.model.shapes import Linear, Sharding
from backends.ops import Communication, Compute, Item, OpClass
from runs.workload import ModelArchitecture


def element_bytes(precision: str) -> float:
    """Bytes of an activation: four in fp32, else two (8-bit formats keep activations between products in 16 bits)."""
    return 4.0 if precision == "fp32" else 2.0


@dataclass(frozen=True)
class Batch:
    """What one pass of one device works on.

    `tokens`: tokens of the micro-batch this device holds between attention blocks (its share of context parallel);
    `context`: average number of positions a query sees; `cached`: key/value positions read from the cache (decode),
    summed over sequences; `sampled`: tokens whose logits are wanted.
    """

    tokens: float
    context: float
    cached: float = 0.0
    sampled: float = 0.0


@dataclass(frozen=True)
class Emitter:
    """Collects the items of a layer in the order a rank runs them.

    `fused`: elementwise chains run as one kernel (a compiler or hand-written fusions), else one kernel a step.
    `dispatch`: how tokens reach experts, by exchange (`all_to_all`) or by gathering them all (`all_gather`).
    `element`: bytes of an activation.
    """

    model: ModelArchitecture
    sharding: Sharding
    batch: Batch
    fused: bool = False
    dispatch: str = "all_to_all"
    own_axis: bool = False
    element: float = 2.0
    items: list[Item] = field(default_factory=list)

    @property
    def _local_tokens(self) -> float:
        return self.batch.tokens / self.sharding.sequence_split

    def _elementwise(self, name: str, elements: float, streams: int, eager: int, kind: OpClass = "elementwise") -> None:
        """`streams`: reads plus writes per element when fused; `eager`: kernels otherwise, each reading and writing."""
        walks = streams if self.fused else max(streams, 2 * eager)
        launches = 1 if self.fused else eager
        self.items.append(Compute(name, kind, 4 * elements, walks * self.element * elements, launches=launches))

    def _norm(self, name: str, streams: int = 2, eager: int = 4) -> None:
        self._elementwise(name, self._local_tokens * self.model.hidden_size, streams, eager, "norm")

    def _linear(self, linear: Linear, tokens: float, prefix: str = "") -> None:
        inputs, outputs = linear.local(self.sharding.tp)
        self._gemm(prefix + linear.name, tokens, outputs, inputs)

    def _gemm(self, name: str, m: float, n: float, k: float) -> None:
        nbytes = self.element * (m * n + n * k + m * k)
        self.items.append(Compute(name, "gemm", 2 * m * n * k, nbytes, (m, n, k)))

    def _linear_backward(self, linear: Linear, tokens: float) -> None:
        inputs, outputs = linear.local(self.sharding.tp)
        self._gemm(f"{linear.name}_dgrad", tokens, inputs, outputs)
        self._gemm(f"{linear.name}_wgrad", outputs, inputs, tokens)

    def _comm(self, name: str, kind: str, axis: str, nbytes: float) -> None:
        self.items.append(Communication(name, kind, axis, nbytes, int(self.element)))  # type: ignore[arg-type]

    def _enter(self, name: str) -> None:
        """Into a tensor-parallel region: forward gathers a sequence-parallel input, else nothing moves."""
        if self.sharding.sequence_parallel:
            self._comm(f"{name}_all_gather", "all_gather", "tp", self._whole)

    def _leave(self, name: str) -> None:
        """Out of a tensor-parallel region: partial sums meet."""
        if self.sharding.tp > 1:
            kind = "reduce_scatter" if self.sharding.sequence_parallel else "all_reduce"
            self._comm(f"{name}_{kind}", kind, "tp", self._whole)

    @property
    def _whole(self) -> float:
        return self.element * self.batch.tokens * self.model.hidden_size
