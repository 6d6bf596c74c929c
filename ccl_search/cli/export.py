"""`export`: a run in a form that other tools read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ccl_search.cli.output import HomeOption, console


def export(
    run: Annotated[str, typer.Argument(help="The run's id, the beginning of it, or `latest`.")],
    kind: Annotated[
        str, typer.Option("--format", "-f", metavar="csv|json|parquet|entries|optuna", help="What to write.")
    ] = "csv",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="New file (entries: folder) to write.", show_default="stdout"),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Export a run: csv or parquet (a row a trial), json (all of it), entries (a folder of benchmark entries), optuna.

    Column names are stable and described in docs/export.md. csv and json go to stdout unless --output is given.

    For example
    `ccl-search export latest --format csv --output trials.csv`
    """
    from ccl_search import assembly, exporting
    from runs.errors import BadInputError

    if kind not in exporting.FORMATS:
        raise BadInputError(f"there is no format {kind!r}", f"formats: {', '.join(exporting.FORMATS)}")
    if output is None and kind not in exporting.TEXT_FORMATS:
        raise BadInputError(f"--format {kind} needs --output", "name the new file or folder")
    with assembly.open_store(home, write=False) as store:
        if output is None:
            sys.stdout.write(exporting.text_of(store, run, kind))
            return
        exporting.write(store, run, kind, output)
    console().print(f"{kind}: {output}", soft_wrap=True, markup=False)
