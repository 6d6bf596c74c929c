"""`run` and `resume`: the main job."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli import options
from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json

if TYPE_CHECKING:
    from ccl_search.search import Search
    from launchers.base import Launcher
    from runs.store import RunRecord, Store


def run(
    card: options.Card = None,
    workload: options.Workload = None,
    environment: options.Environment = None,
    framework: options.Framework = None,
    space: options.Space = None,
    objective: options.Objective = None,
    weights: options.Weights = None,
    baseline: options.Baseline = None,
    constraint: options.Constraint = None,
    pareto: options.Pareto = False,
    portable: options.Portable = False,
    repeats: options.Repeats = 1,
    policy: options.Policy = None,
    proposer: options.Proposer = None,
    model: options.Model = "claude-opus-5-5",
    effort: options.Effort = None,
    fallback_model: options.FallbackModel = None,
    prices: options.Prices = None,
    replay_llm: options.ReplayLlm = None,
    sandbox: options.Sandbox = "monty",
    unconfined: options.Unconfined = False,
    seed: options.Seed = 0,
    iterations: options.Iterations = 14,
    patience: options.Patience = None,
    max_cost: options.MaxCost = None,
    max_xpu_hours: options.MaxXpuHours = None,
    max_minutes: options.MaxMinutes = None,
    time_limit: options.TimeLimit = None,
    retries: options.Retries = 2,
    target: options.Target = "dry-run",
    backend: options.Backend = None,
    screen: options.Screen = None,
    screen_check: options.ScreenCheck = 0.0,
    parallel: options.Parallel = None,
    within_allocation: options.WithinAllocation = False,
    keep_traces: options.KeepTraces = "all",
    trace_ranks: options.TraceRanks = None,
    profiler_cost: options.ProfilerCost = True,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search for the best config of a workload on an environment.

    Trial 0 is the seed policy; every iteration rewrites the policy, runs its config, and scores the trace.
    Everything is kept: `ccl-search show RUN`. A stopped run goes on with `ccl-search resume RUN`.
    """
    from ccl_search import assembly, retention, targets
    from ccl_search.cli.progress import live_table
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
        portable=portable,
    )
    _check_budgets(max_xpu_hours, max_minutes, time_limit)
    target = targets.with_backend(target, backend)
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
        parallel=parallel,
        extras={"within_allocation": True} if within_allocation else {},
        retries=retries,
        replay_llm=replay_llm,
        effort=effort,
        fallback_models=tuple(fallback_model or ()),
        prices=str(prices) if prices is not None else None,
        constraints=tuple(constraint or ()),
        pareto=pareto,
        repeats=repeats,
        screen=screen,
        screen_check=screen_check,
        profiler_cost=profiler_cost,
        keep_traces=retention.check_keep(keep_traces),
        trace_ranks=trace_ranks,
    )
    with assembly.open_store(home, write=True) as store:
        launcher = targets.launcher(targets.find(target, store.home), within_allocation)
        search = assembly.create(source, settings, store, policy, live_table(store))
        _drive(search, store, launcher, as_json)


def resume(
    run: Annotated[str, typer.Argument(help="The run's id, the beginning of it, or `latest`.")],
    iterations: options.NewIterations = None,
    patience: options.Patience = None,
    max_cost: options.MaxCost = None,
    max_xpu_hours: options.MaxXpuHours = None,
    max_minutes: options.MaxMinutes = None,
    time_limit: options.NewTimeLimit = None,
    retries: options.NewRetries = None,
    parallel: options.NewParallel = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Go on with an interrupted run: what is finished stays, what was in flight is re-attached or repeated.

    Options replace what the run was started with. With one of them a finished run goes on too. Cost and
    accelerator-hours count from the beginning of the run, minutes from the beginning of this command.
    """
    from ccl_search import assembly, targets
    from ccl_search.cli.progress import live_table

    _check_budgets(max_xpu_hours, max_minutes, time_limit)
    changes = {
        "iterations": iterations,
        "patience": patience,
        "max_cost_usd": _dollars(max_cost),
        "max_xpu_hours": max_xpu_hours,
        "max_seconds": max_minutes * 60 if max_minutes is not None else None,
        "time_limit_s": time_limit,
        "retries": retries,
        "parallel": parallel,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    with assembly.open_store(home, write=True) as store:
        record = store.run(run)
        _refuse_sweep(record)
        within = bool(record.options.get("settings", {}).get("extras", {}).get("within_allocation"))
        launcher = targets.launcher(targets.of_run(record.target, record.target_settings), within)
        search = assembly.reopen(record.id, store, live_table(store), changes)
        _drive(search, store, launcher, as_json)


def _refuse_sweep(record: RunRecord) -> None:
    from ccl_search.sweeping.recording import KIND
    from runs.errors import BadInputError

    if record.kind == KIND:
        raise BadInputError(f"run {record.id} is a sweep", f"go on with `ccl-search sweep --resume {record.id}`")


def _check_budgets(*values: float | None) -> None:
    from runs.errors import BadInputError

    for value in values:
        if value is not None and not 0 < value < math.inf:
            raise BadInputError(f"{value:g} is no budget", "--max-xpu-hours, --max-minutes, --time-limit are above 0")


def _drive(search: Search, store: Store, launcher: Launcher, as_json: bool) -> None:
    from ccl_search import profiler_cost, report
    from ccl_search.execution import Executor
    from ccl_search.fleet import OneAtATime

    started = time.monotonic()
    observer = search.observer
    executor = Executor(
        OneAtATime(launcher) if search.parallel > 1 else launcher,
        search.interrupt,
        observer.notice,
        search.settings.retries,
    )
    search.interrupt.announce = observer.notice
    with search.interrupt:
        status = search.run(executor)
        if status == "finished" and search.settings.profiler_cost:
            profiler_cost.settle(search, store, executor)
    if status == "finished" and hasattr(launcher, "release"):
        for hindrance in launcher.release(search.run_id, search.recorder.trial_dir(0)):
            observer.notice(f"a slice is left; `ccl-search cleanup` deletes it: {hindrance}")
    summary = report.run_summary(store, search.run_id, time.monotonic() - started)
    if as_json:
        print_json(summary)
    else:
        console().print(report.closing_lines(summary), soft_wrap=True, highlight=False)
    if summary["best"] is None:
        raise report.no_result(summary)


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
