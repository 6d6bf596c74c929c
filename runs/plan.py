"""`ParallelPlan`: the framework-neutral meaning of a config. Adapters write it, backends and scripts read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Recompute = Literal["none", "selective", "full"]
PipelineSchedule = Literal["1f1b", "interleaved", "gpipe"]
ExpertPlacement = Literal["inside_dp", "inside_dp_tp", "own_axis"]


@dataclass(frozen=True)
class StateBytes:
    """Bytes of model state per parameter, before any sharding: what the framework keeps, in which precision.

    Megatron-LM mixed precision: 2 + 4 + 12 (bf16 weight; fp32 main gradient; fp32 master, Adam m and v).
    TorchTitan FSDP2: 4 + 4 + 8 with fp32 sharded weights and `gathered` = 2 (the bf16 all-gathered copy).
    Serving: 2 + 0 + 0.
    """

    parameter: float = 2.0
    gradient: float = 4.0
    optimizer: float = 12.0
    gathered: float = 2.0


@dataclass(frozen=True)
class ParallelPlan:
    """How one step is spread over devices. Degrees are counts of ranks; sizes are sequences unless said otherwise.

    Ranks are ordered tp fastest, then cp, then dp (shard before replicate), then pp slowest, unless `rank_mapping`
    says otherwise. `expert_placement`: `inside_dp` carves expert groups out of dp·cp, `inside_dp_tp` out of
    dp·cp·tp (as vLLM does), `own_axis` makes ep an axis of its own (world = tp·ep·…, as in the MoE study).
    """

    framework: str
    tp: int = 1
    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    ep: int = 1
    expert_placement: ExpertPlacement = "inside_dp"
    micro_batch_size: int = 1
    num_microbatches: int = 1
    pipeline_schedule: PipelineSchedule = "1f1b"
    virtual_stages: int = 1
    sequence_parallel: bool = False
    zero_stage: int = 0
    reshard_after_forward: bool = True
    overlap_communication: bool = True
    recompute: Recompute = "none"
    compile: bool = False
    cuda_graph: bool = False
    offload: bool = False
    state_bytes: StateBytes = StateBytes()
    collective_algorithm: str | None = None
    collective_protocol: str | None = None
    communication_library: str | None = None
    all2all_backend: str | None = None
    tp_algorithm: str | None = None
    ep_algorithm: str | None = None
    topology: int | None = None
    network_mode: str | None = None
    rank_mapping: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None

    @property
    def dp(self) -> int:
        """Data-parallel degree: replicas times shards."""
        return self.dp_replicate * self.dp_shard

    @property
    def world_size(self) -> int:
        """Ranks the plan occupies."""
        own = self.ep if self.expert_placement == "own_axis" else 1
        return self.tp * self.cp * self.pp * self.dp * own

    @property
    def global_batch(self) -> int:
        """Sequences one step processes."""
        return self.dp * self.micro_batch_size * self.num_microbatches

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ParallelPlan:
        """The inverse of `as_dict`."""
        return cls(**{**data, "state_bytes": StateBytes(**data["state_bytes"])})
