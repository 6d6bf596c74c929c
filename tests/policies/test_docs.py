"""docs/policies.md: its example runs, its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.confinement import LEVELS
from policies.factory import create_runner
from policies.program import DIALECT_MISSING_MODULES, DIALECT_MODULES
from policies.runner import PolicyError, PolicyErrorKind, PolicyLimits

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.S)
POLICIES = [text for language, text in BLOCKS if language == "python" and "return" in text]

WORKLOAD_KEYS = [
    "model_family",
    "phase",
    "moe",
    "precision",
    "batch_size",
    "seq_len",
    "input_len",
    "output_len",
    "num_params",
    "num_active_params",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "vocab_size",
    "num_experts",
    "num_experts_per_tok",
    "num_shared_experts",
    "moe_intermediate_size",
    "config_space",
]
ENVIRONMENT_KEYS = [
    "gpu_model",
    "gpu_memory_gb",
    "total_gpus",
    "gpus_per_node",
    "intra_node_bandwidth_gbps",
    "inter_node_bandwidth_gbps",
    "network_topology",
    "framework",
    "framework_version",
    "xpu_type",
]


def test_the_example_prints_what_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.py"
    path.write_text(POLICIES[0])
    (script,) = [text for language, text in BLOCKS if language == "python" and "create_runner" in text]
    (printed,) = [text for language, text in BLOCKS if language == "text"]

    exec(script, {"path": path})

    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("kind", ["monty", "process"])
def test_the_error_is_as_the_page_says(kind: str) -> None:
    runner = create_runner(kind, unconfined=True)  # type: ignore[arg-type]
    with pytest.raises(PolicyError) as caught:
        runner.evaluate(POLICIES[1], {"config_space": [{"key": "tp", "choices": [1]}]}, {})
    runner.close()

    assert caught.value.kind == "raised"
    assert f"the message `{caught.value.message}`" in PAGE
    assert 'File "policy.py", line 2' in caught.value.traceback


def test_the_tables_name_every_input_and_every_kind() -> None:
    for word in (*WORKLOAD_KEYS, *ENVIRONMENT_KEYS, *PolicyErrorKind, *LEVELS):
        assert f"`{word}`" in PAGE, word


def test_the_modules_named_are_those_of_the_dialect() -> None:
    flat = " ".join(PAGE.split())

    assert f"It imports `{', '.join(DIALECT_MODULES)}`" in flat
    assert f"`{', '.join(DIALECT_MISSING_MODULES)}`" in flat


def test_the_limits_are_the_defaults() -> None:
    limits = PolicyLimits()

    for name, text in [
        ("time", f"{limits.seconds:g} s"),
        ("memory", f"{limits.memory_bytes // 2**20} MiB"),
        ("printed output", f"{limits.output_bytes // 2**10} KiB"),
        ("source", f"{limits.source_bytes // 2**10} KiB"),
    ]:
        assert f"| {name} | {text} |" in PAGE
