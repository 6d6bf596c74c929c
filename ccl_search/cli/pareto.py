"""`pareto`: the front of a run, or of several over each other, as a table, a plot and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from runs.metric import MetricSpec

_MOST_STEPS = 12


def pareto(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs: an id, the beginning of one, or `latest`.")
    ],
    x: Annotated[
        str | None, typer.Option("--x", help="Metric of the first axis.", show_default="the objective's first metric")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="Metric of the second axis.", show_default="the objective's second metric")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the front into this .png, .svg or .pdf file.")] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="Reference point of the hypervolume, as NAME=VALUE for every axis.",
            show_default="the one stored with the run",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the Pareto front of a run: its members with their policies, hypervolume and its history, knee.

    The front is over the metrics of the run's objective (2 to 4). With --x and --y that are both among them, only the
    plot's axes are chosen; otherwise the front is over these two metrics. Several runs must do the same work; they
    share one reference point.

    For example
    `ccl-search pareto latest --x step_time --y peak_memory_gb --plot front.svg`
    """
    from ccl_search import assembly
    from ccl_search.pareto import report

    with assembly.open_store(home, write=False) as store:
        wanted = _axes([store.run(found).objective for found in runs], x, y)
        fronts = report.fronts_of(store, runs, wanted, _reference(reference or []))
        document = report.document(store, fronts)
    if plot is not None:
        from ccl_search.pareto.plot import draw

        names = [axis["metric"] for axis in document["axes"]]
        draw(document, plot, _canonical(x) or names[0], _canonical(y) or names[1])
    if as_json:
        print_json(document)
        return
    _print(document)
    if plot is not None:
        console().print(f"plot: {plot}", soft_wrap=True)


def _axes(objectives: Sequence[Mapping[str, Any]], x: str | None, y: str | None) -> list[MetricSpec] | None:
    """The axes asked for; None: those of the objectives."""
    from ccl_search.portability.spec import spec
    from runs.errors import BadInputError

    if x is None and y is None:
        return None
    if x is None or y is None:
        raise BadInputError("--x and --y go together", "for example --x step_time --y num_xpus")
    specs = [spec(x), spec(y)]
    known = [{term["metric"] for term in objective["terms"]} for objective in objectives]
    return None if all({found.name for found in specs} <= names for names in known) else specs


def _canonical(name: str | None) -> str | None:
    from ccl_search.portability.spec import spec

    return None if name is None else spec(name).name


def _reference(entries: Sequence[str]) -> dict[str, float] | None:
    from ccl_search.portability.spec import spec
    from runs.errors import BadInputError

    found: dict[str, float] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        try:
            found[spec(name).name] = float(value)
        except ValueError as error:
            raise BadInputError(f"--reference {entry} is no NAME=VALUE", "for example step_time=2.5") from error
    return found or None


def _print(document: Mapping[str, Any]) -> None:
    for run in document["runs"]:
        _print_run(run, document["axes"])
    if document["joint"] is not None:
        for run_id, members in document["joint"].items():
            names = ", ".join(map(str, members)) or "none of its trials"
            console().print(f"on the front of all runs together: {run_id}: {names}", soft_wrap=True)
    elif len(document["runs"]) > 1:
        console().print("measured and simulated results are not ranked together: there is no common front")


def _print_run(run: Mapping[str, Any], axes: Sequence[Mapping[str, Any]]) -> None:
    names = [axis["metric"] for axis in axes]
    title = f"front of run {run['run_id']} ({run['proposer']}, {run['fidelity'] or 'no result'})"
    heads = [f">{axis['metric']}{' (' + axis['unit'] + ')' if axis['unit'] else ''}" for axis in axes]
    columns = [">trial", *heads, "config", "policy"]
    print_table(title, columns, [_row(run, member, names) for member in run["front"]])
    out = console()
    for line in _lines(run, names):
        out.print(line, soft_wrap=True, markup=False)


def _row(run: Mapping[str, Any], member: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    mark = " knee" if member["trial"] == run["knee"] else ""
    config = " ".join(f"{key}={value}" for key, value in (member["config"] or {}).items())
    values = [f"{member['values'][name]:.6g}" for name in names]
    return [f"{member['trial']}{mark}", *values, config, (member["policy_sha256"] or "")[:12]]


def _lines(run: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    if run["hypervolume"] is None:
        return [f"no candidate: no trial succeeded within the constraints and has {' and '.join(names)}"]
    reference = ", ".join(f"{name}={run['reference_point'][name]:.6g}" for name in names)
    kept = "fixed: given, or stored with the run" if run["reference_point_fixed"] else "made from the trials so far"
    found = [f"hypervolume {run['hypervolume']:.6g} up to {reference} ({kept})", _history(run)]
    for member in run["front"]:
        found.append(f"trial {member['trial']}: {member['policy_path']}")
        if member["indistinguishable"]:
            others = ", ".join(map(str, member["indistinguishable"]))
            found.append(f"  not told apart from trial {others}: every difference is inside the measured spread")
    if run["infeasible"]:
        found.append(f"no candidates, for they break a constraint: trials {', '.join(run['infeasible'])}")
    return found


def _history(run: Mapping[str, Any]) -> str:
    """The steps of the hypervolume: where it grew."""
    steps: list[str] = []
    last = None
    for entry in run["hypervolume_history"]:
        if entry["hypervolume"] != last:
            last = entry["hypervolume"]
            steps.append(f"{last:.4g} (trial {entry['trial']})")
    shown = steps if len(steps) <= _MOST_STEPS else [steps[0], "...", *steps[-_MOST_STEPS + 2 :]]
    return f"hypervolume history: {', '.join(shown)}"
