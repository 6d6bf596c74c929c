"""Bytes of activations that one layer keeps for its backward pass.

After Korthikanti et al. 2022 (Reducing Activation Recomputation in Large Transformer Models), tensor by tensor, with
flash attention (no score matrix), gated feed-forward, grouped queries, MLA and experts. bf16 elements; a factor in
front of a width is bytes per token.
"""

from __future__ import annotations

from functools import cache

from backends.model.shapes import LayerKind, Sharding, attention_shape, mlp_shape
from runs.plan import Recompute
from runs.workload import ModelArchitecture


@cache
def layer_activation_bytes(
    model: ModelArchitecture, kind: LayerKind, sharding: Sharding, recompute: Recompute, own_axis: bool = False
) -> float:
    """Bytes per token of the micro-batch (its share of context parallelism) that one layer keeps on one device.

    `full` keeps the layer's input; `selective` also the inputs of matrix products that are dear to compute again,
    but neither norms, nor the attention output, nor activation functions.
    """
    hidden = 2.0 * model.hidden_size / sharding.sequence_split
    if recompute == "full":
        return hidden
    keep_cheap = recompute == "none"
    norms = hidden * (4 if keep_cheap else 2)
    return norms + _attention(model, sharding, keep_cheap) + _mlp(model, kind, sharding, keep_cheap, own_axis)


def _attention(model: ModelArchitecture, sharding: Sharding, keep_cheap: bool) -> float:
    shape = attention_shape(model)
    kept = 0.0
    for linear in shape.linears[:-1]:
        outputs = linear.local(sharding.tp)[1]
        kept += 2.0 * outputs * (2 if linear.split == "none" else 1)
    heads = shape.heads / sharding.tp
    if model.attention == "mla":
        kept += 2.0 * heads * shape.qk_dim
    return kept + (2.0 * heads * shape.v_dim + 4.0 * heads if keep_cheap else 0.0)


def _mlp(model: ModelArchitecture, kind: LayerKind, sharding: Sharding, keep_cheap: bool, own_axis: bool) -> float:
    shape = mlp_shape(model, kind)
    per_ffn = 6.0 if keep_cheap else 4.0
    down = sum(linear.inputs for linear in shape.linears if linear.name.endswith("down_proj"))
    kept = per_ffn * down / sharding.tp
    if not shape.experts:
        return kept
    share = routed_share(model, sharding, own_axis)
    tokens = 2.0 * share * shape.expert_width * (2 if keep_cheap else 1)
    return kept + tokens + per_ffn * share * shape.expert_ffn / sharding.expert_tp + 8.0 * shape.experts


def routed_share(model: ModelArchitecture, sharding: Sharding, own_axis: bool) -> float:
    """Routed copies one device computes per token of its micro-batch, with even routing."""
    k = float(model.num_experts_per_tok)
    if sharding.expert_tp < sharding.tp:
        return k / sharding.tp
    return k / sharding.ep if own_axis else k
