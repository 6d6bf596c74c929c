"""The workload as typed facts (`ModelArchitecture`, `Workload`) and as the dict a policy receives."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

Phase = Literal["training", "inference", "serving"]
AttentionKind = Literal["gqa", "mla"]


@dataclass(frozen=True)
class ModelArchitecture:
    """A decoder-only transformer. Widths in elements; counts of parameters where published, else None.

    MLA (multi-head latent attention) uses `q_lora_rank` (None: queries are not compressed), `kv_lora_rank`,
    `qk_nope_head_dim`, `qk_rope_head_dim`, `v_head_dim`. MoE layers hold `num_experts` routed experts of width
    `moe_intermediate_size`, of which a token uses `num_experts_per_tok`, plus `num_shared_experts`; the first
    `first_dense_layers` layers are dense. `moe_latent_size` is the width routed experts see when it is not
    `hidden_size` (latent MoE).
    """

    model_family: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int | None = None
    tied_embeddings: bool = False
    attention: AttentionKind = "gqa"
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    num_experts: int = 0
    num_experts_per_tok: int = 0
    num_shared_experts: int = 0
    moe_intermediate_size: int | None = None
    moe_latent_size: int | None = None
    first_dense_layers: int = 0
    num_params: int | None = None
    num_active_params: int | None = None
    num_params_embedding: int | None = None
    source: str = ""

    @property
    def moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.num_experts > 0


@dataclass(frozen=True)
class Workload:
    """What is computed: a model, a phase, a precision, a *global* batch (sequences) and lengths (tokens)."""

    name: str
    model: ModelArchitecture
    phase: Phase
    batch_size: int
    seq_len: int
    precision: str = "bf16"
    input_len: int | None = None
    output_len: int | None = None
    description: str = ""
    source: str = ""

    @property
    def is_training(self) -> bool:
        """Training, as opposed to inference or serving."""
        return self.phase == "training"

    def policy_input(self) -> dict[str, Any]:
        """The `workload` dict of a policy, without `config_space`; unset facts are absent, never None."""
        model = {f.name: getattr(self.model, f.name) for f in fields(self.model) if f.name in _MODEL_KEYS}
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _WORKLOAD_KEYS}
        facts = {**model, **own, "moe": self.model.moe}
        if not self.model.moe:
            facts = {key: value for key, value in facts.items() if key not in _MOE_KEYS}
        return {key: value for key, value in facts.items() if value is not None}


_WORKLOAD_KEYS = ("phase", "precision", "batch_size", "seq_len", "input_len", "output_len")
_MOE_KEYS = ("num_experts", "num_experts_per_tok", "num_shared_experts", "moe_intermediate_size")
_MODEL_KEYS = (
    "model_family", "num_params", "num_active_params", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "hidden_size", "intermediate_size", "vocab_size", *_MOE_KEYS,
)  # fmt: skip
