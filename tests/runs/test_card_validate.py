"""`ccl-search validate`: findings for people on stderr, one JSON document on stdout, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ccl_search.cli.validate import app
from tests.runs.test_card import CARD

SPACE = """\
name: small
world_size: tp * dp
knobs:
  - {key: tp, type: int, choices: [1, 2]}
  - {key: dp, type: int, choices: [1, 2, 4]}
constraints:
  - {name: fits, expression: tp * dp <= 4}
"""


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def parsed(text: str) -> dict[str, Any]:
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


@pytest.fixture
def card(tmp_path: Path) -> Path:
    path = tmp_path / "card.yaml"
    path.write_text(
        CARD.replace("two nodes", "nodes: two").replace("      count_per_node: 4", "      count_per_node: 3")
    )
    return path


def test_findings_have_file_line_severity_and_code(card: Path) -> None:
    code, out, err = run("card", card)
    line = card.read_text().splitlines().index("      total_count: 8") + 1
    assert (code, out) == (0, "")
    assert f"{card}:{line}: warning total_not_multiple_of_node: " in err
    assert f"{card}:2: warning repaired: " in err
    assert "'description: training on nodes: two' is read as" in err
    assert f"{card}: usable (2 warnings)" in err


def test_json_is_alone_on_stdout(card: Path) -> None:
    code, out, err = run("card", "--json", card)
    (report,) = parsed(out)["files"]
    assert (code, err) == (0, "")
    assert report["usable"] is True
    assert [found["code"] for found in report["findings"]] == ["repaired", "total_not_multiple_of_node"]
    assert report["repairs"][0]["repaired"] == "description: 'training on nodes: two'"
    assert report["normalised"]["batch_size"] == 8


def test_one_unusable_card_of_several_makes_exit_code_2(card: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: 1\na: 2\n")
    code, out, err = run("card", card, bad)
    assert (code, out) == (2, "")
    assert f"{bad}:2: error duplicate_key: " in err
    assert "hint: " in err
    assert "Traceback" not in err
    code, out, err = run("card", "--json", bad, card)
    assert (code, err) == (2, "")
    assert [report["usable"] for report in parsed(out)["files"]] == [False, True]


def test_an_absent_file_is_one_line_and_a_hint(tmp_path: Path) -> None:
    code, out, err = run("card", tmp_path / "none.yaml")
    assert (code, out) == (2, "")
    assert err.count("cannot read") == 1
    assert run("card")[0] == 2


def test_values_of_a_card_cannot_steer_the_terminal(card: Path) -> None:
    card.write_text(CARD.replace("dataset: c4", 'dataset: c4\n    "\\e[31mred[bold]": 1'))
    _, _, err = run("card", card)
    assert "\x1b" not in err
    assert "red[bold]" in err


def test_entry(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text(CARD)
    code, out, err = run("entry", tmp_path)
    assert (code, out) == (2, "")
    assert "error entry_script_missing: " in err
    code, out, err = run("entry", "--json", tmp_path)
    assert (code, err) == (2, "")
    found = {each["code"] for each in parsed(out)["findings"]}
    assert found == {
        "entry_script_missing", "entry_trace_missing", "entry_metrics_missing", "entry_execution_missing",
        "steps_unknown",
    }  # fmt: skip


def test_space(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    code, out, err = run("space", path)
    assert (code, out) == (0, "")
    assert "2 knobs, 6 points" in err
    report = parsed(run("space", path, "--json")[1])
    assert (report["usable"], report["points"], report["constraints"]) == (True, 6, ["fits"])


@pytest.mark.parametrize(("old", "new", "part"), [("tp * dp <= 4", "tp * pp <= 4", "pp"), ("[1, 2]", "[1, 2", "YAML")])
def test_a_space_that_cannot_be_used(tmp_path: Path, old: str, new: str, part: str) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE.replace(old, new))
    code, out, err = run("space", path)
    assert (code, out) == (2, "")
    assert part in err
    code, out, err = run("space", path, "--json")
    assert (code, err) == (2, "")
    assert parsed(out)["findings"][0]["code"] == "space_invalid"


def test_nothing_heavy_is_imported_with_the_command() -> None:
    """The commands import what they need when they run: help answers fast."""
    heavy = "{'pydantic', 'yaml', 'numpy', 'sqlmodel', 'anthropic', 'optuna'}"
    program = f"import sys, ccl_search.cli.validate; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
