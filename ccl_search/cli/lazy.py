"""The root of the command line: its help needs neither the commands' modules nor rich, and a command only its own.

Importing all commands, putting their options together and loading rich's Markdown and syntax colouring took most of
the time of `ccl-search --help`, and the first two of every other command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

_COLUMN = 14


@dataclass(frozen=True)
class Verb:
    """A command: its place in the help, its name, where it is (`module:attribute`) and one line on what it does.

    The attribute is the command's function, or a `typer.Typer` that is a group of commands. The line is the first of
    the function's docstring, or the group's help.
    """

    panel: str
    name: str
    where: str
    help: str

    def load(self) -> Any:
        """The command, ready to run."""
        module, _, attribute = self.where.partition(":")
        found = getattr(import_module(f"ccl_search.cli.{module}"), attribute)
        around = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        around.callback()(_nothing)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self.name)
        else:
            around.command(self.name)(found)
        group: Any = typer.main.get_command(around)
        return group.commands[self.name]


class Commands(Mapping[str, Any]):
    """Commands by name, each loaded when it is asked for."""

    def __init__(self, verbs: tuple[Verb, ...]) -> None:
        self.verbs = {verb.name: verb for verb in verbs}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self.verbs[name].load()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.verbs)

    def __len__(self) -> int:
        return len(self.verbs)

    def __contains__(self, name: object) -> bool:
        return name in self.verbs


def root_of(verbs: tuple[Verb, ...]) -> type[TyperGroup]:
    """The class of a root group that has these commands."""

    class Root(TyperGroup):
        """Commands by panel, as plain text."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands: Any = Commands(verbs)

        def list_commands(self, ctx: Any) -> list[str]:
            """The names, in the order of the help."""
            del ctx
            return list(self.commands)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """Write the help without rich, as any command line library would."""
            super(TyperGroup, self).format_help(ctx, formatter)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """Write the names and what they do, by panel."""
            del ctx
            for panel in dict.fromkeys(verb.panel for verb in verbs):
                with formatter.section(panel):
                    rows = [(verb.name.ljust(_COLUMN), verb.help) for verb in verbs if verb.panel == panel]
                    formatter.write_dl(rows)

    return Root


def _nothing() -> None:
    """A group that is no command itself."""
