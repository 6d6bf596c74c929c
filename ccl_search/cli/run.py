"""`run` and `resume`: the main job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ccl_search.cli import options
from ccl_search.cli.groups import Budgets, Goal, How, NewBudgets, Subject, Where, grouped
from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json

if TYPE_CHECKING:
    from ccl_search.loop.search import Search
    from launchers.base import Launcher
    from runs.store import RunRecord, Store


@grouped
def run(
    *,
    subject: Subject,
    goal: Goal,
    pareto: options.Pareto = False,
    portable: options.Portable = False,
    how: How,
    budgets: Budgets,
    where: Where,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Search for the best config of a workload on an environment.

    Trial 0 is the seed policy; every iteration rewrites the policy, runs its config, and scores the trace.
    Everything is kept: `ccl-search show RUN`. A stopped run goes on with `ccl-search resume RUN`.

    For example
    `ccl-search run --workload wl5 --framework megatron-lm --iterations 30`
    `ccl-search run --card card.yaml --target cluster.yaml --max-xpu-hours 40 --patience 8`
    `ccl-search run --objective step_time --objective num_xpus --pareto --constraint "peak_memory_gb <= 38"`
    """
    from ccl_search import assembly, targets
    from ccl_search.cli.progress import live_table
    from ccl_search.settings import SearchSettings

    source = subject.source(**goal.terms, portable=portable)
    settings = SearchSettings(
        constraints=goal.constraints, pareto=pareto, **how.settings, **budgets.settings, **where.settings
    )
    with assembly.open_store(home, write=True) as store:
        launcher = targets.launcher(targets.find(settings.target, store.home), where.within_allocation)
        search = assembly.create(source, settings, store, how.policy, live_table(store))
        _drive(search, store, launcher, as_json)


@grouped
def resume(
    *,
    run: Annotated[str, typer.Argument(help="The run's id, the beginning of it, or `latest`.")],
    budgets: NewBudgets,
    parallel: options.NewParallel = None,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Go on with an interrupted run: what is finished stays, what was in flight is re-attached or repeated.

    Options replace what the run was started with. With one of them a finished run goes on too. Cost and
    accelerator-hours count from the beginning of the run, minutes from the beginning of this command.

    For example
    `ccl-search resume latest --iterations 30 --max-minutes 90`
    """
    from ccl_search import assembly, targets
    from ccl_search.cli.progress import live_table

    changes = budgets.settings | ({} if parallel is None else {"parallel": parallel})
    with assembly.open_store(home, write=True) as store:
        record = store.run(run)
        _refuse_sweep(record)
        within = bool(record.options.get("settings", {}).get("extras", {}).get("within_allocation"))
        launcher = targets.launcher(targets.of_run(record.target, record.target_settings), within)
        search = assembly.reopen(record.id, store, live_table(store), changes)
        if record.kind == "replay":
            from ccl_search.cli.replay import conclude

            conclude(search, store, launcher, as_json)
        else:
            _drive(search, store, launcher, as_json)


def _refuse_sweep(record: RunRecord) -> None:
    from ccl_search.sweeping.recording import KIND
    from runs.errors import BadInputError

    if record.kind == KIND:
        raise BadInputError(f"run {record.id} is a sweep", f"go on with `ccl-search sweep --resume {record.id}`")


def _drive(search: Search, store: Store, launcher: Launcher, as_json: bool) -> None:
    from ccl_search import report
    from ccl_search.cli.driving import drive

    started = time.monotonic()
    drive(search, store, launcher, search.settings.profiler_cost)
    summary = report.run_summary(store, search.run_id, time.monotonic() - started)
    if as_json:
        print_json(summary)
    else:
        console().print(report.closing_lines(summary), soft_wrap=True, highlight=False)
    if summary["best"] is None:
        raise report.no_result(summary)
