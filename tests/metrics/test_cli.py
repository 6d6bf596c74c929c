"""`ccl-search metrics`: list, explain, compute; tables for people on stderr, JSON on stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ccl_search.cli.metrics import app
from metrics import registry
from tests.metrics.build import Kineto

MS = 1_000_000


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace of one step and a cut file beside it; the command runs in an empty folder."""
    made = Kineto(rank=0, world=2)
    made.step(0, 0, MS)
    made.kernel("gemm", 0, MS // 4, launch=1)
    made.write(tmp_path / "trace" / "rank0.json")
    made.rank = 1
    (tmp_path / "trace" / "rank1.json").write_text(made.text()[:-100])
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return tmp_path / "trace"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_list() -> None:
    found = json.loads(call("list", "--json").stdout)["metrics"]
    assert [m["name"] for m in found] == list(registry.names())
    assert found[0]["aliases"] == ["step_time"]
    table = call("list")
    assert table.stdout == ""
    assert "dominant_kernel_concentration" in table.stderr


def test_explain() -> None:
    found = json.loads(call("explain", "step_time", "--json").stdout)
    assert found["name"] == "avg_step_time"
    assert found["definition"].startswith("Mean wall-clock time of a step")
    assert "--variant to_gpu_end" in call("explain", "ttft").stderr


def test_compute_as_json(trace: Path) -> None:
    result = call("compute", trace, "--metric", "step_time", "-m", "mfu", "--json", "--no-cache")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["trace"] == str(trace)
    assert found["metrics"]["step_time"] == {"value": 0.001, "unit": "s", "reason": None, "version": "1.0.0"}
    assert found["metrics"]["mfu"]["value"] is None
    assert "model_arch" in found["metrics"]["mfu"]["reason"]
    assert found["warnings"] == [
        "rank1.json: incomplete, the file ends inside the event list; its whole events were used"
    ]
    assert list(Path.cwd().iterdir()) == []


def test_compute_for_people(trace: Path) -> None:
    result = call("compute", trace, "--no-cache", "--detail")
    assert result.stdout == ""
    assert "load_imbalance_ratio" in result.stderr
    assert "warning: rank1.json: incomplete" in result.stderr
    assert "[memory]" in result.stderr
    assert "per_rank: lane rank 0" in result.stderr


def test_detail_and_cache(trace: Path) -> None:
    arguments = ("compute", trace, "-m", "step_time", "--detail", "--json", "--home", "store")
    first = call(*arguments)
    assert json.loads(first.stdout)["metrics"]["step_time"]["detail"]["per_rank"][0]["steps"] == [0.001]
    assert list(Path("store", "cache", "traces").iterdir())
    assert call(*arguments).stdout == first.stdout


def test_the_card_beside_the_trace(trace: Path) -> None:
    (trace / "card.yaml").write_text(
        "version: 1\nworkload:\n  model: {phase: training, model_family: x}\n  data: {batch_size: 4, seq_len: 500}\n"
        "  hardware: {xpu_spec: {type: GPU, model: nvidia_h100, total_count: 4}}\n"
    )
    found = json.loads(call("compute", trace, "-m", "tokens_per_s", "-m", "num_xpus", "--json", "--no-cache").stdout)
    assert found["metrics"]["tokens_per_s"]["value"] == pytest.approx(4 * 500 / 1e-3)
    assert found["metrics"]["num_xpus"]["value"] == 4


def test_bad_input(trace: Path) -> None:
    for arguments in ((trace, "-m", "odd"), (trace, "--rule", "odd"), (trace, "--variant", "odd"), (trace / "no",)):
        assert call("compute", *arguments, "--no-cache").exception is not None
