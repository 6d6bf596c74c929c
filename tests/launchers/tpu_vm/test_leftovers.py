"""What a crashed search left: `ccl-search cleanup` lists it, deletes what this home made, and touches nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from ccl_search.cli import cleanup as command
from launchers.base import JobState
from launchers.tpu_vm import launcher as launcher_module
from launchers.tpu_vm.ledger import LABEL, TOKEN_LABEL, SliceState, ledger_for
from runs.errors import BadInputError
from tests.tpu.world import FOREVER, ZONES, World

OTHERS = {
    "colleague": {LABEL: "1", TOKEN_LABEL: "feedfeedfeed", "ccl-run": "theirs"},
    "by-hand": {"team": "ml"},
}


@pytest.fixture
def crashed(world: World) -> World:
    """Two jobs whose driver is gone (one queued resource, one slice), and slices of other people."""
    for name, labels in OTHERS.items():
        world.api.seed(name, ZONES[0], "v4-16", labels)
    running = world.launcher(zones=[ZONES[1]])
    handle = running.submit(world.job(FOREVER, trial=0))
    world.until(running, handle, JobState.RUNNING)
    queued = world.launcher(provisioning="queued")
    world.api.fault("forever")
    queued.submit(world.job(FOREVER, trial=1))
    return world


def run(world: World, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, object]:
    """What the command says in JSON; asynchronous deletions are carried out at once."""
    target = world.home / "target.yaml"
    settings = {
        "zones": list(ZONES),
        "accelerator": "v4-16",
        "runtime_version": "v2-alpha",
        "project": "test-project",
        "control": "google-cloud-tpu",
        "ssh": {"connect": "direct"},
    }
    target.write_text(yaml.safe_dump({"name": "tpus", "kind": "tpu-vm", "tpu_vm": settings}))
    monkeypatch.setattr(launcher_module, "control_of", lambda _settings: world.google())
    monkeypatch.setattr("launchers.tpu_vm.leftovers.time.sleep", lambda _seconds: world.api.settle())
    app = typer.Typer()
    app.command()(command.cleanup)
    world.api.polls = 0
    done = CliRunner().invoke(app, ["--target", str(target), "--home", str(world.home), "--json", *arguments])
    assert done.exit_code == 0, done.output + repr(done.exception)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_list_tells_ours_from_others_and_deletes_nothing(crashed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = crashed.api.names()

    rows = run(crashed, monkeypatch)["leftovers"]

    assert isinstance(rows, list)
    told = {(row["kind"], row["ours"], row["run"], row["deleted"]) for row in rows}
    assert told == {
        ("slice", True, "run-1", False),
        ("queued resource", True, "run-1", False),
        ("slice", False, "theirs", False),
    }
    assert crashed.api.names() == before
    assert crashed.api.requests("DELETE", "") == []


def test_delete_removes_what_this_home_made(crashed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run(crashed, monkeypatch, "--delete")

    assert answer["hindrances"] == []
    assert crashed.api.names() == [f"{ZONES[0]}/nodes/by-hand", f"{ZONES[0]}/nodes/colleague"]
    records = ledger_for(crashed.home / "runs/run-1/trials/0").records()
    assert [record.state for record in records] == [SliceState.DELETED] * 2
    assert [row["name"] for row in run(crashed, monkeypatch)["leftovers"]] == ["colleague"]  # type: ignore[index, attr-defined]


def test_a_slice_of_the_same_name_without_our_label_is_left_alone(
    crashed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours was deleted by hand, and somebody took the name: the ledger alone is not enough."""
    (record, _) = ledger_for(crashed.home / "runs/run-1/trials/0").records()
    for node in crashed.api.nodes.values():
        if node["name"].endswith(record.name):
            node["labels"] = {}

    run(crashed, monkeypatch, "--delete")

    assert f"{record.zone}/nodes/{record.name}" in crashed.api.names()


def test_an_empty_home_finds_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(world, monkeypatch, "--delete") == {"leftovers": [], "hindrances": []}


def test_only_targets_that_create_machines_have_leftovers(tmp_path: Path) -> None:
    target = tmp_path / "t.yaml"
    target.write_text("name: here\nkind: local\n")

    with pytest.raises(BadInputError, match="kind local"):
        command.cleanup(target, str(tmp_path))
