"""`compare`: several runs side by side, ranked only where their work is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Two runs or more: an id, the beginning of one, or `latest`.")
    ],
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs: step time, tokens/s, cost, trials to the best, and the knobs of each best.

    Runs that do different work (model, phase, precision, global batch, lengths) are shown but not ranked: exit code 2
    with the facts that differ. Measured and simulated results are ranked separately.

    For example
    `ccl-search compare latest 20261130-154939`
    """
    from ccl_search import assembly, comparing
    from runs.errors import BadInputError

    with assembly.open_store(home, write=False) as store:
        document = comparing.compare(store, runs)
    if len(document["runs"]) < 2:
        raise BadInputError("there is only one run to compare", "name two runs or more, see `ccl-search list`")
    if as_json:
        print_json(document)
    else:
        _print(document)
    if document["refused"]:
        raise BadInputError(
            f"not ranked, the runs do different work: {'; '.join(document['refused'])}",
            "compare runs with the same model, phase, precision, global batch and lengths",
        )


def _print(document: Mapping[str, Any]) -> None:
    columns = [
        "run", "framework", "on", "result", ">trial", ">step (s)", ">tokens/s", ">XPUs", ">XPU s/step", ">to best",
        ">LLM $", ">XPU h",
    ]  # fmt: skip
    print_table("runs and their best trials", columns, [_row(run) for run in document["runs"]])
    out = console()
    for run in document["runs"]:
        if run["best"]:
            knobs = " ".join(f"{key}={value}" for key, value in run["best"]["config"].items())
            out.print(f"{run['run_id']}: {knobs}", soft_wrap=True, markup=False)
    for group in document["groups"]:
        out.print(_ranking(group), soft_wrap=True, markup=False)


def _row(run: Mapping[str, Any]) -> list[str]:
    best = run["best"] or {}
    kind = "/".join(filter(None, (best.get("fidelity"), best.get("backend")))) or "no result"
    where = f"{run['environment']['total_xpus']} x {run['environment']['xpu_model']}"
    numbers = [best.get(key) for key in ("trial", "avg_step_time", "tokens_per_s", "num_xpus", "xpu_seconds_per_step")]
    more = [run["trials_to_best"], run["llm_cost_usd"], run["search_xpu_hours"]]
    return [run["run_id"], run["framework"], where, kind, *map(_cell, [*numbers, *more])]


def _ranking(group: Mapping[str, Any]) -> str:
    perturbed = "perturbed times" if group["perturbed"] else None
    kind = ", ".join(filter(None, (group["fidelity"], group["backend"], group["calibration"], perturbed)))
    if group["ranked_by"] is None:
        return f"{kind}: no time that all these runs have, so no ranking"
    places = [
        f"{place}. {row['run_id']} {row[group['ranked_by']]:.6g} s"
        + (f" ({row['ratio_to_fastest']:.3g}x{_noise(row)})" if place > 1 and row["ratio_to_fastest"] else "")
        for place, row in enumerate(group["ranking"], 1)
    ]
    return f"{kind}, by {group['ranked_by']}: {'; '.join(places)}"


def _noise(row: Mapping[str, Any]) -> str:
    return "" if row["told_apart"] else ", inside the measured spread"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
