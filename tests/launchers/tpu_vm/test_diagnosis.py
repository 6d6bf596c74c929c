"""`doctor` on a TPU target: what it finds, and that it creates nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from ccl_search.cli.doctor import doctor
from launchers.base import JobState
from launchers.checks import Level
from launchers.tpu_vm import diagnosis
from launchers.tpu_vm.control import ControlPlane
from launchers.tpu_vm.troubles import ControlError, Trouble
from tests.tpu.world import FOREVER, ZONES, World

SECTION: dict[str, Any] = {
    "zones": [ZONES[0]],
    "accelerator": "v6e-16",
    "runtime_version": "v2-alpha-tpuv6e",
    "project": "test-project",
    "control": "google-cloud-tpu",
    "ssh": {"connect": "direct"},
}


class Refusing:
    """A service that answers with one trouble."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        self._error = ControlError(trouble, text)

    def nodes(self, zone: str) -> list[Any]:
        raise self._error


def found(
    monkeypatch: pytest.MonkeyPatch, service: ControlPlane | Refusing, home: Path, **changes: Any
) -> dict[str, tuple[Level, str, str]]:
    monkeypatch.setattr(diagnosis, "control_of", lambda _settings: service)
    lines = {check.name: (check.level, check.found, check.fix) for check in diagnosis.checks(SECTION | changes, home)}
    assert all(fix for level, _, fix in lines.values() if level is not Level.OK)
    return lines


def test_a_target_in_order_by_the_command_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "control_of", lambda _settings: world.google())
    world.api.seed("somebodys", ZONES[0], "v4-16")
    path = world.home / "target.yaml"
    path.write_text(yaml.safe_dump({"name": "t", "kind": "tpu-vm", "environment": "tpu-v6e-16", "tpu_vm": SECTION}))
    app = typer.Typer()
    app.command()(doctor)
    done = CliRunner().invoke(app, ["--json", "--target", str(path), "--home", str(world.home)])
    lines = {line["name"]: line for line in json.loads(done.stdout)}
    assert done.exit_code == 0, lines
    own = ("programs", "accelerator", f"zone {ZONES[0]}", "leftovers")
    assert {name: lines[name]["level"] for name in lines if name in own} == dict.fromkeys(own, "ok")
    assert lines["accelerator"]["found"] == "v6e-16: 4 workers of 4 chips"
    assert lines[f"zone {ZONES[0]}"]["found"] == "answers; slices there: 1"
    assert world.api.requests("POST", "/nodes") == [] == world.api.requests("POST", "/queuedResources")


def test_slices_of_a_crashed_search_are_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(FOREVER))
    world.until(launcher, handle, JobState.RUNNING)
    level, text, fix = found(monkeypatch, world.google(), world.home)["leftovers"]
    assert (level, "cost money" in text, "cleanup" in fix) == (Level.WARN, True, True)
    assert ZONES[0] in text
    launcher.cancel(handle)


def test_an_existing_slice_must_be_there_and_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"zone {ZONES[0]}"
    missing = found(monkeypatch, world.google(), world.home, slice="mine")
    assert (missing[name][0], "there is no slice mine" in missing[name][1]) == (Level.FAIL, True)
    assert "leftovers" not in missing
    world.api.seed("mine", ZONES[0], "v4-16")
    there = found(monkeypatch, world.google(), world.home, slice="mine")
    assert there[name] == (Level.OK, "mine is READY", "")
    world.api.nodes[next(key for key in world.api.nodes if key.endswith("/mine"))]["state"] = "STOPPED"
    stopped = found(monkeypatch, world.google(), world.home, slice="mine")
    assert (stopped[name][0], stopped[name][1]) == (Level.FAIL, "mine is STOPPED")


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (Trouble.PERMISSION, "PERMISSION_DENIED: tpu.nodes.list"),
        (Trouble.AUTH, "invalid_grant: Bad Request"),
        (Trouble.UNAVAILABLE, "UNAVAILABLE: try later"),
    ],
)
def test_a_service_that_refuses_is_told_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Trouble, text: str
) -> None:
    level, said, fix = found(monkeypatch, Refusing(trouble, text), tmp_path)[f"zone {ZONES[0]}"]
    assert (level, said) == (Level.FAIL, text) and fix


def test_missing_programs_end_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "no-gcloud" else f"/bin/{name}")
    changes = {"control": "gcloud", "gcloud": "no-gcloud", "ssh": {"connect": "gcloud"}, "accelerator": "v6e"}
    lines = found(monkeypatch, Refusing(Trouble.AUTH, ""), tmp_path, **changes)
    assert (lines["programs"][0], "no-gcloud" in lines["programs"][1]) == (Level.FAIL, True)
    assert lines["accelerator"][1] == "v6e: a slice of each config's own size"
    assert set(lines) == {"programs", "accelerator"}
