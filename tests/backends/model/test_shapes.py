"""Parameter counts against what the models' publishers say, and how tensor and expert parallelism divide them."""

from __future__ import annotations

import pytest

from backends.model.shapes import (
    Sharding,
    attention_shape,
    count_parameters,
    embedding_parameters,
    layer_kinds,
    layer_parameters,
)
from runs import catalogue
from runs.plan import ParallelPlan

PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "qwen3-4b": 4_022_468_096,
    "deepseek-v2-236b": 235_741_434_880,
    "deepseek-moe-16b": 16_375_728_128,
    "deepseek-v2-lite": 15_700_000_000,
}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items())
def test_counts_are_the_published_ones(name: str, published: int) -> None:
    assert count_parameters(catalogue.model(name)).total == pytest.approx(published, rel=0.01)


def test_active_parameters_of_the_models_that_publish_them() -> None:
    assert count_parameters(catalogue.model("deepseek-moe-16b")).active == pytest.approx(2_828_650_496, rel=0.01)
    assert count_parameters(catalogue.model("deepseek-v2-236b")).active == pytest.approx(21e9, rel=0.03)


def test_dense_models_use_all_their_parameters() -> None:
    found = count_parameters(catalogue.model("llama-3.1-8b"))
    assert found.active == found.total


def test_embedding_counts_twice_unless_it_is_tied() -> None:
    llama, qwen = catalogue.model("llama-3.1-8b"), catalogue.model("qwen3-4b")
    assert count_parameters(llama).embedding == 2 * 128256 * 4096
    assert count_parameters(qwen).embedding == 151936 * 2560
    assert embedding_parameters(qwen, tp=4) == 151936 * 2560 / 4


def test_one_llama_layer_by_hand() -> None:
    # q and o: 4096 x 4096; k and v: 4096 x 1024; gate, up, down: 4096 x 14336; two norms
    expected = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert layer_parameters(catalogue.model("llama-3.1-8b"), "dense").total == expected


def test_kimi_at_four_bits_is_about_the_size_of_its_checkpoint() -> None:
    # 1.56 TB is what the model's files take; 4-bit weights with a 16-bit scale for every 32 are 4.5 bits each
    assert count_parameters(catalogue.model("kimi-k3")).total * 4.5 / 8 == pytest.approx(1.56e12, rel=0.02)


def test_tensor_parallelism_divides_matrices_not_norms() -> None:
    model = catalogue.model("llama-3.1-8b")
    whole, half = layer_parameters(model, "dense"), layer_parameters(model, "dense", Sharding(tp=2, expert_tp=2))
    assert half.dense - 2 * 4096 == (whole.dense - 2 * 4096) / 2


def test_more_devices_than_key_value_heads_repeat_them() -> None:
    qkv = attention_shape(catalogue.model("llama-3.1-8b")).linears[0]
    assert qkv.local(8)[1] == 4096 / 8 + 2 * 128
    assert qkv.local(16)[1] == 4096 / 16 + 2 * 128  # 8 heads over 16 devices: one key and one value head each


def test_expert_parallelism_divides_experts_only() -> None:
    model = catalogue.model("deepseek-v2-lite")
    whole, split = layer_parameters(model, "moe"), layer_parameters(model, "moe", Sharding(ep=8))
    assert split.expert == whole.expert / 8
    assert split.dense == whole.dense
    assert whole.expert == 64 * 3 * 2048 * 1408


def test_first_dense_layers_come_first() -> None:
    kinds = layer_kinds(catalogue.model("glm-5.2"))
    assert kinds[:3] == ("dense",) * 3
    assert set(kinds[3:]) == {"moe"}
    assert len(kinds) == 78


def test_latent_experts_see_the_latent_width() -> None:
    model = catalogue.model("kimi-k3")
    assert layer_parameters(model, "moe").expert == 896 * 3 * 3584 * 3072


def test_experts_stay_whole_where_they_take_tensor_parallel_ranks() -> None:
    assert Sharding.of(ParallelPlan("vllm", tp=4, ep=4, expert_placement="inside_dp_tp")).expert_tp == 1
    assert Sharding.of(ParallelPlan("vllm", tp=4, ep=1, expert_placement="inside_dp_tp")).expert_tp == 4
    assert Sharding.of(ParallelPlan("megatron-lm", tp=4, ep=4)).expert_tp == 4
