"""How commands speak: tables and notes for people on stderr, one JSON document on stdout with `--json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        envvar="CCL_SEARCH_HOME",
        show_default="./ccl-runs",
        help="Folder that keeps the store and the trials' files.",
    ),
]


def console() -> Console:
    """A console on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """Write `document` to stdout as JSON. NaN and infinities are an error, never text that is no JSON."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False, default=str)
    sys.stdout.write("\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stderr; columns named with a leading `>` are right-aligned."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*row)
    console().print(table)
