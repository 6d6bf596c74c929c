"""`simulate`: figures that agree with the trace, the rules of the space, memory, calibrations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ccl_search.cli import Cli

TRAINING = "tp=4,pp=2,dp=2,micro_batch_size=1"
SERVING = ("--workload", "wl1", "--framework", "vllm", "--config", "tp=4,max_num_seqs=128,max_num_batched_tokens=8192")


def test_the_figures_are_those_of_the_trace(cli: Cli, tmp_path: Path) -> None:
    found = cli("simulate", "--config", TRAINING, "--trace", str(tmp_path / "t"), "--json")
    document = found.document
    walls = []
    for path in document["trace"]:
        events = json.loads(Path(path).read_text())["traceEvents"]
        walls += [1e3 * e["dur"] for e in events if e.get("name", "").startswith("ProfilerStep#")]
    assert found.code == 0
    assert len(document["trace"]) == 2  # one class of ranks a pipeline stage
    assert document["wall_ns"] == pytest.approx(max(walls), rel=1e-3)


def test_times_are_parts_of_the_step(cli: Cli) -> None:
    found = cli("simulate", "--config", TRAINING, "--json").document
    assert {"wall_ns", "compute_ns", "comm_ns", "exposed_ns", "bubble_ns", "memory", "backend", "links"} <= set(found)
    assert all(isinstance(found[f"{name}_ns"], int) for name in ("wall", "compute", "comm", "exposed", "bubble"))
    assert 0 < found["exposed_ns"] <= found["comm_ns"] < found["wall_ns"]
    assert found["compute_ns"] + found["exposed_ns"] + found["bubble_ns"] <= found["wall_ns"]
    assert found["bubble_ns"] > 0  # two stages
    assert (found["backend"], found["calibration"], found["num_xpus"]) == ("flow", "uncalibrated", 16)
    assert sum(found["memory"]["parts"].values()) == pytest.approx(found["memory"]["total_bytes"])


def test_serving_adds_its_latencies(cli: Cli) -> None:
    found = cli("simulate", *SERVING, "--json").document
    assert 0 < found["tpot_ns"] < found["ttft_ns"]
    assert "ttft_ns" not in cli("simulate", "--config", TRAINING, "--json").document


def test_people_get_tables(cli: Cli) -> None:
    found = cli("simulate", "--config", TRAINING)
    assert (found.code, found.out) == (0, "")
    for word in ("exposed communication", "bubble", "activations", "busiest of", "calibration uncalibrated"):
        assert word in found.err


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ("tp=3", "choice_tp"),
        ("tpp=2", "unknown_knob"),
        ("tp=4,dp=4,pp=4", "devices"),
        ("tp=4,tp=2", "names tp twice"),
        ("tp", "NAME=VALUE"),
    ],
)
def test_a_broken_rule_is_named(cli: Cli, config: str, rule: str) -> None:
    found = cli("simulate", "--config", config, "--json")
    assert (found.code, found.out) == (2, "")
    assert rule in found.err.splitlines()[0]


def test_out_of_memory_is_shown_with_its_parts(cli: Cli) -> None:
    found = cli("simulate", "--config", "tp=1,dp=1", "--json")
    assert found.code == 2
    assert found.document["failure"] == "predicted_oom"
    assert "wall_ns" not in found.document
    # 8.03e9 parameters, fp32 weights, gradients and two moments (16 bytes each), on one device of 40 GiB
    parts = found.document["memory"]["parts"]
    assert parts["weights"] + parts["gradients"] + parts["optimizer"] == pytest.approx(16 * 8.03e9, rel=1e-3)
    assert f"optimizer {8 * 8.03e9 / 2**30:.1f}" in found.err
    assert "optimizer" in cli("simulate", "--config", "tp=1,dp=1").err


def test_no_trace_is_written_over_another(cli: Cli, tmp_path: Path) -> None:
    first = cli("simulate", "--config", TRAINING, "--trace", str(tmp_path / "t"))
    again = cli("simulate", "--config", "tp=2,dp=4", "--trace", str(tmp_path / "t"))
    assert (first.code, again.code) == (0, 2)
    assert "holds traces already" in again.err


def test_an_unknown_backend_or_calibration(cli: Cli) -> None:
    for option, word in (("--backend", "no backend"), ("--calibration", "no calibration")):
        found = cli("simulate", "--config", TRAINING, option, "nothing")
        assert (found.code, word in found.err) == (2, True)


def test_a_calibration_file_slows_what_it_says(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "half.yaml"
    path.write_text("format: 1\nname: half\nfactors: {bandwidth: {intra_node: 0.5}, latency: {intra_node: 2}}\n")
    one_node = ("simulate", *SERVING, "--json")
    plain, half = cli(*one_node).document, cli(*one_node, "--calibration", str(path)).document
    assert (plain["calibration"], half["calibration"]) == ("uncalibrated", "half")
    assert 1.5 < half["comm_ns"] / plain["comm_ns"] < 2  # all but the software cost of a message
    assert half["compute_ns"] == plain["compute_ns"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("factors: {launch: 1}", "lacks name"),
        ("name: x\nformat: 9\nfactors: {launch: 1}", "format 9"),
        ("name: x\nformat: 1\nfactors: {speed: 1}", "unknown factor speed"),
        ("name: x\nformat: 1\nfactors: {launch: fast}", "no number"),
        ("name: x\nformat: 1\nfactors: {launch: .nan}", "no positive finite number"),
        ("name: x\nformat: 1\nfactors: {compute: {gemm: -1}}", "no positive finite number"),
        ("{", "no YAML"),
    ],
)
def test_a_bad_calibration_file_is_one_clear_line(cli: Cli, tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    found = cli("simulate", "--config", TRAINING, "--calibration", str(path))
    assert found.code == 2
    assert word in found.err.splitlines()[0]
