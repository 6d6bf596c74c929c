"""What the profiler itself costs on a target: once for each target, framework and version, and kept with the run.

When a search on real machines has ended, its best config runs once more with the profiler off. The steps that the
profiler recorded are compared with the same steps of that run, both as the framework logged them. A store that knows
the figure already, from any run, is not measured again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchers.base import Handle, Job
from launchers.shell.logs import lines
from runs.errors import BadInputError, CclSearchError
from runs.trial import Execution, Fidelity, TrialState

if TYPE_CHECKING:
    from ccl_search.loop.execution import Executor
    from ccl_search.loop.search import Search
    from launchers.frameworks.commands.profiling import Unprofiled
    from runs.store import RunRecord, Store, TrialRecord

OPTION = "profiler_cost"
"""The option of a run that holds the figure."""
_FOLDER = "profiler-cost"
_HOUR_S = 3600.0


def settle(search: Search, store: Store, executor: Executor) -> dict[str, Any] | None:
    """Give the run of an ended search the profiler's cost, known or newly measured; None where it has none.

    Whatever keeps it from being measured is told as a notice; it never fails the run.
    """
    run, best = store.run(search.run_id), store.best(search.run_id)
    if best is None or search.target.fidelity is not Fidelity.MEASURED or search.interrupt.stop_requested:
        return None
    try:
        unprofiled = _unprofiled(search, best)
        found = known(store, run, unprofiled.command.framework_version) or _measured(
            search, store, executor, best, unprofiled
        )
    except CclSearchError as error:
        search.observer.notice(f"the profiler's cost is not known: {error.message}")
        return None
    store.set_option(run.id, OPTION, found)
    return found


def of_run(run: RunRecord) -> dict[str, Any] | None:
    """The profiler's cost as a run keeps it: `with_s` and `without_s` seconds a step, `overhead` (0.02 is 2 %)."""
    found = run.options.get(OPTION)
    return found if isinstance(found, dict) else None


def known(store: Store, run: RunRecord, framework_version: str) -> dict[str, Any] | None:
    """The figure of an earlier run on the same target and kind of device, with the same framework version."""
    for other in store.list_runs():
        found = of_run(other)
        if found is not None and _key(found) == (run.target, run.environment.get("gpu_model"), framework_version):
            return found
    return None


def described(cost: dict[str, Any]) -> str:
    """One line for people."""
    with_s, without_s = cost["with_s"], cost["without_s"]
    return (
        f"profiler: a step takes {with_s:.4g} s with it and {without_s:.4g} s without ({cost['overhead']:+.1%}; "
        f"{cost['framework']}, trial {cost['trial']} of run {cost['run']})"
    )


def _key(cost: dict[str, Any]) -> tuple[Any, ...]:
    return cost.get("target"), cost.get("device"), cost.get("framework")


def _unprofiled(search: Search, best: TrialRecord) -> Unprofiled:
    problem, plan = search.problem, best.parallel_plan()
    if plan is None or best.config is None:
        raise BadInputError("the best trial has no plan", "nothing to do")
    told = search.settings.extras.get("framework") or {}
    return problem.framework.unprofiled(problem.deployment(best.config, plan, told))


def _measured(
    search: Search, store: Store, executor: Executor, best: TrialRecord, unprofiled: Unprofiled
) -> dict[str, Any]:
    """Compare the recorded steps of the best trial with the same steps without a profiler.

    Raises:
        CclSearchError: a budget is spent, the run without a profiler fails, or a log does not tell its steps.
    """
    log = unprofiled.log
    steps = log.steps(_logs(_attempt_folder(store, best)))
    with_s = log.length(steps, log.recorded)
    if with_s is None:
        raise BadInputError(f"the log of trial {best.number} does not tell its steps", "see `step_log` in the docs")
    hours: float | None = 0.0
    without_s = log.length(steps, log.plain)
    if not log.plain:
        execution, folder = _run_plain(search, store, executor, best, unprofiled)
        hours = execution.xpu_hours
        without_s = log.length(log.steps(_logs(folder)), log.recorded)
    if without_s is None:
        raise BadInputError("the log of the run without a profiler does not tell its steps", "see its folder")
    run = store.run(search.run_id)
    return {
        "target": run.target,
        "device": run.environment.get("gpu_model"),
        "framework": unprofiled.command.framework_version,
        "with_s": with_s,
        "without_s": without_s,
        "overhead": with_s / without_s - 1,
        "steps": len(log.recorded),
        "run": run.id,
        "trial": best.number,
        "config": best.config,
        "xpu_hours": hours,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _run_plain(
    search: Search, store: Store, executor: Executor, best: TrialRecord, unprofiled: Unprofiled
) -> tuple[Execution, Path]:
    """The execution without a profiler, and the folder of its logs.

    Raises:
        BadInputError: there is no room for it in the budgets, or it fails.
    """
    _check_budgets(search, store, best)
    job = _job(search, store, best, unprofiled)
    job.directory.mkdir(parents=True, exist_ok=True)
    search.observer.notice("measuring what the profiler costs: the best config runs once without it")
    log = _Attempts()
    execution = executor.execute(job, log)
    if execution.state is not TrialState.SUCCEEDED:
        raise BadInputError(f"the run without a profiler failed ({execution.failure}): {execution.evidence}", "")
    return execution, Path(log.handle["local_dir"])


def _check_budgets(search: Search, store: Store, best: TrialRecord) -> None:
    settings, spent = search.settings, store.totals(search.run_id).known_xpu_hours
    if settings.max_xpu_hours is not None and spent + (best.xpu_hours or 0.0) > settings.max_xpu_hours:
        raise BadInputError("--max-xpu-hours leaves no room for a run without it", "raise it, or --no-profiler-cost")
    if settings.max_seconds is not None and search.progress.seconds >= settings.max_seconds:
        raise BadInputError("--max-minutes leaves no room for a run without it", "raise it, or --no-profiler-cost")


def _job(search: Search, store: Store, best: TrialRecord, unprofiled: Unprofiled) -> Job:
    """The job, under the number that the run's next trial would have: no other job bears its name."""
    plan, problem = best.parallel_plan(), search.problem
    assert plan is not None and best.config is not None
    number = max(trial.number for trial in store.trials(search.run_id)) + 1
    return Job(
        run_id=search.run_id,
        trial=number,
        attempt=1,
        directory=store.trial_dir(search.run_id, best.number).parents[1] / _FOLDER,
        workload=problem.workload,
        environment=problem.environment,
        config=best.config,
        plan=plan,
        script="",
        time_limit_s=search.settings.time_limit_s or _HOUR_S,
        settings=dict(search.settings.extras),
        command=unprofiled.command,
    )


def _attempt_folder(store: Store, trial: TrialRecord) -> Path:
    """The logs of the attempt that succeeded last."""
    for attempt in reversed(store.attempts(trial.run_id, trial.number)):
        if attempt.state is TrialState.SUCCEEDED and attempt.handle and attempt.handle.get("local_dir"):
            return Path(attempt.handle["local_dir"])
    raise BadInputError(f"trial {trial.number} keeps no logs of its run", "nothing to do")


def _logs(folder: Path) -> list[Any]:
    """The lines of the logs of all ranks (or nodes, or workers)."""
    return [lines(path) for path in sorted(folder.rglob("*.out"))]


class _Attempts:
    """An attempt log that keeps the last handle in memory: a run without a profiler is no trial."""

    def __init__(self) -> None:
        self.count, self.handle = 0, Handle()

    def begin(self) -> int:
        self.count += 1
        return self.count

    def submitted(self, attempt: int, handle: Handle) -> None:
        del attempt
        self.handle = handle

    def finished(self, attempt: int, execution: Execution) -> None:
        del attempt, execution
