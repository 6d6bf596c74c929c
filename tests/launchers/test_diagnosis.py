"""Checks of a target, against programs that answer as a cluster's would."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers import diagnosis
from launchers.checks import Level
from launchers.diagnosis import Probe, diagnose
from launchers.shell.runner import LocalRunner
from launchers.target_file import TargetSettings, parse_target
from runs import catalogue

ENVIRONMENT = catalogue.environment("perlmutter-a100-4")
PROGRAMS = {
    "sbatch": "echo slurm 22.05.8",
    "squeue": ":",
    "scancel": ":",
    "srun": ":",
    "scontrol": "echo 'Slurmctld(primary) at host is UP'",
    "sinfo": "printf 'gpu|up|gpu:a100:4(S:0-1)|64\\ncpu|up|(null)|9\\nold|down|gpu:4|1\\n'",
    "sacct": ":",
}


def cluster(folder: Path, changed: dict[str, str | None], **slurm: Any) -> TargetSettings:
    folder.mkdir()
    for name, text in {**PROGRAMS, **changed}.items():
        if text is not None:
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
    data = {"name": "x", "kind": "slurm", "slurm": {"partition": "gpu", "bin_dir": str(folder), **slurm}}
    return parse_target(data, "f")


def levels(target: TargetSettings, folder: Path) -> dict[str, tuple[Level, str, str]]:
    found = {check.name: (check.level, check.found, check.fix) for check in diagnose(target, ENVIRONMENT, folder)}
    assert all(fix for level, _, fix in found.values() if level is not Level.OK)
    return found


def test_a_cluster_in_order(tmp_path: Path) -> None:
    found = levels(cluster(tmp_path / "bin", {}), tmp_path)
    assert {level for level, _, _ in found.values()} == {Level.OK}
    assert found["devices"][1] == "4 GPUs a node"
    assert set(found) == {
        "free space", "login node", "programs", "controller", "partition", "devices", "accounting", "clock",
        "job folder",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "slurm", "name", "level", "text"),
    [
        ({"scontrol": "echo 'Slurmctld(primary) at host is DOWN'"}, {}, "controller", Level.FAIL, "DOWN"),
        ({}, {"partition": "nope"}, "partition", Level.FAIL, "cpu, gpu, old"),
        ({}, {"partition": "old"}, "partition", Level.FAIL, "not up"),
        ({}, {"partition": "cpu"}, "devices", Level.FAIL, "0 GPUs"),
        ({"sacct": "echo Slurm accounting storage is disabled >&2; exit 1"}, {}, "accounting", Level.WARN, "disabled"),
        ({"date": "echo 1000"}, {}, "clock", Level.WARN, "against this machine"),
        ({}, {"remote_directory": "/proc/none"}, "job folder", Level.FAIL, "/proc/none"),
    ],
)
def test_what_is_wrong_is_found(
    tmp_path: Path, changed: dict[str, str | None], slurm: dict[str, Any], name: str, level: Level, text: str
) -> None:
    found = levels(cluster(tmp_path / "bin", changed, **slurm), tmp_path)
    assert (found[name][0], text in found[name][1]) == (level, True), found[name]


def test_a_login_node_that_cannot_be_reached_ends_the_checks(tmp_path: Path) -> None:
    data = {"name": "x", "kind": "slurm", "ssh": {"host": "127.0.0.1", "options": ["-F", "none", "-p", "1"]}}
    found = levels(parse_target(data, "f"), tmp_path)
    assert found["login node"][0] is Level.FAIL
    assert "programs" not in found


@pytest.mark.parametrize(
    ("text", "count"),
    [("gpu:4", 4), ("gpu:a100:4(S:0-1)", 4), ("gpu:h100:8(S:0-1),nvme:1", 8), ("(null)", 0), ("gpu:a:2,gpu:b:2", 4)],
)
def test_devices_of_a_node(text: str, count: int) -> None:
    assert diagnosis._gpus(text) == count


def test_a_probe_says_what_a_node_has(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text('#!/bin/sh\nfor i in 0 1 2 3; do echo "GPU $i: A100"; done\n')
    (programs / "nvidia-smi").chmod(0o755)
    target = parse_target({"name": "x", "kind": "local", "setup": f"export PATH='{programs}':$PATH"}, "f")
    probe = Probe(target, ENVIRONMENT, "torchtitan", catalogue.workload("wl4"), tmp_path / "doctor", 60.0)
    found = {check.name: check for check in probe.checks()}
    assert found["probe job"].level is Level.OK
    assert found["devices on the node"].found == "4 seen by nvidia-smi"
    assert found["framework on the node"].level is Level.WARN
    assert list((tmp_path / "doctor").iterdir()) == []


def test_a_probe_that_fails_says_why(tmp_path: Path) -> None:
    target = parse_target({"name": "x", "kind": "local", "setup": "module load nothing"}, "f")
    probe = Probe(target, ENVIRONMENT, "torchtitan", catalogue.workload("wl4"), tmp_path, 60.0)
    (check,) = probe.checks()
    assert (check.level, "setup lines" in check.found, bool(check.fix)) == (Level.WARN, True, True)


def test_a_probe_tells_of_the_nodes_clock_space_and_checkout(tmp_path: Path) -> None:
    data = {"name": "x", "kind": "local", "framework": {"torchtitan": {"path": "/src/titan", "python": "python3"}}}
    environment = replace(ENVIRONMENT, device=catalogue.device("tpu_v6e"))
    probe = Probe(parse_target(data, "f"), environment, "torchtitan", catalogue.workload("wl4"), tmp_path, 60.0)
    found = {check.name: check for check in probe.checks()}
    assert {check.level for name, check in found.items() if "trace" not in name} == {Level.OK}, found
    assert "a checkout at /src/titan" in found["framework on the node"].found
    assert str(tmp_path) in found["trace folder on the node"].found


@pytest.mark.parametrize(
    ("behind", "level", "text"),
    [(0, Level.OK, "agrees"), (290, Level.OK, "agrees"), (-60, Level.WARN, "+"), (900, Level.WARN, "-")],
)
def test_a_nodes_clock_is_read_between_submission_and_now(behind: int, level: Level, text: str) -> None:
    """The job was submitted 300 s ago; a clock that says something earlier, or later than now, is wrong."""
    now = time.time()
    check = diagnosis._node_clock({"time": str(int(now - behind))}, now - 300)
    assert (check.level, bool(check.fix)) == (level, level is Level.WARN)
    assert check.found.startswith(text)


def test_a_slow_answer_is_no_skew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command took a minute on a busy machine, and read the clock at its end."""
    moments = iter([1000.0, 1060.0])
    monkeypatch.setattr("launchers.diagnosis.time.time", lambda: next(moments))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "date").write_text("#!/bin/sh\necho 1060\n")
    (programs / "date").chmod(0o755)
    assert diagnosis._clock(LocalRunner(bin_dir=str(programs))).level is Level.OK


def test_a_full_disk_on_the_node_is_a_warning() -> None:
    check = diagnosis._node_space({"free": "1000", "wrote": "/scratch/x"})
    assert (check.level, "/scratch/x" in check.found, "--home" in check.fix) == (Level.WARN, True, True)
