"""The numbers a back-of-the-envelope estimate needs, read from the policy's two inputs, with plain defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_GB_S_PER_GBPS = 1e9 / 8
_BORROWING = ("torchtitan", "vllm", "sglang")
_MESHED = 4
_ASSUMED_FLOPS = 1.2e14
_ASSUMED_MEMORY_BYTES_S = 1.5e12


@dataclass(frozen=True)
class Setting:
    """Workload and environment as an engineer would jot them down. Sizes in bytes, rates per second.

    `intra` and `inter` are bytes/s of one device inside a node and of its share of the network. `expert_params` are the
    routed experts' parameters; `experts_borrow_tp`: the framework carves expert parallelism out of tp and dp together.
    """

    training: bool
    batch: int
    seq_len: int
    output_len: int
    layers: int
    hidden: int
    kv_width: int
    params: float
    active_params: float
    expert_params: float
    experts_per_token: int
    experts_borrow_tp: bool
    devices: int
    per_node: int
    memory_gb: float
    intra: float
    inter: float

    @classmethod
    def of(cls, workload: Mapping[str, Any], environment: Mapping[str, Any]) -> Setting:
        """Read both inputs; absent facts take values that keep ratios of configs meaningful."""
        layers = int(workload.get("num_layers", 32))
        hidden = int(workload.get("hidden_size", 4096))
        params = float(workload.get("num_params", 12 * layers * hidden**2))
        head_dim = int(workload.get("head_dim", 128))
        return cls(
            training=workload.get("phase", "training") == "training",
            batch=int(workload.get("batch_size", 1)),
            seq_len=int(workload.get("seq_len", workload.get("input_len", 1024))),
            output_len=int(workload.get("output_len", 1)),
            layers=layers,
            hidden=hidden,
            kv_width=2 * head_dim * int(workload.get("num_kv_heads", 8)),
            params=params,
            active_params=float(workload.get("num_active_params", params)),
            expert_params=_expert_params(workload, params),
            experts_borrow_tp=str(environment.get("framework", "")).startswith(_BORROWING),
            experts_per_token=int(workload.get("num_experts_per_tok", 0)),
            devices=int(environment.get("total_gpus", 1)),
            per_node=max(1, int(environment.get("gpus_per_node", 8))),
            memory_gb=float(environment.get("gpu_memory_gb", 80)),
            intra=float(environment.get("intra_node_bandwidth_gbps", 2400)) * _GB_S_PER_GBPS,
            inter=float(environment.get("inter_node_bandwidth_gbps", 200)) * _GB_S_PER_GBPS,
        )

    @property
    def moe(self) -> bool:
        """Whether tokens are routed to experts."""
        return self.expert_params > 0

    @property
    def flops(self) -> float:
        """FLOP/s assumed of a device; only ratios matter, measured compute time sets the scale."""
        return _ASSUMED_FLOPS

    @property
    def memory_rate(self) -> float:
        """Bytes/s assumed of a device's memory; as `flops`."""
        return _ASSUMED_MEMORY_BYTES_S

    def bandwidth(self, ranks: int, stride: int) -> float:
        """Bytes/s at which each of `ranks` ranks, `stride` apart, passes on what the others need.

        Across nodes the members on one node share the work, each with its part of the network. Small nodes have no
        switch inside: two of their devices have only the links between them.
        """
        if ranks * stride <= self.per_node:
            linked = (ranks - 1) / (self.per_node - 1) if self.per_node <= _MESHED and ranks > 1 else 1.0
            return self.intra * linked
        return min(self.intra, self.inter * max(1, min(ranks, self.per_node // stride)))


def _expert_params(workload: Mapping[str, Any], params: float) -> float:
    if not workload.get("moe"):
        return 0.0
    width = workload.get("moe_intermediate_size")
    if width is None or "num_experts" not in workload:
        return 0.9 * params
    one = 3 * int(workload.get("hidden_size", 4096)) * int(width)
    return min(0.97 * params, float(one * int(workload["num_experts"]) * int(workload.get("num_layers", 32))))
