"""`store`: looking after what is kept. `store prune` drops traces; the record of them stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from ccl_search.retention import Dropped
    from runs.store import RunRecord, Store

app = typer.Typer(help="The store: drop traces that take too much room.", no_args_is_help=True)
_MB = 1e6


@app.callback()
def root() -> None:
    """Commands on the store as a whole."""


@app.command("prune")
def prune(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs to prune; all of the store when none is named.")
    ] = None,
    keep: Annotated[
        str, typer.Option(help="Traces to keep of each run: best (the best trial's, or the front's) or none.")
    ] = "best",
    older_than: Annotated[
        float | None, typer.Option(min=0.0, help="Only runs that began more than so many days ago.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be dropped.")] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Delete traces of finished trials and record what was dropped: file, size, SHA-256, when, why.

    Metric values, scores and everything else of the trials stay. Other metrics cannot be computed of a trial whose
    trace is gone, and `verify` calls it unverifiable. Refused while a search writes to the store.

    For example
    `ccl-search store prune --keep best --older-than 30 --dry-run`
    """
    from ccl_search import assembly, retention

    with assembly.open_store(home, write=not dry_run) as store:
        chosen = _chosen(store, runs or [], older_than)
        found = retention.prune(store, chosen, retention.check_keep(keep, "--keep", ("best", "none")), dry_run)
    if as_json:
        total = sum(each.size for each in found)
        print_json({"dropped": [each.as_dict() for each in found], "bytes": total, "dry_run": dry_run})
    else:
        _print(found, dry_run)


def _chosen(store: Store, names: list[str], days: float | None) -> list[RunRecord]:
    runs = [store.run(name) for name in names] if names else store.list_runs()
    if days is None:
        return runs
    before = datetime.now(UTC) - timedelta(days=days)
    return [run for run in runs if run.created < before]


def _print(found: list[Dropped], dry_run: bool) -> None:
    rows: dict[tuple[str, int], list[Dropped]] = {}
    for each in found:
        rows.setdefault((each.run, each.trial), []).append(each)
    table = [
        [run, str(trial), str(len(files)), f"{sum(f.size for f in files) / _MB:.1f}"]
        for (run, trial), files in rows.items()
    ]
    if table:
        print_table("traces", ["run!", ">trial", ">files", ">MB"], table)
    done = "would be dropped" if dry_run else "dropped"
    console().print(f"{len(found)} trace files {done}, {sum(each.size for each in found) / _MB:.1f} MB")
