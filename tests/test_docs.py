"""The docs cannot rot: the command line's page is what the commands say, links lead somewhere, CI runs the README."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ccl_search.cli.app import app
from ccl_search.cli.document import commands, reference

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))


def test_the_reference_page_is_what_the_commands_say() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference()


@pytest.mark.parametrize(
    ("path", "command"), list(commands(app)), ids=lambda value: value if type(value) is str else ""
)
def test_every_command_and_option_has_help(path: str, command: object) -> None:
    assert getattr(command, "help", None), path
    for parameter in getattr(command, "params", []):
        assert getattr(parameter, "help", None), f"{path} {parameter.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = next(line for line in readme.splitlines() if line.startswith("python3 -m venv") and "pytest" in line)

    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "'.[test]'" in command


def test_help_is_quick() -> None:
    """CPU seconds, the best of five: the other tests share the cores and their caches."""
    entry = "import sys; sys.argv = ['ccl-search', '--help']; from ccl_search.cli.app import main; main()"
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", entry], cwd=ROOT, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(spent) < 0.4, spent


def test_the_command_line_starts_without_heavy_imports() -> None:
    loaded = "import sys; import ccl_search.cli.app; print(sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, check=True, capture_output=True, text=True)

    for heavy in ("anthropic", "numpy", "sqlmodel", "sqlalchemy", "optuna", "matplotlib", "pydantic"):
        assert f"'{heavy}'" not in found.stdout
