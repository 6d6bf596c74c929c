"""From cards to the facts of a run: merged architectures, devices, bandwidths, and errors that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from runs import catalogue
from runs.card import parse_card
from runs.errors import BadInputError
from tests.runs.test_card import CARD, replaced

ARCH = """\
      num_params: 8030261248
      num_layers: 32
      num_heads: 32
      head_dim: 128
"""


def facts(text: str) -> Any:
    return parse_card(text).card


def test_workload_of_a_card() -> None:
    workload = facts(CARD).workload()
    assert (workload.phase, workload.batch_size, workload.seq_len, workload.precision) == ("training", 8, 1024, "bf16")
    assert workload.model.num_kv_heads == 8  # Llama-3.1-8B's config.json
    assert workload.model.vocab_size == 128256
    assert workload.model.num_params == 8030261248
    assert "card: num_layers, num_heads, head_dim, num_params" in workload.model.source
    assert "catalogue llama-3.1-8b" in workload.model.source


@pytest.mark.parametrize(
    ("family", "bundled"),
    [
        ("Qwen-3_4B", "qwen3-4b"),
        ("deepseek_v3_16b", "deepseek-v2-lite"),
        ("deepseek-v3-236b", "deepseek-v2-236b"),
        ("deepseek_v3_236b", "deepseek-v2-236b"),
        ("DeepSeek-MoE-16B", "deepseek-moe-16b"),
    ],
)
def test_families_and_aliases_take_the_bundled_shape(family: str, bundled: str) -> None:
    known = catalogue.model(bundled)
    text = replaced(f"    model_arch:\n{ARCH}", "").replace("llama-3.1-8b", family)
    model = facts(text.replace("moe: false", f"moe: {str(known.moe).lower()}")).workload().model
    assert model.model_family == family.lower().replace("_", "-").replace("qwen-3-", "qwen3-")
    for name in ("num_layers", "hidden_size", "num_experts", "kv_lora_rank", "num_params", "tied_embeddings"):
        assert getattr(model, name) == getattr(known, name)


@pytest.mark.parametrize("family", ["llama", "qwen", "mixtral", "llama-3.1"])
def test_a_family_that_means_no_single_model_needs_its_numbers(family: str) -> None:
    with pytest.raises(BadInputError, match="model_arch lacks hidden_size, num_kv_heads, vocab_size") as caught:
        facts(replaced("model_family: llama-3.1-8b", f"model_family: {family}")).workload()
    assert "llama-3.1-8b" in caught.value.hint


def test_the_card_wins_and_published_counts_of_another_shape_are_left_out() -> None:
    model = facts(
        replaced("num_params: 8030261248", "num_kv_heads: 8").replace("num_layers: 32", "num_layers: 16")
    ).workload()
    assert model.model.num_layers == 16
    assert model.model.num_params is None
    assert model.model.num_params_embedding is None
    assert "num_params" not in model.policy_input()


def test_flat_numbers_count_and_the_block_wins_over_them() -> None:
    text = CARD.replace(
        f"    model_arch:\n{ARCH}", "    num_layers: 30\n    num_heads: 16\n    model_arch: {num_heads: 64}\n"
    )
    model = facts(text).workload().model
    assert (model.num_layers, model.num_heads) == (30, 64)


def test_both_spellings_of_active_parameters() -> None:
    for key in ("num_params_active", "num_active_params"):
        model = facts(replaced("num_params: 8030261248", f"{key}: 7")).workload().model
        assert model.num_active_params == 7


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("phase: training", "phase: tuning", "workload.model.phase is 'tuning'"),
        ("model_family: llama-3.1-8b", "model_family:", "workload.model.model_family is missing"),
        ("precision: bf16", "precision:", "workload.model.precision is missing"),
        ("batch_size: 8", "batch_size: [1, 2]", "workload.data.batch_size is a list"),
        ("batch_size: 8", "batch_size: 8\n    batch_size_scope: local", "batch_size_scope is 'local'"),
        ("batch_size: 8", "batch_size: 0", "workload.data.batch_size is 0"),
        ("    batch_size: 8\n", "", "workload.data.batch_size is missing"),
        ("seq_len: 1024", "seq_len: long", "workload.data.seq_len is 'long'"),
        ("moe: false", "moe: true", "moe is true, but workload.model.model_arch.num_experts is missing"),
        ("head_dim: 128", "num_experts: 8", "moe is false, but llama-3.1-8b has 8 experts"),
        ("head_dim: 128", "attention: mla", "lacks kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim"),
    ],
)
def test_what_a_workload_lacks_is_named(old: str, new: str, field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        facts(replaced(old, new)).workload()
    assert field in caught.value.message
    assert caught.value.hint


def test_moe_without_the_width_of_its_experts() -> None:
    text = replaced("head_dim: 128", "num_experts: 8").replace("moe: false", "moe: true")
    with pytest.raises(BadInputError, match="lacks num_experts_per_tok, moe_intermediate_size"):
        facts(text).workload()


def test_lengths_of_an_inference_make_up_a_missing_seq_len() -> None:
    text = replaced("phase: training", "phase: inference")
    both = text.replace("seq_len: 1024", "input_len: 1000\n    output_len: 28")
    assert facts(both).workload().seq_len == 1028
    with pytest.raises(BadInputError, match="seq_len is missing"):
        facts(text.replace("seq_len: 1024", "input_len: 1000")).workload()


def test_environment_of_a_card() -> None:
    environment = facts(CARD).environment()
    assert environment.device.name == "nvidia_a100_40gb"
    assert (environment.total_xpus, environment.xpus_per_node, environment.num_nodes) == (8, 4, 2)
    assert (environment.inter_node_gbps, environment.intra_node_gbps) == (200, 2400)
    assert (environment.framework, environment.framework_version) == ("torchtitan", "0.2.0")
    assert environment.nics_per_node == 4  # Perlmutter: four Slingshot NICs a node
    assert environment.extras == {"card_topology": "slingshot", "network_facts": "catalogue perlmutter-a100"}


@pytest.mark.parametrize(
    ("bandwidth", "total", "scale_out", "scale_up"),
    [
        ("[200, 2400]", 8, 200, 2400),
        ("[N/A, 800]", 4, None, 800),
        ("[TBD, TBD]", 4, None, None),
        ("[600]", 4, None, 600),
        ("[600]", 8, None, None),
        ("[600, 0]", 4, 600, None),
        ("[3200, 400]", 8, 3200, 400),
        ("[true, .nan]", 8, None, None),
        ("600", 8, None, None),
        ("[]", 8, None, None),
    ],
)
def test_bandwidths(bandwidth: str, total: int, scale_out: float | None, scale_up: float | None) -> None:
    text = replaced("      bandwidth_gbps:\n        - 200\n        - 2400", f"      bandwidth_gbps: {bandwidth}")
    environment = facts(text.replace("total_count: 8", f"total_count: {total}")).environment()
    assert (environment.inter_node_gbps, environment.intra_node_gbps) == (scale_out, scale_up)
    assert None not in environment.policy_input().values()


def test_memory_of_the_card_wins() -> None:
    assert facts(replaced("type: GPU", "memory_gb: 80")).environment().device_memory_gb == 80
    assert facts(CARD).environment().device_memory_gb == 40


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("model: nvidia_a100", "model: abacus", "workload.hardware.xpu_spec.model 'abacus' is no bundled device"),
        ("      model: nvidia_a100\n", "", "workload.hardware.xpu_spec.model is missing"),
        ("total_count: 8", "total_count: 8.5", "workload.hardware.xpu_spec.total_count is 8.5"),
        ("      count_per_node: 4\n", "", "workload.hardware.xpu_spec.count_per_node is missing"),
    ],
)
def test_what_an_environment_lacks_is_named(old: str, new: str, field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        facts(replaced(old, new)).environment()
    assert field in caught.value.message
    assert caught.value.hint


def test_a_card_without_hardware_names_the_device() -> None:
    with pytest.raises(BadInputError, match=r"xpu_spec\.model is missing"):
        facts("workload: {model: {phase: training}}").environment()
