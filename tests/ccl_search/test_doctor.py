"""`doctor`: what it prints, its exit code, and that no key is ever shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ccl_search.cli.doctor import doctor

app = typer.Typer()
app.command()(doctor)


def test_this_machine_as_json_and_no_key_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    done = CliRunner().invoke(app, ["--json", "--home", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert {"API key", "sandbox", "free space"} <= set(found)
    assert found["API key"]["level"] == "ok"
    assert "secret" not in done.output


def test_a_missing_key_is_a_warning_with_a_fix(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--json", "--home", str(tmp_path)])
    (row,) = (row for row in json.loads(done.stdout) if row["name"] == "API key")
    assert (row["level"], "export ANTHROPIC_API_KEY" in row["fix"]) == ("warn", True)
    assert done.exit_code == 0


def test_a_target_that_cannot_be_reached_is_exit_code_3(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text('{name: far, kind: slurm, ssh: {host: 127.0.0.1, options: ["-F", none, "-p", "1"]}}')
    done = CliRunner().invoke(app, ["--target", str(path), "--home", str(tmp_path)])
    assert done.exit_code == 3
    assert "login node" in done.output
