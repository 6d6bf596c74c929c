"""Real cards of the public benchmark against independently computed values, and findings at the right lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.card import CODES, LoadedCard, load_card, parse_card, to_yaml
from tests.reference import shared_path

CARD = """\
version: 1
description: training on two nodes
hf_url: https://huggingface.co/meta-llama/Llama-3.1-8B
trace_url: https://example.org/traces/1
contributor: someone
contact: someone@example.org
workload:
  model:
    phase: training
    moe: false
    granularity: model_fwd_bwd_pass
    model_family: llama-3.1-8b
    precision: bf16
    epochs: 1
    iteration: 5
    model_arch:
      num_params: 8030261248
      num_layers: 32
      num_heads: 32
      head_dim: 128
  data:
    batch_size: 8
    seq_len: 1024
    dataset: c4
  hardware:
    network_topo:
      topology: slingshot
      bandwidth_gbps:
        - 200
        - 2400
    xpu_spec:
      type: GPU
      model: nvidia_a100
      total_count: 8
      count_per_node: 4
    driver_version: cuda_12.4
Model-executor:
  framework:
    name: torchtitan
    version: 0.2.0
    compiler_tool_selection: plain_pytorch
  model_plan_parallelization:
    dp_replicate: 1
    dp_shard: 4
    tp: 2
    pp: 1
    cp: 1
    ep: 1
    pp_mb: 1
  communication_library:
    name: NCCL
    version: 2.27.3
    env: {}
  protocol_selection: [tcp, p2p]
metric_source:
  traces:
    - json
  metrics_specific_trace: []
"""


def _expected() -> dict[str, Any]:
    path = Path(__file__).resolve().parents[3] / "shared" / "data" / "cards" / "expected.json"
    return json.loads(path.read_text()) if path.exists() else {"cards": {"absent": {}}, "header": {"warnings": {}}}


EXPECTED = _expected()


@pytest.mark.shared
@pytest.mark.parametrize("name", EXPECTED["cards"])
def test_real_card(name: str) -> None:
    loaded = load_card(shared_path("data/cards") / name)
    want = EXPECTED["cards"][name]
    told = [{key: repair.as_dict()[key] for key in ("line", "rule", "text")} for repair in loaded.repairs]
    asked = {found.code for found in loaded.findings} & set(EXPECTED["header"]["warnings"])
    assert (not loaded.repairs) == want["parses_strictly"]
    assert told == want["repairs"]
    assert loaded.card.normalised() == want["normalised"]
    assert loaded.card.raw() == want.get("raw", {})
    assert asked == set(want["warnings"])
    assert parse_card(to_yaml(loaded.card)).card == loaded.card


@pytest.mark.shared
def test_every_code_of_the_reference_is_known_and_all_cards_are_there() -> None:
    shared_path("data/cards/expected.json")
    assert len(EXPECTED["cards"]) == 175
    assert set(EXPECTED["header"]["warnings"]) <= set(CODES)


@pytest.mark.shared
def test_severities_follow_the_reference() -> None:
    """The reference's header names the minor codes; all its others are warnings."""
    header = json.loads(shared_path("data/cards/expected.json").read_text())["header"]
    minor_text = header["comparison"].partition("no error. ")[2].partition(" are minor")[0]
    minor = tuple(part.strip().rstrip("*") for part in minor_text.split(","))
    for code in header["warnings"]:
        assert CODES[code].severity == ("info" if code.startswith(minor) else "warning"), code


def codes(text: str, name: str = "card.yaml") -> set[str]:
    return {found.code for found in parse_card(text, name).findings}


def test_a_good_card_has_no_findings() -> None:
    assert parse_card(CARD).findings == ()


def replaced(old: str, new: str) -> str:
    assert CARD.count(old) == 1, old
    return CARD.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "code", "marked"),
    [
        ("phase: training", "phase: training_run", "phase_unknown", "phase:"),
        ("granularity: model_fwd_bwd_pass", "granularity: step", "granularity_unknown", "granularity:"),
        ("granularity: model_fwd_bwd_pass", "granularity: model_fwd", "phase_granularity_mismatch", "granularity:"),
        ("    iteration: 5\n", "", "iteration_missing", "  model:"),
        ("    batch_size: 8\n", "", "batch_size_missing", "  data:"),
        ("batch_size: 8", "batch_size: [1, 2]", "batch_size_is_list", "batch_size:"),
        ("batch_size: 8", "batch_size: 8\n    batch_size_scope: local", "batch_size_not_global", "batch_size_scope:"),
        ("batch_size: 8", "batch_size: eight", "wrong_type", "batch_size:"),
        ("batch_size: 8", "batch_size: true", "wrong_type", "batch_size:"),
        ("seq_len: 1024", "seq_len: -1", "not_positive", "seq_len:"),
        ("seq_len: 1024", "seqlen: 1024", "unknown_field", "seqlen:"),
        ("seq_len: 1024", "seq_len: 1024\n    output_len: 1", "inference_lengths_in_training", "output_len:"),
        ("moe: false", "moe: 'no'", "wrong_type", "moe:"),
        ("moe: false", "moe: true", "moe_without_ep", "    ep:"),
        ("topology: slingshot", "topology: ' '", "topology_missing", "topology:"),
        ("        - 200\n", "        - N/A\n", "bandwidth_not_numeric", "- N/A"),
        ("        - 200\n", "", "bandwidth_single_value", "bandwidth_gbps:"),
        ("        - 200\n", "        - 4000\n", "bandwidth_order_suspect", "bandwidth_gbps:"),
        ("total_count: 8", "total_count: 16", "parallel_product_mismatch", "model_plan_parallelization:"),
        ("total_count: 8", "total_count: 2", "count_per_node_exceeds_total", "count_per_node:"),
        ("total_count: 8", "total_count: 6", "total_not_multiple_of_node", "total_count:"),
        ("tp: 2", "tp: null", "parallelism_unset", "tp:"),
        ("name: torchtitan", "name: torchtitan-0.1.0", "framework_version_in_name", "name: torchtitan"),
        ("env: {}", "env:", "comm_env_missing", "env:"),
        ("env: {}", "env: {VLLM_ALL2ALL_BACKEND: fast}", "unknown_all2all_backend", "env:"),
        ("    - json", "    - json\n    - pdf", "unknown_trace_type", "- pdf"),
        (
            "metrics_specific_trace: []",
            "metrics_specific_trace: [a, null]",
            "metrics_specific_trace_null_entry",
            "metrics_",
        ),
        ("hf_url: https://huggingface.co/meta-llama/Llama-3.1-8B", "hf_url: x", "hf_url_not_model_root", "hf_url:"),
        (
            "trace_url: https://example.org/traces/1",
            "trace_url: https://example.org/",
            "trace_url_bare_host",
            "trace_url:",
        ),
        ("trace_url: https://example.org/traces/1", "trace_url: https://[", "trace_url_bare_host", "trace_url:"),
        ("contact: someone@example.org\n", "", "contributor_missing", "version:"),
        ("metric_source:", "notes: []\nmetric_source:", "unknown_top_level_key", "notes:"),
    ],
)
def test_one_change_makes_one_finding_at_its_line(old: str, new: str, code: str, marked: str) -> None:
    text = replaced(old, new)
    found = [each for each in parse_card(text).findings if each.code == code]
    line = next(number for number, content in enumerate(text.splitlines(), 1) if marked in content)
    assert [(each.line, each.file) for each in found] == [(line, "card.yaml")]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 5), st.integers(0, 40), st.sampled_from(["\n", "# words: here\n", "   \n"]))
def test_lines_move_with_the_text_before_them(lines: int, at: int, filler: str) -> None:
    """Blank lines and comments anywhere before a field shift the line of its finding by as many."""
    split = CARD.splitlines(keepends=True)
    plain = parse_card(CARD.replace("seq_len: 1024", "seq_len: 0")).findings
    position = min(at, next(i for i, line in enumerate(split) if "seq_len" in line))
    text = "".join([*split[:position], filler * lines, *split[position:]]).replace("seq_len: 1024", "seq_len: 0")
    moved = parse_card(text).findings
    assert [(each.code, (each.line or 0) - lines) for each in moved] == [(each.code, each.line) for each in plain]


def test_the_executor_under_workload_is_read_where_it_belongs() -> None:
    start, end = CARD.index("Model-executor:"), CARD.index("metric_source:")
    block = "".join(f"  {line}\n" for line in CARD[start:end].splitlines())
    text = (CARD[:start] + block + CARD[end:]).replace("tp: 2", "tp: two")
    loaded = parse_card(text)
    assert {each.code: each.line for each in loaded.findings if each.severity == "warning"} == {
        "model_executor_nested": CARD[:start].count("\n") + 1,
        "wrong_type": next(i for i, line in enumerate(text.splitlines(), 1) if "tp: two" in line),
    }
    assert loaded.card.normalised()["framework_name"] == "torchtitan"
    assert parse_card(to_yaml(loaded.card)).card.normalised() == loaded.card.normalised()


def test_a_doubled_ending_is_told() -> None:
    assert codes(CARD, "card.yaml.yaml") == {"double_extension"}


@pytest.mark.parametrize("written", ["0.10", "1.20", "3"])
def test_versions_keep_their_spelling(written: str) -> None:
    loaded: LoadedCard = parse_card(replaced("version: 0.2.0", f"version: {written}"))
    assert loaded.card.normalised()["framework_version"] == written


def test_every_code_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "cards.md").read_text(encoding="utf-8")
    for code, (severity, meaning) in CODES.items():
        assert f"| `{code}` | {severity} | {meaning} |" in text
