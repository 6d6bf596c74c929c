"""`run` and `resume`: the main job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json

if TYPE_CHECKING:
    from ccl_search.search import Search
    from runs.store import Store

_SUBJECT = "What to search"
_HOW = "How to search"
_BUDGET = "Budgets"
_WHERE = "Where"


def run(
    card: Annotated[Path | None, typer.Option(help="Workload card (CCL-Bench YAML).", rich_help_panel=_SUBJECT)] = None,
    workload: Annotated[
        str | None,
        typer.Option(help="Bundled workload, see `workloads`.", show_default="wl4", rich_help_panel=_SUBJECT),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            help="Bundled environment, see `environments`.",
            show_default="perlmutter-a100-16",
            rich_help_panel=_SUBJECT,
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            help="torchtitan, megatron-lm, maxtext, vllm, sglang or command.",
            show_default="torchtitan",
            rich_help_panel=_SUBJECT,
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="Config space (YAML file or bundled name) instead of the framework's default.",
            rich_help_panel=_SUBJECT,
        ),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric to optimise; repeat for a composite.", show_default="step_time", rich_help_panel=_SUBJECT
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Weights of a composite, as 0.5,0.5; equal when not given.", rich_help_panel=_SUBJECT),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Baseline of a composite's metric, as NAME=VALUE; else trial 0's.", rich_help_panel=_SUBJECT),
    ] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            help="Bound on a metric or a knob, as 'peak_memory_gb <= 38'; repeat for several.",
            rich_help_panel=_SUBJECT,
        ),
    ] = None,
    pareto: Annotated[
        bool,
        typer.Option(
            "--pareto",
            help="Search the whole Pareto front of 2 to 4 objectives, not only the best composite score.",
            rich_help_panel=_SUBJECT,
        ),
    ] = False,
    repeats: Annotated[
        int, typer.Option(min=1, help="Measure every config this many times.", rich_help_panel=_HOW)
    ] = 1,
    policy: Annotated[
        Path | None, typer.Option(help="Policy to start from instead of the bundled seed.", rich_help_panel=_HOW)
    ] = None,
    proposer: Annotated[
        str | None,
        typer.Option(
            help="claude, guided, tpe, random or grid.",
            show_default="claude with ANTHROPIC_API_KEY set, else guided",
            rich_help_panel=_HOW,
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Model of the claude proposer.", rich_help_panel=_HOW)] = "claude-opus-5-5",
    effort: Annotated[
        str | None,
        typer.Option(help="How hard the model thinks: low, medium, high, xhigh or max.", rich_help_panel=_HOW),
    ] = None,
    fallback_model: Annotated[
        list[str] | None,
        typer.Option(help="Model to ask when the first one refuses; repeat for several.", rich_help_panel=_HOW),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="Price rows (YAML) that take precedence over the bundled ones.", rich_help_panel=_HOW),
    ] = None,
    replay_llm: Annotated[
        str | None,
        typer.Option(help="Serve LLM answers from this stored run; no network is used.", rich_help_panel=_HOW),
    ] = None,
    sandbox: Annotated[str, typer.Option(help="Where policies run: monty or process.", rich_help_panel=_HOW)] = "monty",
    unconfined: Annotated[
        bool,
        typer.Option(
            "--unconfined", help="Let the process sandbox run without bubblewrap or Landlock.", rich_help_panel=_HOW
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", rich_help_panel=_HOW)] = 0,
    iterations: Annotated[
        int, typer.Option(min=0, help="Iterations after the seed policy.", rich_help_panel=_BUDGET)
    ] = 14,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this many iterations without improvement.", rich_help_panel=_BUDGET),
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option(help="Stop when the LLM has cost this many dollars.", rich_help_panel=_BUDGET)
    ] = None,
    max_xpu_hours: Annotated[
        float | None, typer.Option(help="Stop after this many accelerator-hours.", rich_help_panel=_BUDGET)
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop after this many minutes.", rich_help_panel=_BUDGET)
    ] = None,
    time_limit: Annotated[
        float, typer.Option(help="Longest run of one trial, in seconds.", rich_help_panel=_BUDGET)
    ] = 3600.0,
    retries: Annotated[
        int, typer.Option(min=0, help="Repeats of a trial that the machines failed.", rich_help_panel=_BUDGET)
    ] = 2,
    target: Annotated[str, typer.Option(help="Where configs run, see `targets`.", rich_help_panel=_WHERE)] = "dry-run",
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search for the best config of a workload on an environment.

    Trial 0 is the seed policy; every iteration rewrites the policy, runs its config, and scores the trace.
    Everything is kept: `ccl-search show RUN`. A stopped run goes on with `ccl-search resume RUN`.
    """
    from ccl_search import assembly
    from ccl_search.problem import DEFAULT_OBJECTIVE, ProblemSource
    from ccl_search.settings import SearchSettings

    source = ProblemSource(
        card=card,
        workload=workload,
        environment=environment,
        framework=framework,
        space=space,
        objectives=tuple(objective or (DEFAULT_OBJECTIVE,)),
        weights=weight_numbers(weights),
        baselines=baseline_values(baseline or []),
    )
    settings = SearchSettings(
        iterations=iterations,
        seed=seed,
        proposer=proposer,
        model=model,
        target=target,
        sandbox=sandbox,
        unconfined=unconfined,
        patience=patience,
        max_cost_usd=_dollars(max_cost),
        max_xpu_hours=max_xpu_hours,
        max_seconds=max_minutes * 60 if max_minutes is not None else None,
        time_limit_s=time_limit,
        retries=retries,
        replay_llm=replay_llm,
        effort=effort,
        fallback_models=tuple(fallback_model or ()),
        prices=str(prices) if prices is not None else None,
        constraints=tuple(constraint or ()),
        pareto=pareto,
        repeats=repeats,
    )
    with assembly.open_store(home, write=True) as store:
        table = _table(store)
        search = assembly.create(source, settings, store, policy, table)
        _drive(search, store, as_json)


def resume(
    run: Annotated[str, typer.Argument(help="The run's id, the beginning of it, or `latest`.")],
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Go on with an interrupted run: what is finished stays, what was in flight is re-attached or repeated."""
    from ccl_search import assembly

    with assembly.open_store(home, write=True) as store:
        table = _table(store)
        _drive(assembly.reopen(run, store, table), store, as_json)


def _drive(search: Search, store: Store, as_json: bool) -> None:
    from ccl_search import report, targets
    from ccl_search.execution import Executor

    started = time.monotonic()
    observer = search.observer
    executor = Executor(
        targets.launcher(targets.find(search.settings.target)),
        search.interrupt,
        observer.notice,
        search.settings.retries,
    )
    search.interrupt.announce = observer.notice
    with search.interrupt:
        search.run(executor)
    summary = report.run_summary(store, search.run_id, time.monotonic() - started)
    if as_json:
        print_json(summary)
    else:
        console().print(report.closing_lines(summary), soft_wrap=True, highlight=False)
    if summary["best"] is None:
        raise report.no_result(summary)


def _table(store: Store) -> Any:
    from ccl_search.cli.progress import LiveTable

    return LiveTable(console())


def weight_numbers(text: str | None) -> tuple[float, ...]:
    """The weights written as `0.5,0.5`; BadInputError where they are no numbers."""
    from runs.errors import BadInputError

    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise BadInputError(f"--weights {text}: {error}", "write numbers with commas, as 0.5,0.5") from error


def baseline_values(entries: list[str]) -> dict[str, float]:
    """The entries written as `NAME=VALUE`; BadInputError where one is not."""
    from runs.errors import BadInputError

    found: dict[str, float] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise BadInputError(f"--baseline {entry} is no NAME=VALUE", "for example avg_step_time=1.5") from error
    return found


def _dollars(text: str | None) -> str | None:
    from decimal import Decimal, InvalidOperation

    from runs.errors import BadInputError

    if text is None:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise BadInputError(f"--max-cost {text} is no amount", "write dollars, as 2.50") from error
    if not amount.is_finite() or amount < 0:
        raise BadInputError(f"--max-cost {text} is no amount", "write dollars, as 2.50")
    return text
