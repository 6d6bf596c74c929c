"""The bundled data: complete inputs, and sizes that agree with the published parameter counts."""

from __future__ import annotations

import pytest

from runs import catalogue
from runs.card.aliases import bundled_cluster
from runs.errors import BadInputError
from runs.workload import ModelArchitecture

ALWAYS = {
    "model_family", "phase", "moe", "precision", "batch_size", "seq_len", "num_layers", "num_heads", "num_kv_heads",
    "head_dim", "hidden_size", "vocab_size",
}  # fmt: skip


@pytest.mark.parametrize("name", catalogue.workload_names())
def test_policy_inputs_are_complete(name: str) -> None:
    workload = catalogue.workload(name)
    given = workload.policy_input()
    assert None not in given.values()
    assert given.keys() >= ALWAYS
    assert given["moe"] == ("num_experts" in given)
    if not workload.is_training:
        assert given["seq_len"] == given["input_len"] + given["output_len"]


@pytest.mark.parametrize("name", catalogue.environment_names())
def test_environments_are_complete(name: str) -> None:
    environment = catalogue.environment(name)
    given = environment.policy_input()
    assert None not in given.values()
    assert given["total_gpus"] == int(name.rpartition("-")[2])
    assert environment.num_nodes * environment.xpus_per_node == environment.total_xpus
    assert environment.device.peak_flops("bf16") > 1e14
    assert environment.intra_node_gbps is not None
    assert environment.inter_node_gbps is not None
    assert environment.intra_node_gbps >= environment.inter_node_gbps


@pytest.mark.parametrize(
    ("count", "hosts", "chips"), [(1, 1, 8), (4, 1, 8), (8, 1, 8), (16, 4, 4), (32, 8, 4), (64, 16, 4), (256, 64, 4)]
)
def test_hosts_of_v6e_slices(count: int, hosts: int, chips: int) -> None:
    """Google's table of v6e configurations: VMs of a slice; up to 8 chips are one VM, larger slices are VMs of four."""
    environment = catalogue.environment(f"tpu-v6e-{count}")
    assert (environment.num_nodes, environment.xpus_per_node, environment.nics_per_node) == (hosts, chips, chips)


@pytest.mark.parametrize(("count", "hosts", "chips"), [(8, 1, 8), (16, 4, 4), (256, 64, 4)])
def test_slices_of_v5e_have_half_the_links_of_v6e(count: int, hosts: int, chips: int) -> None:
    """Google: 400 GB/s in both directions over four links a chip, against 800; 16 GB and 197 TFLOP/s a chip."""
    environment = catalogue.environment(f"tpu-v5e-{count}")
    assert (environment.num_nodes, environment.xpus_per_node) == (hosts, chips)
    assert environment.intra_node_gbps == environment.inter_node_gbps == 400 * 8 / 2 / 4
    assert catalogue.environment("tpu-v6e-16").intra_node_gbps == 800 * 8 / 2 / 4
    assert (environment.device.memory_gb, environment.device.peak_flops("bf16")) == (16, 197e12)


@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_a_torus_in_a_card_means_the_slices_of_its_chip(chip: str) -> None:
    found = bundled_cluster("2D torus", f"tpu_{chip}")
    assert found is not None and found.name.startswith(f"tpu-{chip}-")


@pytest.mark.parametrize(
    ("workload", "model", "phase", "batch", "tokens"),
    [
        ("wl1", "qwen3-4b", "inference", 128, 1152),
        ("wl2", "llama-3.1-8b", "inference", 128, 1152),
        ("wl3", "deepseek-moe-16b", "inference", 128, 1152),
        ("wl4", "llama-3.1-8b", "training", 4, 512),
        ("wl5", "deepseek-v2-lite", "training", 8, 1024),
        ("wl6", "deepseek-v2-lite", "training", 64, 2048),
        ("wl7", "deepseek-v2-236b", "training", 64, 1024),
    ],
)
def test_the_suite_of_the_paper(workload: str, model: str, phase: str, batch: int, tokens: int) -> None:
    found = catalogue.workload(workload)
    assert (found.model.model_family, found.phase, found.batch_size, found.seq_len) == (model, phase, batch, tokens)


def _attention(m: ModelArchitecture) -> int:
    """Weights of one attention block. Grouped queries, or DeepSeek-V2's latent attention (arXiv 2405.04434, 2.1)."""
    if m.attention == "gqa":
        return m.hidden_size * m.head_dim * (2 * m.num_heads + 2 * m.num_kv_heads)
    assert m.kv_lora_rank and m.qk_nope_head_dim and m.qk_rope_head_dim and m.v_head_dim
    query_width = m.num_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    queries = m.hidden_size * query_width
    if m.q_lora_rank:
        queries = m.q_lora_rank * (m.hidden_size + query_width)
    down = m.hidden_size * (m.kv_lora_rank + m.qk_rope_head_dim)
    up = m.kv_lora_rank * m.num_heads * (m.qk_nope_head_dim + m.v_head_dim)
    return queries + down + up + m.num_heads * m.v_head_dim * m.hidden_size


def _parameters(m: ModelArchitecture, experts: int) -> int:
    """Weights with `experts` routed experts a layer; gated feed-forward networks have three matrices; no norms."""
    embeddings = m.vocab_size * m.hidden_size * (1 if m.tied_embeddings else 2)
    dense_layers = m.first_dense_layers if m.moe else m.num_layers
    dense = 3 * m.hidden_size * (m.intermediate_size or 0)
    sparse = 3 * m.hidden_size * (m.moe_intermediate_size or 0) * (experts + m.num_shared_experts)
    router = m.hidden_size * m.num_experts
    feed_forward = dense_layers * dense + (m.num_layers - dense_layers) * (sparse + router)
    return embeddings + m.num_layers * _attention(m) + feed_forward


@pytest.mark.parametrize(
    "name", ["qwen3-4b", "llama-3.1-8b", "deepseek-moe-16b", "deepseek-v2-lite", "deepseek-v2-236b"]
)
def test_parameter_counts_agree_with_the_published_ones(name: str) -> None:
    model = catalogue.model(name)
    assert _parameters(model, model.num_experts) == pytest.approx(model.num_params, rel=0.01)


@pytest.mark.parametrize("name", ["qwen3-4b", "llama-3.1-8b"])
def test_embedding_counts_of_dense_models(name: str) -> None:
    """The published figure counts both the input and the output embedding unless they are tied."""
    model = catalogue.model(name)
    tables = 1 if model.tied_embeddings else 2
    assert model.num_params_embedding == tables * model.vocab_size * model.hidden_size


@pytest.mark.parametrize(
    "ask", [catalogue.model, catalogue.workload, catalogue.device, catalogue.environment], ids=lambda f: f.__name__
)
def test_unknown_names_are_refused_with_the_known_ones(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(BadInputError) as caught:
        ask("no-such-thing-7")
    assert caught.value.hint.startswith("bundled: ")


def test_counts_that_are_no_whole_nodes_are_refused() -> None:
    with pytest.raises(BadInputError, match="no whole number of nodes"):
        catalogue.environment("perlmutter-a100-6")


@pytest.mark.parametrize("spelling", ["nvidia_a100", "A100", "nvidia_a100_40gb"])
def test_cards_spellings_of_a_device(spelling: str) -> None:
    assert catalogue.device(spelling).name == "nvidia_a100_40gb"
