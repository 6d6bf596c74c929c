"""The command line's reference page, written from the commands themselves: `python -m ccl_search.cli.document`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

_HEAD = """# The command line

Every command and option, written by `python -m ccl_search.cli.document > docs/cli.md`. People read what goes to stderr;
with `--json` a command prints one document on stdout and nothing else there. Exit codes: 0 done, 1 an error of the
program or a claim that its evidence contradicts, 2 bad input, 3 the target cannot be used, 4 a budget ended before
there was a result, 5 evidence that a claim needs is missing.

"""


def reference() -> str:
    """The page as Markdown."""
    from ccl_search.cli.app import app

    return _HEAD + "\n".join(section for path, command in commands(app) for section in _section(path, command))


def commands(app: typer.Typer) -> Iterator[tuple[str, Any]]:
    """Every command with its full name (`ccl-search metrics list`), in the order of the help."""
    yield from _walk("ccl-search", typer.main.get_command(app))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(f"{path} {name}", child)


def _section(path: str, command: Any) -> Iterator[str]:
    level = "#" * min(4, path.count(" ") + 2)
    yield f"{level} `{path}`\n"
    if command.help:
        yield _markdown(inspect.cleandoc(command.help.replace("\f", ""))) + "\n"
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        yield "\n".join(["| option | meaning | default |", "|---|---|---|", *rows]) + "\n"


def _markdown(text: str) -> str:
    """The help with its example commands, a line each, as a block of code."""
    told, given, examples = text.partition("For example\n")
    if not given:
        return text
    return told + "```sh\n" + "\n".join(line.strip("`") for line in examples.splitlines()) + "\n```"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{str(parameter.name).upper()}`"
    help_text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    return f"| {names} | {help_text} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown
    value = parameter.default
    return "" if value is None or value is False or value in ((), ...) or callable(value) else f"`{value}`"


if __name__ == "__main__":
    typer.echo(reference(), nl=False)
