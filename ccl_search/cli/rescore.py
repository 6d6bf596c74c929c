"""`rescore`: another objective, weight or metric over the traces a run left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table

if TYPE_CHECKING:
    from runs.objective import Objective


def rescore(
    run: Annotated[str, typer.Argument(help="The run's id, the beginning of it, or `latest`.")],
    objective: Annotated[list[str] | None, typer.Option(help="Metric to score by; repeat for a composite.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weights of a composite, as 0.5,0.5; equal when not given.")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Baseline of a composite's metric, as NAME=VALUE; else the run's, else its first trial's."),
    ] = None,
    portable: Annotated[
        bool, typer.Option("--portable", help="With the portability of the policies in the score, as for `run`.")
    ] = False,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="Compute this metric as well; may be given again.")
    ] = None,
    from_traces: Annotated[
        bool, typer.Option("--from-traces", help="Read every trace, also where stored values would do.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Score a run again under another objective, without running anything; old scores stay beside the new ones.

    Stored values serve where they are of the installed version of their metric tool; otherwise traces are read.

    For example
    `ccl-search rescore latest --objective step_time --objective peak_memory_gb --weights 0.7,0.3`
    """
    from ccl_search import assembly, rescoring

    with assembly.open_store(home, write=True) as store:
        before = store.run(run)
        wanted = _objective(objective or [], weights, baseline or [], portable)
        results = rescoring.rescore(store, before.id, wanted, metric or [], from_traces)
        document = rescoring.document(store, before.id, results, before)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _objective(names: list[str], weights: str | None, baselines: list[str], portable: bool) -> Objective | None:
    from ccl_search.cli.groups import baseline_values, weight_numbers
    from ccl_search.problem import ProblemSource, objective_of
    from runs.errors import BadInputError

    if not names:
        if weights or baselines or portable:
            raise BadInputError("--weights, --baseline, --portable belong to --objective", "name the objective again")
        return None
    values = weight_numbers(weights), baseline_values(baselines)
    return objective_of(
        ProblemSource(objectives=tuple(names), weights=values[0], baselines=values[1], portable=portable)
    )


def _print(document: Mapping[str, Any]) -> None:
    names = list(dict.fromkeys(name for trial in document["trials"] for name in trial["values"]))
    rows = [
        [
            str(trial["trial"]), _cell(trial["previous_score"]), _cell(trial["score"]),
            *(_cell(trial["values"].get(name)) for name in names),
            ", ".join(trial["recomputed"]), trial["reason"],
        ]
        for trial in document["trials"]
    ]  # fmt: skip
    columns = [">trial", ">old score", ">score", *(f">{name}" for name in names), "read anew", "why there is none"]
    print_table(f"run {document['run_id']}: scored by {document['objective']['name']}", columns, rows)
    console().print(f"before: {document['previous_objective']['name']}; best now: trial {document['best']}")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
