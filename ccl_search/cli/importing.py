"""`import`: somebody's published search, or benchmark entries, into the store."""

from __future__ import annotations

from typing import Annotated

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json


def import_(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="A published folder, a folder of CCL-Bench entries, an archive, or the name of a bundled search.",
        ),
    ],
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring a published search, or CCL-Bench entries (card, script, traces), into the store: all of it or nothing.

    A published search is verified first; one whose values do not follow from its evidence is refused.

    For example
    `ccl-search import my-search.tar.gz`
    """
    from ccl_search import assembly
    from ccl_search.publishing.importing import import_from
    from policies.reading import require

    place = require(folder)
    with assembly.open_store(home, write=True) as store:
        runs = import_from(store, place)
        rows = [{"run_id": run, "trials": sum(store.totals(run).trials.values())} for run in runs]
    if as_json:
        print_json({"runs": rows})
        return
    for row in rows:
        console().print(f"run {row['run_id']}: {row['trials']} trials; `ccl-search show {row['run_id']}`", markup=False)
