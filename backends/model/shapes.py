"""Weight shapes of a decoder-only transformer and how many of them one device holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from runs.plan import ParallelPlan
from runs.workload import ModelArchitecture

LayerKind = Literal["dense", "moe"]
Split = Literal["column", "row", "none"]


@dataclass(frozen=True)
class Linear:
    """A weight matrix. `split` says how tensor parallelism cuts it: its outputs, its inputs, or not at all.

    `whole` outputs of a column split are counted in heads that cannot be cut below one (key/value heads).
    """

    name: str
    inputs: int
    outputs: int
    split: Split
    kv_outputs: int = 0
    kv_head: int = 0

    def local(self, tp: int) -> tuple[float, float]:
        """Inputs and outputs on one of `tp` devices; with more devices than key/value heads, heads are repeated."""
        if self.split == "column":
            kv = max(self.kv_outputs / tp, 2 * self.kv_head) if self.kv_outputs else 0.0
            return self.inputs, (self.outputs - self.kv_outputs) / tp + kv
        if self.split == "row":
            return self.inputs / tp, self.outputs
        return self.inputs, self.outputs

    def parameters(self, tp: int = 1) -> float:
        """Weights on one of `tp` devices."""
        inputs, outputs = self.local(tp)
        return inputs * outputs


@dataclass(frozen=True)
class AttentionShape:
    """One attention block: its matrices and the sizes of the attention core, per head in elements.

    `cache_width`: elements of key/value cache per token; `cache_heads`: the heads they can be split by (1 for the
    latent cache of MLA, which every tensor-parallel rank keeps whole).
    """

    linears: tuple[Linear, ...]
    heads: int
    qk_dim: int
    v_dim: int
    kv_heads: int
    cache_width: int
    cache_heads: int
    latent_width: int = 0


def _gqa(model: ModelArchitecture) -> AttentionShape:
    width = model.num_heads * model.head_dim
    kv = 2 * model.num_kv_heads * model.head_dim
    out = Linear("o_proj", width, model.hidden_size, "row")
    linears: tuple[Linear, ...]
    if model.q_lora_rank:
        linears = (
            Linear("q_a_proj", model.hidden_size, model.q_lora_rank, "none"),
            Linear("q_b_proj", model.q_lora_rank, width, "column"),
            Linear("kv_proj", model.hidden_size, kv, "column", kv, model.head_dim),
            out,
        )
    else:
        linears = (Linear("qkv_proj", model.hidden_size, width + kv, "column", kv, model.head_dim), out)
    return AttentionShape(
        linears, model.num_heads, model.head_dim, model.head_dim, model.num_kv_heads, kv, model.num_kv_heads
    )


def _mla(model: ModelArchitecture) -> AttentionShape:
    nope, rope = model.qk_nope_head_dim or model.head_dim, model.qk_rope_head_dim or 0
    latent, value = model.kv_lora_rank or 0, model.v_head_dim or model.head_dim
    hidden, heads = model.hidden_size, model.num_heads
    query: tuple[Linear, ...]
    if model.q_lora_rank:
        query = (
            Linear("q_a_proj", hidden, model.q_lora_rank, "none"),
            Linear("q_b_proj", model.q_lora_rank, heads * (nope + rope), "column"),
        )
    else:
        query = (Linear("q_proj", hidden, heads * (nope + rope), "column"),)
    linears = (
        *query,
        Linear("kv_a_proj", hidden, latent + rope, "none"),
        Linear("kv_b_proj", latent, heads * (nope + value), "column"),
        Linear("o_proj", heads * value, hidden, "row"),
    )
    return AttentionShape(linears, heads, nope + rope, value, heads, latent + rope, 1, latent + rope)


@cache
def attention_shape(model: ModelArchitecture) -> AttentionShape:
    """The attention block of every layer of `model`."""
    return _mla(model) if model.attention == "mla" else _gqa(model)


@dataclass(frozen=True)
class MlpShape:
    """One feed-forward block: matrices every token passes, and those of one routed expert."""

    linears: tuple[Linear, ...]
    expert: tuple[Linear, ...] = ()
    experts: int = 0
    per_token: int = 0
    expert_width: int = 0
    expert_ffn: int = 0


def _gated(name: str, hidden: int, ffn: int) -> tuple[Linear, Linear]:
    return Linear(f"{name}gate_up_proj", hidden, 2 * ffn, "column"), Linear(f"{name}down_proj", ffn, hidden, "row")


@cache
def mlp_shape(model: ModelArchitecture, kind: LayerKind) -> MlpShape:
    """The feed-forward block of a layer of `kind`; the latent of a latent MoE is entered and left once a layer."""
    hidden = model.hidden_size
    if kind == "dense":
        return MlpShape(_gated("", hidden, model.intermediate_size or 4 * hidden))
    ffn = model.moe_intermediate_size or model.intermediate_size or 4 * hidden
    width = model.moe_latent_size or hidden
    linears: tuple[Linear, ...] = (Linear("router", hidden, model.num_experts, "none"),)
    if model.num_shared_experts:
        linears += _gated("shared_", hidden, ffn * model.num_shared_experts)
    if width != hidden:
        linears += (Linear("latent_in", hidden, width, "none"), Linear("latent_out", width, hidden, "none"))
    return MlpShape(linears, _gated("expert_", width, ffn), model.num_experts, model.num_experts_per_tok, width, ffn)


def layer_kinds(model: ModelArchitecture) -> tuple[LayerKind, ...]:
    """The kind of every layer, first to last."""
    dense = model.first_dense_layers if model.moe else model.num_layers
    kinds: list[LayerKind] = ["dense"] * dense
    return tuple(kinds + ["moe"] * (model.num_layers - dense))


@dataclass(frozen=True)
class Sharding:
    """How one layer is cut: tensor, context and expert parallel degrees, and what they imply.

    `expert_tp` is the tensor-parallel degree inside an expert: `tp`, except where expert groups take the
    tensor-parallel ranks too (`inside_dp_tp`), which leaves each expert whole.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int = 1
    sequence_parallel: bool = False

    @classmethod
    def of(cls, plan: ParallelPlan) -> Sharding:
        """The sharding of `plan`."""
        whole = plan.expert_placement == "inside_dp_tp" and plan.ep > 1
        parallel = plan.sequence_parallel and plan.tp > 1
        return cls(plan.tp, plan.cp, plan.ep, 1 if whole else plan.tp, parallel)

    @property
    def sequence_split(self) -> int:
        """Ranks that share the tokens between tensor-parallel regions (norms, residuals)."""
        return self.tp if self.sequence_parallel else 1


@dataclass(frozen=True)
class LayerParameters:
    """Parameters of one layer: those every data-parallel rank holds, and those of routed experts."""

    dense: float
    expert: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.dense + self.expert


@cache
def layer_parameters(model: ModelArchitecture, kind: LayerKind, sharding: Sharding = Sharding()) -> LayerParameters:
    """Parameters of one layer on one device (norm weights included, biases of the router left out)."""
    attention, mlp = attention_shape(model), mlp_shape(model, kind)
    norms = 2 * model.hidden_size + (model.q_lora_rank or 0) + (model.kv_lora_rank or 0)
    dense = norms + sum(linear.parameters(sharding.tp) for linear in (*attention.linears, *mlp.linears))
    one = sum(linear.parameters(sharding.expert_tp) for linear in mlp.expert)
    return LayerParameters(dense, one * mlp.experts / sharding.ep)


def embedding_parameters(model: ModelArchitecture, tp: int = 1) -> float:
    """Parameters of the token embedding on one device (its rows are split over `tp`)."""
    return model.vocab_size * model.hidden_size / tp


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a whole model: all, those a token uses, and those of the embedding and head matrices."""

    total: int
    active: int
    embedding: int


def count_parameters(model: ModelArchitecture) -> ParameterCount:
    """Count the parameters of `model` from its shapes; a tied head is the embedding and counts once."""
    tables = embedding_parameters(model) * (1 if model.tied_embeddings else 2)
    layers = [layer_parameters(model, kind) for kind in layer_kinds(model)]
    dense = tables + model.hidden_size + sum(layer.dense for layer in layers)
    expert = sum(layer.expert for layer in layers)
    used = expert * model.num_experts_per_tok / model.num_experts if model.moe else 0.0
    return ParameterCount(round(dense + expert), round(dense + used), round(tables))
