"""Benchmark entries: what makes a folder complete, and the rule on steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runs import catalogue
from runs.card import Finding
from runs.entry import check_entry, check_steps
from tests.runs.test_card import CARD


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    folder = tmp_path / "entry"
    (folder / "trace").mkdir(parents=True)
    (folder / "card.yaml").write_text(CARD)
    (folder / "script.sh").write_text("#!/bin/sh\nexit 0\n")
    (folder / "trace" / "rank_0.json").write_text("{}")
    (folder / "metrics.json").write_text("{}")
    (folder / "execution.json").write_text('{"warmup_steps": 5, "recorded_steps": 5, "seconds": 2.5}')
    return folder


def told(found: list[Finding]) -> dict[str, str]:
    return {each.code: each.severity for each in found}


def test_a_complete_entry_has_no_findings(entry: Path) -> None:
    assert check_entry(entry) == []


@pytest.mark.parametrize(
    ("name", "code", "severity"),
    [
        ("card.yaml", "entry_card_missing", "error"),
        ("script.sh", "entry_script_missing", "error"),
        ("trace/rank_0.json", "entry_trace_missing", "error"),
        ("metrics.json", "entry_metrics_missing", "warning"),
    ],
)
def test_a_missing_file(entry: Path, name: str, code: str, severity: str) -> None:
    (entry / name).unlink()
    assert told(check_entry(entry)) == {code: severity}


@pytest.mark.parametrize("name", ["script.sh", "trace/rank_0.json"])
def test_an_empty_file_is_a_missing_one(entry: Path, name: str) -> None:
    (entry / name).write_text("")
    assert [each.severity for each in check_entry(entry)] == ["error"]


def test_no_folder(entry: Path) -> None:
    assert told(check_entry(entry / "absent")) == {"entry_not_a_folder": "error"}
    assert told(check_entry(entry / "card.yaml")) == {"entry_not_a_folder": "error"}


def test_an_unusable_card_is_told_with_its_line(entry: Path) -> None:
    (entry / "card.yaml").write_text("workload: 1\n")
    assert [(each.code, each.line) for each in check_entry(entry)] == [("section_not_mapping", 1)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ({"warmup_steps": 5, "recorded_steps": 6}, {"iteration_mismatch"}),
        ({"warmup_steps": 4, "recorded_steps": 5}, {"warmup_steps_too_few"}),
        ({"warmup_steps": 5, "recorded_steps": 4}, {"recorded_steps_too_few", "iteration_mismatch"}),
        ({"warmup_steps": 5}, set()),
        ({"recorded_steps": 5}, {"steps_unknown"}),
        ({"warmup_steps": -1}, {"entry_execution_invalid", "steps_unknown"}),
        ({"warmup_steps": True}, {"entry_execution_invalid", "steps_unknown"}),
        ({"warmup_steps": "5"}, {"entry_execution_invalid", "steps_unknown"}),
        ([], {"entry_execution_invalid", "steps_unknown"}),
    ],
)
def test_steps_of_a_training_entry(entry: Path, steps: Any, expected: set[str]) -> None:
    (entry / "execution.json").write_text(json.dumps(steps))
    assert set(told(check_entry(entry))) == expected


@pytest.mark.parametrize("text", ["{", "", "\xff\xfe", "[" * 100_000])
def test_execution_that_is_no_json(entry: Path, text: str) -> None:
    (entry / "execution.json").write_text(text, encoding="latin-1")
    assert "entry_execution_invalid" in told(check_entry(entry))


def test_iteration_stands_in_for_recorded_steps(entry: Path) -> None:
    (entry / "execution.json").write_text('{"warmup_steps": 5}')
    (entry / "card.yaml").write_text(CARD.replace("iteration: 5", "iteration: 4"))
    assert told(check_entry(entry)) == {"recorded_steps_too_few": "error"}
    (entry / "execution.json").unlink()
    assert set(told(check_entry(entry))) == {"entry_execution_missing", "recorded_steps_too_few", "steps_unknown"}


def test_decode_steps_of_an_inference_entry(entry: Path) -> None:
    inference = CARD.replace("phase: training", "phase: inference").replace("model_fwd_bwd_pass", "model_fwd")
    lengths = "seq_len: 1152\n    input_len: 1024\n    output_len: 128"
    (entry / "card.yaml").write_text(inference.replace("seq_len: 1024", lengths))
    for steps, expected in (
        ({"warmup_steps": 1, "decode_steps": 128}, {}),
        ({"warmup_steps": 0, "decode_steps": 128}, {"warmup_missing": "warning"}),
        ({"warmup_steps": 1, "decode_steps": 127}, {"decode_steps_too_few": "error"}),
        ({"warmup_steps": 1}, {"steps_unknown": "error"}),
    ):
        (entry / "execution.json").write_text(json.dumps(steps))
        assert told(check_entry(entry)) == expected


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("    version: 0.2.0\n", "", "framework.version"),
        ("    version: 0.2.0\n", "    version: unknown\n", "framework.version"),
        ("    name: torchtitan\n", "", "framework.name"),
        ("      model: nvidia_a100\n", "", "xpu_spec.model"),
        ("      total_count: 8\n", "", "xpu_spec.total_count"),
        ("      count_per_node: 4\n", "", "xpu_spec.count_per_node"),
        ("        - 200\n", "        - N/A\n", "bandwidth_gbps (scale-out)"),
        ("        - 2400\n", "        - TBD\n", "bandwidth_gbps (scale-up)"),
    ],
)
def test_an_incomplete_environment(entry: Path, old: str, new: str, missing: str) -> None:
    assert CARD.count(old) == 1
    (entry / "card.yaml").write_text(CARD.replace(old, new))
    incomplete = [each for each in check_entry(entry) if each.code == "environment_incomplete"]
    assert [each.severity for each in incomplete] == ["error"]
    assert missing in incomplete[0].message


def test_one_node_needs_no_scale_out(entry: Path) -> None:
    one_node = CARD.replace("total_count: 8", "total_count: 4").replace("dp_shard: 4", "dp_shard: 2")
    for old, new in (("        - 200\n", "        - N/A\n"), ("        - 200\n", "")):
        (entry / "card.yaml").write_text(one_node.replace(old, new))
        assert "environment_incomplete" not in told(check_entry(entry))


@pytest.mark.parametrize(
    ("workload", "warmup", "recorded", "decode", "expected"),
    [
        ("wl4", 5, 5, None, set()),
        ("wl4", 4, 4, 500, {"warmup_steps_too_few", "recorded_steps_too_few"}),
        ("wl4", None, None, None, {"steps_unknown"}),
        ("wl2", 1, 0, 128, set()),
        ("wl2", 5, 5, 127, {"decode_steps_too_few"}),
        ("wl2", None, 5, None, {"steps_unknown", "warmup_missing"}),
    ],
)
def test_steps_of_a_trial_in_memory(
    workload: str, warmup: int | None, recorded: int | None, decode: int | None, expected: set[str]
) -> None:
    assert set(told(check_steps(catalogue.workload(workload), warmup, recorded, decode))) == expected
