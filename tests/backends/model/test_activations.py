"""Kept activations against the published per-layer formulas."""

from __future__ import annotations

from backends.model.activations import layer_activation_bytes
from backends.model.shapes import Sharding
from runs import catalogue

LLAMA = catalogue.model("llama-3.1-8b")


def test_dense_layer_tensor_by_tensor() -> None:
    # inputs and outputs of two norms, q k v, attention output with its fp32 log-sum, gate and up, their product
    h, heads, kv, ffn = 4096, 32 * 128, 2 * 8 * 128, 14336
    expected = 4 * 2 * h + 2 * (heads + kv) + 2 * heads + 4 * 32 + 4 * ffn + 2 * ffn
    assert layer_activation_bytes(LLAMA, "dense", Sharding(), "none") == expected


def test_full_recomputation_keeps_the_input() -> None:
    assert layer_activation_bytes(LLAMA, "dense", Sharding(), "full") == 2 * 4096


def test_selective_lies_between() -> None:
    kept = [layer_activation_bytes(LLAMA, "dense", Sharding(), mode) for mode in ("full", "selective", "none")]
    assert kept == sorted(kept)
    assert len(set(kept)) == 3


def test_sequence_parallelism_divides_everything_by_tp() -> None:
    # Korthikanti et al. 2022, equation 4: with sequence parallelism the whole layer's activations shrink by t
    one = layer_activation_bytes(LLAMA, "dense", Sharding(), "none")
    split = layer_activation_bytes(LLAMA, "dense", Sharding(tp=8, expert_tp=8, sequence_parallel=True), "none")
    assert split == one / 8


def test_without_it_norms_stay_whole() -> None:
    # equation 2 of the same paper: the ten-unit part (here four units of 2h) is not divided
    one = layer_activation_bytes(LLAMA, "dense", Sharding(), "none")
    split = layer_activation_bytes(LLAMA, "dense", Sharding(tp=8, expert_tp=8), "none")
    assert split == (one - 8 * 4096) / 8 + 8 * 4096


def test_experts_keep_every_routed_copy() -> None:
    lite = catalogue.model("deepseek-v2-lite")
    moe = layer_activation_bytes(lite, "moe", Sharding(), "none")
    dense = layer_activation_bytes(lite, "dense", Sharding(), "none")
    routed = 6 * 6 * 1408 + 2 * 2 * 6 * 2048 + 8 * 64
    assert moe - dense == routed + 6 * 2 * 1408 - 6 * 10944
