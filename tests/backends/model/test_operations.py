"""FLOPs and message sizes of a layer, computed by hand from the shapes."""

from __future__ import annotations

import pytest

from backends.model.operations import Batch, LayerBuilder
from backends.model.shapes import Sharding
from backends.ops import Communication, Compute, Item
from runs import catalogue

LLAMA, LITE = catalogue.model("llama-3.1-8b"), catalogue.model("deepseek-v2-lite")
TOKENS = 2048.0
BATCH = Batch(TOKENS, 512.0)


def flops(items: tuple[Item, ...], *kinds: str) -> float:
    return sum(i.flops for i in items if isinstance(i, Compute) and i.kind in kinds)


def messages(items: tuple[Item, ...]) -> list[tuple[str, str, float]]:
    return [(i.kind, i.axis, i.nbytes) for i in items if isinstance(i, Communication)]


def test_forward_of_a_llama_layer_costs_two_flops_a_weight_and_token() -> None:
    items = LayerBuilder(LLAMA, Sharding(), BATCH).forward("dense")
    weights = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert flops(items, "gemm") == 2 * weights * TOKENS


def test_attention_costs_two_products_over_the_average_context() -> None:
    items = LayerBuilder(LLAMA, Sharding(), BATCH).forward("dense")
    assert flops(items, "attention") == 2 * 2 * TOKENS * 512 * 32 * 128


def test_backward_costs_twice_the_matrix_products_and_two_and_a_half_times_attention() -> None:
    builder = LayerBuilder(LLAMA, Sharding(), BATCH)
    forward, backward = builder.forward("dense"), builder.backward("dense")
    assert flops(backward, "gemm") == 2 * flops(forward, "gemm")
    assert flops(backward, "attention_backward") == 2.5 * flops(forward, "attention")


def test_tensor_parallelism_divides_the_work() -> None:
    whole = LayerBuilder(LLAMA, Sharding(), BATCH).forward("dense")
    part = LayerBuilder(LLAMA, Sharding(tp=4, expert_tp=4), BATCH).forward("dense")
    assert flops(part, "gemm", "attention") == flops(whole, "gemm", "attention") / 4


def test_two_all_reduces_forward_and_two_backward() -> None:
    builder = LayerBuilder(LLAMA, Sharding(tp=4, expert_tp=4), BATCH)
    expected = [("all_reduce", "tp", 2 * TOKENS * 4096)] * 2
    assert messages(builder.forward("dense")) == expected
    assert messages(builder.backward("dense")) == expected


def test_sequence_parallelism_gathers_and_scatters_instead() -> None:
    items = LayerBuilder(LLAMA, Sharding(tp=4, expert_tp=4, sequence_parallel=True), BATCH).forward("dense")
    assert [kind for kind, _, _ in messages(items)] == ["all_gather", "reduce_scatter"] * 2
    assert {nbytes for _, _, nbytes in messages(items)} == {2 * TOKENS * 4096}


def test_sequence_parallelism_divides_norms() -> None:
    def norm_bytes(parallel: bool) -> float:
        items = LayerBuilder(LLAMA, Sharding(tp=4, expert_tp=4, sequence_parallel=parallel), BATCH).forward("dense")
        return sum(i.nbytes for i in items if isinstance(i, Compute) and i.kind == "norm")

    assert norm_bytes(True) == norm_bytes(False) / 4


def test_experts_compute_their_share_and_exchange_every_routed_copy() -> None:
    items = LayerBuilder(LITE, Sharding(ep=8), BATCH).forward("moe")
    assert flops(items, "grouped_gemm") == 2 * TOKENS * 6 * 3 * 2048 * 1408
    assert messages(items) == [("all_to_all", "ep", 2 * TOKENS * 6 * 2048)] * 2


def test_gathering_dispatch_moves_all_tokens_once() -> None:
    items = LayerBuilder(LITE, Sharding(tp=4, ep=16), BATCH, dispatch="all_gather").forward("moe")
    expert = [m for m in messages(items) if m[1] == "ep"]
    # 16 expert ranks hold 4 data-parallel batches, each on 4 tensor-parallel ranks
    assert expert == [("all_gather", "ep", 2 * TOKENS * 4 * 2048), ("reduce_scatter", "ep", 2 * TOKENS * 4 * 2048)]


def test_ranks_that_hold_the_same_tokens_need_no_dispatch() -> None:
    items = LayerBuilder(LITE, Sharding(tp=4, ep=4), BATCH).forward("moe")
    assert {axis for _, axis, _ in messages(items)} == {"tp"}
    assert flops(items, "grouped_gemm") == 2 * TOKENS * 6 / 4 * 3 * 2048 * 1408


def test_own_axis_splits_the_tokens_over_experts() -> None:
    items = LayerBuilder(LITE, Sharding(tp=2, ep=4, expert_tp=2), BATCH, own_axis=True).forward("moe")
    assert ("all_to_all", "ep", 2 * TOKENS / 4 * 6 * 2048) in messages(items)
    assert flops(items, "grouped_gemm") == 2 * TOKENS * 6 / 4 * 3 * 2048 * 1408 / 2


def test_latent_experts_exchange_the_latent() -> None:
    kimi = catalogue.model("kimi-k3")
    items = LayerBuilder(kimi, Sharding(ep=8), BATCH).forward("moe")
    assert messages(items)[0] == ("all_to_all", "ep", 2 * TOKENS * 16 * 3584)


def test_context_parallelism_gathers_keys_and_values() -> None:
    items = LayerBuilder(LLAMA, Sharding(cp=4), BATCH).forward("dense")
    assert messages(items) == [("all_gather", "cp", 2 * TOKENS * 4 * 2 * 8 * 128)]


def test_decode_reads_the_cache_of_every_sequence() -> None:
    context, sequences = 1024.0, 16.0
    batch = Batch(sequences, context, cached=sequences * context)
    items = LayerBuilder(LLAMA, Sharding(), batch).forward("dense")
    core = next(i for i in items if isinstance(i, Compute) and i.kind == "attention")
    cache = 2 * sequences * context * 2 * 8 * 128
    assert core.nbytes == cache + 2 * sequences * 32 * (128 + 128)


def test_mla_cache_is_the_latent_on_every_rank() -> None:
    batch = Batch(1.0, 1000.0, cached=1000.0)

    def core(tp: int) -> Compute:
        items = LayerBuilder(LITE, Sharding(tp=tp, expert_tp=tp), batch).forward("moe")
        return next(i for i in items if isinstance(i, Compute) and i.kind == "attention")

    query = 2 * 16 * (192 + 128)
    assert core(1).nbytes - query == pytest.approx(2 * 1000 * 576)
    assert core(4).nbytes - query / 4 == pytest.approx(2 * 1000 * 576)


def test_head_costs_the_vocabulary() -> None:
    builder = LayerBuilder(LLAMA, Sharding(tp=2, expert_tp=2), BATCH)
    assert flops(builder.head(loss=True), "gemm") == 2 * TOKENS * 4096 * 128256 / 2
    assert flops(builder.head_backward(), "gemm") == 4 * TOKENS * 4096 * 128256 / 2


def test_fused_chains_launch_less_and_move_less() -> None:
    def totals(fused: bool) -> tuple[int, float]:
        items = [i for i in LayerBuilder(LLAMA, Sharding(), BATCH, fused).forward("dense") if isinstance(i, Compute)]
        return sum(i.launches for i in items), sum(i.nbytes for i in items)

    assert totals(True) < totals(False)


def test_fp32_doubles_messages() -> None:
    bf16 = LayerBuilder(LLAMA, Sharding(tp=2, expert_tp=2), BATCH).forward("dense")
    fp32 = LayerBuilder(LLAMA, Sharding(tp=2, expert_tp=2), BATCH, element=4.0).forward("dense")
    assert [2 * n for *_, n in messages(bf16)] == [n for *_, n in messages(fp32)]
