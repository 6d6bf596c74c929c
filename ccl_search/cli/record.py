"""`list`, `show`, `best`: reading what was recorded."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json, print_table, short

RunArgument = Annotated[str, typer.Argument(help="The run's id, the beginning of it, or `latest`.")]


def list_runs(home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """List the runs of the store, newest first."""
    from ccl_search import assembly, report

    with assembly.open_store(home, write=False) as store:
        rows = [report.run_row(store, run) for run in store.list_runs()]
    if as_json:
        print_json(rows)
        return
    heads = ["run", "status", "workload", "phase", "framework", ">XPUs", "proposer", "target", ">trials", ">best"]
    keys = ["id", "status", "workload", "phase", "framework", "xpus", "proposer", "target", "trials", "best_score"]
    shown = [{**row, "status": _status(row)} for row in rows]
    print_table("runs", [f"{head}!" for head in heads], [[_cell(row[key]) for key in keys] for row in shown])


def _status(row: dict[str, Any]) -> str:
    """The run's status; of one that is no search of this store's own, what it is."""
    if row["kind"] == "search":
        return str(row["status"])
    return str(row["kind"]) if row["status"] == "finished" else f"{row['kind']}, {row['status']}"


def show(
    run: RunArgument,
    trial: Annotated[int | None, typer.Option(help="Show everything of this trial.")] = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a run: every trial with its config, its score, and why it failed. With --trial, all that is kept of one."""
    from ccl_search import assembly, report
    from ccl_search.replaying.preparing import VERDICT

    with assembly.open_store(home, write=False) as store:
        record = store.run(run)
        if trial is not None:
            document = report.trial_detail(store, store.trial(record.id, trial))
        else:
            trials = [report.trial_row(found) for found in store.trials(record.id)]
            document = {**report.run_summary(store, record.id), "trial_rows": trials}
            if VERDICT in record.options:
                document["replay"] = record.options[VERDICT]
    if as_json:
        print_json(document)
    elif trial is not None:
        _print_trial(document)
    else:
        _print_run(document)


def best(run: RunArgument, home: HomeOption = None, as_json: JsonFlag = False) -> None:
    """Show the best trial of a run: config, score, metrics, policy."""
    from ccl_search import assembly, report

    with assembly.open_store(home, write=False) as store:
        record = store.run(run)
        summary = report.run_summary(store, record.id)
        found = store.best(record.id)
    if found is None:
        raise report.no_result(summary)
    if as_json:
        noise = {"ties": summary["ties"], "warnings": summary["warnings"]}
        print_json({"run_id": record.id, "objective": summary["objective"], **summary["best"], **noise})
        return
    console().print(report.closing_lines(summary), soft_wrap=True)
    _print_metrics({name: value.as_dict() for name, value in found.metrics.items() if value.value is not None})


def _print_run(document: dict[str, Any]) -> None:
    configs = [row["config"] for row in document["trial_rows"] if row["config"]]
    knobs = [key for key in (configs[0] if configs else {}) if len({str(c.get(key)) for c in configs}) > 1]
    fixed = {key: value for key, value in (configs[0] if configs else {}).items() if key not in knobs}
    rows = [
        [
            f"{'*' if document['best'] and row['trial'] == document['best']['trial'] else ''}{row['trial']}",
            row["failure"] or row["state"],
            _cell(row["score"]),
            _cell(row["num_xpus"]),
            *(_cell((row["config"] or {}).get(knob)) for knob in knobs),
            (row["evidence"] or "").split("\n")[0][:160],
        ]
        for row in document["trial_rows"]
    ]
    title = f"run {document['run_id']}: {document['status']}, objective {document['objective']}"
    heads = [">trial!", "state!", ">score!", ">XPUs!", *(f"{short(knob)}!" for knob in knobs)]
    reasons = any(row[-1] for row in rows)
    print_table(title, [*heads, "why"] if reasons else heads, rows if reasons else [row[:-1] for row in rows])
    if fixed:
        console().print(f"all trials: {' '.join(f'{key}={value}' for key, value in fixed.items())}", soft_wrap=True)
    if document["profiler_cost"] is not None:
        from ccl_search.profiler_cost import described

        console().print(described(document["profiler_cost"]), soft_wrap=True, markup=False)
    if document["screen"] is not None:
        from ccl_search.screening.report import lines

        console().print("\n".join(lines(document["screen"])), soft_wrap=True, markup=False)
    if document["best"] is not None:
        console().print(
            f"best (*): trial {document['best']['trial']}, policy {document['best']['policy_path']}", soft_wrap=True
        )
    if "replay" in document:
        console().print(f"replay: {document['replay']['verdict']}", soft_wrap=True, markup=False)


def _print_trial(document: dict[str, Any]) -> None:
    out = console()
    out.print(f"trial {document['trial']} of run {document['run_id']}: {document['failure'] or document['state']}")
    for key in ("config", "score", "num_xpus", "fidelity", "backend", "directory", "rationale"):
        if document[key] is not None:
            out.print(f"{key}: {document[key]}", soft_wrap=True)
    if document["screening"] is not None:
        said = document["screening"]
        out.print(f"screen: {said['verdict']}: {said['reason']}", markup=False, soft_wrap=True)
    if document["evidence"]:
        out.print("evidence:")
        out.print(document["evidence"], markup=False, soft_wrap=True)
    _print_metrics(document["metrics"])
    for old in document["retracted"]:
        told = f"{old['name']} {old['version']} = {_cell(old['value'])} {old['unit']} is retracted: {old['retracted']}"
        out.print(told, markup=False, soft_wrap=True)
    out.print("policy:")
    out.print(document["policy"], markup=False, soft_wrap=True)


def _print_metrics(metrics: dict[str, Any]) -> None:
    rows = [
        [name, _cell(found.get("value")), found.get("unit") or "", found.get("reason") or ""]
        for name, found in metrics.items()
    ]
    print_table("metrics", ["metric!", ">value!", "unit!", "why there is none"], rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
