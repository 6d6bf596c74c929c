"""ASTRA-sim from the command line: how it is chosen, what its absence says, and what a search on it records."""

from __future__ import annotations

import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from ccl_search import targets
from runs.errors import BadInputError
from tests.backends.astra import traces as make
from tests.ccl_search.cli import Cli

_REPOSITORY = Path(__file__).parents[2]
_PROGRAM = [sys.executable, str(_REPOSITORY / "tests/backends/astra/small_simulator.py")]
_RUN = ("run", "--workload", "wl4", "--proposer", "random", "--iterations", "0", "--no-profiler-cost")
_POLICY = """
def generate_config(workload, environment):
    return {"tp": 4, "cp": 1, "pp": 1, "dp": 2, "dp_shard": 2, "zero_stage": 3, "micro_batch_size": 2,
            "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": True}
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with ASTRA-sim's interface, named by both variables."""
    for variable in ("ASTRA_SIM_ANALYTICAL", "ASTRA_SIM_NS3"):
        monkeypatch.setenv(variable, shlex.join(_PROGRAM))
    monkeypatch.setenv("PYTHONPATH", str(_REPOSITORY))


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is named."""
    for variable in ("ASTRA_SIM_ANALYTICAL", "ASTRA_SIM_NS3"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_a_search_on_it_is_told_apart_in_the_record(cli: Cli, tmp_path: Path) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text(_POLICY, encoding="utf-8")
    found = cli(*_RUN, "--policy", str(policy), "--backend", "astra-sim", "--json")
    assert found.code == 0, found.err
    with closing(sqlite3.connect(next(cli.home.glob("*.sqlite")))) as database:
        rows = database.execute("SELECT backend, fidelity FROM leaderboard").fetchall()
    assert rows == [("astra-sim", "simulated")]


@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize("backend", ["astra-sim", "astra-sim-ns3"])
def test_its_absence_is_one_line_and_a_hint(cli: Cli, backend: str) -> None:
    found = cli(*_RUN, "--backend", backend)
    assert found.code == 3
    assert "nothing names one" in found.err
    assert "ASTRA_SIM_" in found.err
    assert "Traceback" not in found.err
    assert not cli("list", "--json").document


@pytest.mark.usefixtures("program")
def test_traces_run_on_it(cli: Cli, tmp_path: Path) -> None:
    ranks = [[make.work(1, 3), make.collective(2, 1 << 20, (1,))]] * 4
    paths = make.write(tmp_path, ranks)
    files = ("--et", str(paths.et_prefix), "--system", str(paths.system), "--network", str(paths.network))
    found = cli("simulate", *files, "--backend", "astra-sim", "--trace", str(tmp_path / "t"), "--json").document
    assert (found["wall_ns"], found["compute_ns"], found["comm_ns"]) == (4000, 3000, 1000)
    assert found["backend"] == "astra-sim"
    assert found["version"].startswith("analytical congestion-aware")
    assert any("GiB/s" in note for note in found["notes"])
    assert [Path(path).name for path in found["trace"]] == ["rank0_trace.json"]


@pytest.mark.usefixtures("program")
def test_files_of_the_other_backend_are_refused(cli: Cli, tmp_path: Path) -> None:
    paths = make.write(tmp_path, [[make.work(1, 3)]] * 2)
    files = ("--et", str(paths.et_prefix), "--system", str(paths.system), "--network", str(paths.network))
    found = cli("simulate", *files, "--backend", "astra-sim-ns3")
    assert found.code == 2
    assert "the files are for astra-sim" in found.err


@pytest.mark.usefixtures("program")
def test_doctor_says_what_it_found(cli: Cli) -> None:
    rows = {row["name"]: row for row in cli("doctor", "--json").document}
    assert rows["astra-sim"]["found"].startswith("analytical congestion-aware command:")
    assert rows["astra-sim-ns3"]["found"].startswith("ns-3 command:")


@pytest.mark.usefixtures("nothing")
def test_doctor_does_not_mind_its_absence(cli: Cli) -> None:
    rows = {row["name"]: row for row in cli("doctor", "--json").document}
    assert rows["astra-sim"]["level"] == "ok"
    assert "not used" in rows["astra-sim"]["found"]


def test_a_target_file_names_program_and_backend(tmp_path: Path) -> None:
    path = tmp_path / "astra.yaml"
    section = {"backend": "astra-sim-ns3", "astra_sim": {"command": _PROGRAM, "time_limit_s": 5}}
    path.write_text(yaml.safe_dump({"name": "astra", "kind": "dry-run", "dry_run": section}), encoding="utf-8")
    found = targets.find(str(path))
    assert found.backend == "astra-sim-ns3"
    assert targets.of_run(found.name, found.content).backend == "astra-sim-ns3"
    assert targets.launcher(found).name == "dry-run"


def test_a_backend_goes_with_the_bundled_dry_run_only() -> None:
    assert targets.with_backend("dry-run", None) == "dry-run"
    assert targets.with_backend("dry-run", "flow") == "dry-run"
    assert targets.with_backend("dry-run", "astra-sim") == "dry-run-astra-sim"
    with pytest.raises(BadInputError, match="does not go with --target"):
        targets.with_backend("site.yaml", "astra-sim")
    with pytest.raises(BadInputError, match="no backend is called 'nope'"):
        targets.with_backend("dry-run", "nope")


def test_a_screen_does_not_pass_for_astra_sim(cli: Cli) -> None:
    found = cli(*_RUN, "--screen", "dry-run-astra-sim")
    assert found.code == 2
    assert "screens with flow only" in found.err


# --- what a run on ns-3 costs ---------------------------------------------------------------------------------------


def _physical(folder: Path, nbytes: int) -> tuple[str, ...]:
    """Flags of an all-reduce of 4 ranks on one switch of 400 Gb/s."""
    paths = make.write(folder, [[make.collective(1, nbytes)]] * 4)
    links = "".join(f"{rank} 4 400Gbps 0.0005ms 0\n" for rank in range(4))
    (folder / "topo.txt").write_text(f"5 1 4\n4\n{links}", encoding="utf-8")
    return (
        "simulate", "--et", str(paths.et_prefix), "--system", str(paths.system),
        "--physical-topology", str(folder / "topo.txt"),
    )  # fmt: skip


@pytest.mark.usefixtures("program")
def test_the_cost_is_said_before_a_run_on_ns3_and_in_its_json(cli: Cli, tmp_path: Path) -> None:
    found = cli(*_physical(tmp_path, 1 << 20), "--backend", "astra-sim-ns3", "--json")
    assert found.code == 0, found.err
    assert "ns-3 takes about" in found.err
    cost = found.document["network"]["cost"]
    assert cost["packets"] == 4 * 6 * 263  # 262 144 bytes a message
    assert cost["packet_hops"] == 4 * cost["packets"]
    assert cost["predicted_seconds"] > 0


@pytest.mark.usefixtures("nothing")
def test_a_run_beyond_the_time_limit_is_not_started(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTRA_SIM_NS3", shlex.join([sys.executable, "-c", "raise SystemExit(1)"]))
    flags = (*_physical(tmp_path, 1 << 30), "--backend", "astra-sim-ns3")
    refused = cli(*flags, "--time-limit", "60", "--json")
    assert refused.code == 4
    assert refused.out == ""
    assert "it was not started" in refused.err
    assert "--time-limit" in refused.err
    started = cli(*flags, "--time-limit", "9000")
    assert started.code == 1
    assert "0 of 4 ranks finished" in started.err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
@pytest.mark.usefixtures("program")
def test_a_time_limit_that_is_none(seconds: str, cli: Cli, tmp_path: Path) -> None:
    found = cli(*_physical(tmp_path, 64), "--backend", "astra-sim-ns3", "--time-limit", seconds)
    assert found.code == 2
    assert "give seconds above zero" in found.err


def test_a_time_limit_goes_with_the_users_program_only(cli: Cli, tmp_path: Path) -> None:
    found = cli(*_physical(tmp_path, 64), "--time-limit", "60")
    assert found.code == 2
    assert "--time-limit goes with" in found.err
