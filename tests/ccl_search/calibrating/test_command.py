"""`calibrate`: from measured trials to a named calibration that `simulate` and a target file use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import yaml

from tests.ccl_search.cli import Cli, Result

HEAD = "framework,workload,environment,tp,dp,pp,micro_batch_size,date,step_time_s"
CONFIGS = ((4, 1, 1), (4, 2, 2), (2, 2, 4), (4, 4, 1), (4, 1, 4), (2, 4, 2), (1, 4, 4))


def _simulated(cli: Cli, degrees: tuple[int, int, int], calibration: Path) -> float:
    config = ",".join(f"{name}={value}" for name, value in zip(("tp", "dp", "pp"), degrees, strict=True))
    shape = ("--framework", "megatron-lm", "--config", config, "--calibration", str(calibration), "--json")
    return float(cli("simulate", *shape).document["wall_ns"]) * 1e-9


@pytest.fixture
def slow_links(cli: Cli, tmp_path: Path) -> Path:
    """Step times of a cluster whose links between nodes have half the bandwidth."""
    truth = tmp_path / "truth.yaml"
    truth.write_text("format: 1\nname: truth\nfactors: {bandwidth: {inter_node: 0.5}}\n")
    rows = [
        f"megatron-lm,wl4,perlmutter-a100-16,{d[0]},{d[1]},{d[2]},1,2026-04-2{day},{_simulated(cli, d, truth)}"
        for day, d in enumerate(CONFIGS)
    ]
    path = tmp_path / "trials.csv"
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def _fit(cli: Cli, source: str, *more: str) -> Result:
    return cli("calibrate", "--from", source, "--name", "mine", "--repeats", "1", *more)


def test_links_of_another_calibration_are_kept_and_named(cli: Cli, slow_links: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.yaml"
    known.write_text("format: 1\nname: known\nfactors: {bandwidth: {inter_node: 0.4}, latency: {intra_node: 1.5}}\n")
    found = _fit(cli, str(slow_links), "--links", str(known), "--json")
    assert found.code == 0, found.err
    factors = found.document["factors"]
    assert factors["bandwidth"] == pytest.approx({"intra_node": 1.0, "inter_node": 0.4})
    assert factors["latency"] == pytest.approx({"intra_node": 1.5, "inter_node": 1.0})
    assert found.document["provenance"]["links_of"] == ["known"]
    missing = _fit(cli, str(slow_links), "--links", "nowhere")
    assert missing.code == 2
    assert "no calibration is called 'nowhere'" in missing.err.splitlines()[0]


@pytest.mark.slow
def test_a_known_cluster_is_found_stored_and_used(cli: Cli, slow_links: Path, tmp_path: Path) -> None:
    found = _fit(cli, str(slow_links), "--json")
    assert found.code == 0, found.err
    document = found.document
    assert document["factors"]["bandwidth"]["inter_node"] == pytest.approx(0.5, rel=0.2)
    assert document["factors"]["compute"]["gemm"] == pytest.approx(1.0, rel=0.1)
    assert (
        document["fit"]["held_out"]["median_error"]["value"] < document["fit"]["uncalibrated"]["median_error"]["value"]
    )
    stored = yaml.safe_load(Path(document["path"]).read_text())
    assert stored["provenance"]["date"] == "2026-04-26"
    assert stored["provenance"]["rows_used"] == [f"line {line}" for line in range(2, 9)]
    listed = cli("calibrate", "--list", "--json").document
    assert [each["name"] for each in listed] == ["mine"]
    one = ("--framework", "megatron-lm", "--config", "tp=1,dp=4,pp=4", "--json")
    assert cli("simulate", *one, "--calibration", "mine").document["calibration"] == "mine"
    target = tmp_path / "target.yaml"
    target.write_text("name: fitted\nkind: dry-run\ndry_run: {calibration: mine}\n")
    run = cli("run", "--framework", "megatron-lm", "--iterations", "0", "--target", str(target), "--json")
    assert run.code == 0, run.err
    with sqlite3.connect(next(cli.home.glob("*.sqlite*"))) as connection:
        assert "mine" in str(connection.execute("SELECT provenance FROM trials").fetchall())


def test_a_simulated_run_is_refused(cli: Cli) -> None:
    cli("run", "--iterations", "0", "--json")
    found = _fit(cli, "latest")
    assert found.code == 2
    assert "is simulated" in found.err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--name", "x"), "--from and --name are needed"),
        (("--from", "t.csv", "--name", "../x"), "cannot be called"),
        (("--from", "t.csv", "--name", "uncalibrated"), "cannot be called"),
        (("--from", "missing.csv", "--name", "x"), "cannot be read"),
    ],
)
def test_bad_usage_is_one_clear_line(cli: Cli, arguments: tuple[str, ...], word: str) -> None:
    found = cli("calibrate", *arguments)
    assert found.code == 2
    assert word in found.err.splitlines()[0]


def test_an_empty_home_lists_nothing(cli: Cli) -> None:
    assert cli("calibrate", "--list", "--json").document == []
