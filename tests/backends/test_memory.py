"""The memory model: parts by hand, the effect of each knob, and its speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backends.memory import concurrent_sequences, estimate, prefill_tokens, waves
from runs import catalogue
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload
from tests.backends.doubles import FSDP_STATE, SERVING_STATE, perlmutter, training_plan
from tests.timing import cpu_seconds

LLAMA = catalogue.model("llama-3.1-8b")
WORKLOAD = Workload("test", LLAMA, "training", 32, 1024)
PARAMS = 8_030_261_248


def parts(workload: Workload = WORKLOAD, **fields: Any) -> dict[str, float]:
    return dict(estimate(workload, perlmutter(), training_plan(workload, **fields)).parts)


def test_states_of_mixed_precision_adam_are_eighteen_bytes_a_parameter() -> None:
    found = parts()
    assert found["weights"] == 2 * PARAMS
    assert found["gradients"] == 4 * PARAMS
    assert found["optimizer"] == 12 * PARAMS


def test_tensor_parallelism_divides_the_states() -> None:
    assert parts(tp=4)["optimizer"] == pytest.approx(12 * PARAMS / 4, rel=1e-3)


@pytest.mark.parametrize(
    ("stage", "divided"),
    [(0, ()), (1, ("optimizer",)), (2, ("optimizer", "gradients", "weights")),
     (3, ("optimizer", "gradients", "weights"))],
)  # fmt: skip
def test_zero_stages_divide_what_they_should(stage: int, divided: tuple[str, ...]) -> None:
    fields = {"dp_shard": 8, "zero_stage": stage} if stage else {"dp_replicate": 8}
    whole, found = parts(), parts(**fields)
    for name in ("weights", "gradients", "optimizer"):
        assert found[name] == pytest.approx(whole[name] / (8 if name in divided else 1))


def test_fsdp_gathers_two_units_ahead() -> None:
    largest = 128256 * 4096  # the embedding outweighs a layer
    found = parts(dp_shard=8, zero_stage=3, state_bytes=FSDP_STATE)
    assert found["gathered"] == largest * (2 * 2 + 4)
    assert found["weights"] == 4 * PARAMS / 8


def test_kept_gathered_weights_are_the_whole_stage() -> None:
    found = parts(dp_shard=8, zero_stage=2, reshard_after_forward=False, state_bytes=FSDP_STATE)
    assert found["gathered"] == 2 * PARAMS


def test_offloaded_optimizer_states_are_not_on_the_device() -> None:
    assert parts(offload=True)["optimizer"] == 0


def test_first_stage_keeps_most_microbatches_and_one_f_one_b_less_than_gpipe() -> None:
    one = parts(pp=4, pipeline_schedule="1f1b")
    all_at_once = parts(pp=4, pipeline_schedule="gpipe")
    assert all_at_once["activations"] == 32 / 4 * one["activations"]


def test_recomputation_trades_activations() -> None:
    kept = [parts(recompute=mode)["activations"] for mode in ("full", "selective", "none")]
    assert kept == sorted(kept)
    assert kept[0] == 1024 * 2 * 4096 * 32


def test_activations_grow_with_the_microbatch() -> None:
    assert parts(micro_batch_size=4)["activations"] == 4 * parts(micro_batch_size=1)["activations"]


def test_logits_count_where_the_head_stands() -> None:
    assert parts(tp=4)["logits"] == 1024 * 128256 / 4 * 8.0
    deep = estimate(replace(WORKLOAD, batch_size=256), perlmutter(), ParallelPlan("test", pp=8, num_microbatches=256))
    assert deep.stage == 0
    assert deep.parts["logits"] == 0


def test_experts_divide_over_their_replicas() -> None:
    lite = Workload("test", catalogue.model("deepseek-v2-lite"), "training", 32, 1024)
    one, spread = parts(lite, dp_replicate=8), parts(lite, dp_replicate=8, ep=8)
    experts = 26 * 64 * 3 * 2048 * 1408
    assert one["optimizer"] - spread["optimizer"] == pytest.approx(12 * experts * 7 / 8)
    assert spread["moe_buffers"] > one["moe_buffers"] == 0


def test_limit_is_the_nominal_memory_and_margin_stretches_it() -> None:
    plan = training_plan(WORKLOAD, tp=4, pp=4)
    found = estimate(WORKLOAD, perlmutter(), plan)
    assert found.limit_bytes == 40 * 2**30
    assert found.fits
    small = replace(perlmutter(), memory_gb=found.total_bytes / 2**30 / 1.05)
    assert estimate(WORKLOAD, small, plan, margin=0.06).fits
    assert not estimate(WORKLOAD, small, plan, margin=0.04).fits


def test_total_is_the_sum_and_the_description_names_the_largest_part_first() -> None:
    found = estimate(WORKLOAD, perlmutter(), training_plan(WORKLOAD))
    assert found.total_bytes == sum(found.parts.values())
    assert not found.fits
    assert f"optimizer {12 * PARAMS / 2**30:.1f}, gradients" in found.describe()


def test_kv_cache_of_grouped_queries_and_of_latents() -> None:
    serve = Workload("test", LLAMA, "inference", 16, 1152, input_len=1024, output_len=128)
    plan = ParallelPlan("vllm", tp=2, state_bytes=SERVING_STATE)
    assert estimate(serve, perlmutter(), plan).parts["kv_cache"] == 16 * 1152 * 32 * 2 * 8 * 128 * 2 / 2
    lite = replace(serve, model=catalogue.model("deepseek-v2-lite"))
    assert estimate(lite, perlmutter(), plan).parts["kv_cache"] == 16 * 1152 * 27 * 576 * 2


def test_serving_limits_bound_cache_and_prefill() -> None:
    serve = Workload("test", LLAMA, "inference", 128, 1152, input_len=1024, output_len=128)
    plan = ParallelPlan("vllm", dp_replicate=4, max_num_seqs=8, max_num_batched_tokens=2048, state_bytes=SERVING_STATE)
    assert concurrent_sequences(serve, plan) == 8
    assert prefill_tokens(serve, plan) == 2048
    assert concurrent_sequences(serve, replace(plan, max_num_seqs=None)) == 32
    assert waves(serve, plan) == 32 / 8
    assert waves(WORKLOAD, plan) == 1


def test_offloaded_serving_keeps_two_layers_of_weights() -> None:
    serve = Workload("test", LLAMA, "inference", 1, 1152, input_len=1024, output_len=128)
    plan = ParallelPlan("vllm", offload=True, state_bytes=SERVING_STATE)
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert estimate(serve, perlmutter(), plan).parts["weights"] == 2 * 2 * layer


def test_an_estimate_takes_less_than_a_millisecond() -> None:
    plans = [
        training_plan(WORKLOAD, tp=tp, pp=pp, recompute=mode, state_bytes=StateBytes())
        for tp in (1, 2, 4, 8) for pp in (1, 2, 4) for mode in ("none", "selective", "full")
    ]  # fmt: skip
    environment = perlmutter()
    assert cpu_seconds(lambda: [estimate(WORKLOAD, environment, plan) for plan in plans]) / len(plans) < 1e-3
