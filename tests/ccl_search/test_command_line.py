"""The root of the command line: what it lists, loads and leaves alone."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer

from ccl_search.cli.app import app
from ccl_search.cli.document import commands
from ccl_search.cli.groups import grouped
from tests.ccl_search.cli import ENTRY, ROOT, Cli

GROUP: Any = typer.main.get_command(app)
VERBS = list(GROUP.commands.verbs.values())


@dataclass(frozen=True)
class Machines:
    nodes: Annotated[int, typer.Option(help="How many.")] = 2
    names: Annotated[list[str] | None, typer.Option("--name")] = None


def test_a_group_stands_for_its_options_in_its_place() -> None:
    given: list[Any] = []
    around = typer.Typer(add_completion=False)

    @around.command()
    @grouped
    def start(*, job: str, machines: Machines, dry: bool = False) -> None:
        given.append((job, machines, dry))

    command: Any = typer.main.get_command(around)
    assert [each.name for each in command.params] == ["job", "nodes", "names", "dry"]
    assert command.params[1].help == "How many."

    command(["first"], standalone_mode=False)
    command(["--name", "a", "--name", "b", "--dry", "second"], standalone_mode=False)
    assert given == [("first", Machines(), False), ("second", Machines(2, ["a", "b"]), True)]


@pytest.mark.parametrize("verb", VERBS, ids=[verb.name for verb in VERBS])
def test_every_command_of_the_list_is_there(verb: Any) -> None:
    command = verb.load()

    assert command.name == verb.name
    assert command.help and verb.help.endswith(".") and len(verb.help) <= 80
    assert "--install-completion" not in {name for option in command.params for name in option.opts}


def test_the_help_lists_every_command_in_its_panel(cli: Cli) -> None:
    text = cli("--help").out

    for verb in VERBS:
        below = text.partition(f"\n{verb.panel}:\n")[2].partition("\n\n")[0]
        assert f"  {verb.name} " in below
    assert "--version" in text and "--install-completion" in text
    assert len({path for path, _ in commands(app)}) > len(VERBS)


def test_the_help_loads_no_command_and_no_rich() -> None:
    at_exit = "import atexit, sys; atexit.register(lambda: print(sorted(sys.modules)))"
    code = f"{at_exit}; sys.argv = ['ccl-search', '--help']; {ENTRY}"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)

    loaded = found.stdout.splitlines()[-1]
    assert "'ccl_search.cli.app'" in loaded
    for name in ("rich.console", "rich.markdown", "ccl_search.cli.run", "ccl_search.cli.metrics", "yaml", "pydantic"):
        assert f"'{name}'" not in loaded


def test_a_name_that_is_no_command_is_answered_with_the_nearest(cli: Cli) -> None:
    result = cli("rnu")

    assert result.code == 2 and "Did you mean 'run'?" in result.err


TEACHING = (
    "run",
    "resume",
    "pareto",
    "compare",
    "rescore",
    "export",
    "publish",
    "verify",
    "import",
    "replay",
    "doctor",
)


def examples() -> list[tuple[str, str]]:
    """Every command line in the text of a command, with that command."""
    texts = [(path, command.help or "") for path, command in commands(app)]
    return [(path, line) for path, text in texts for line in re.findall(r"`(ccl-search [^`]+)`", text)]


def test_every_example_in_the_help_is_a_command_line_that_is_understood() -> None:
    known = dict(commands(app))
    for _, line in examples():
        words = shlex.split(line)
        path = next(path for path in sorted(known, key=len, reverse=True) if line.startswith(path))
        assert known[path].make_context(path, words[len(path.split()) :]).params, line


def test_the_commands_of_a_search_show_an_example_of_themselves() -> None:
    shown = {path for path, line in examples() if line.startswith(path + " ")}

    assert {f"ccl-search {verb}" for verb in TEACHING} <= shown
