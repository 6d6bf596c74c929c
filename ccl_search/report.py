"""What is said of a run: summaries as plain data, and the lines a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from runs.errors import BudgetExhaustedError, CclSearchError
from runs.trial import TrialState

if TYPE_CHECKING:
    from ccl_search.pareto.of_run import RunFront
    from runs.store import RunRecord, Store, TrialRecord


def run_summary(store: Store, run_id: str, seconds: float | None = None) -> dict[str, Any]:
    """The one object of `run --json`. `cost_usd` is None where a part of it is unknown."""
    from ccl_search import constraints, profiler_cost, repeats, retracting
    from ccl_search.screening import report as screening

    run = store.run(run_id)
    totals = store.totals(run.id)
    best = store.best(run.id)
    objective, trials = run.typed_objective(), store.trials(run.id)
    front = _front(store, run)
    return {
        "run_id": run.id,
        "status": run.status.value,
        "stop_reason": run.stop_reason,
        "proposer": run.proposer,
        "target": run.target,
        "backend": best.backend if best else None,
        "fidelity": best.fidelity.value if best and best.fidelity else None,
        "objective": run.objective["name"],
        "best": best_summary(store, best) if best else None,
        "ties": repeats.ties(best, trials, objective) if best else [],
        "front": None if front is None else [point.trial for point in front.members],
        "constraints": list(run.options.get("settings", {}).get("constraints") or ()),
        "limits": [limit.text for limit in constraints.limits_of(run)],
        "infeasible": _infeasible(run, trials),
        "warnings": [*repeats.warnings(run, best), *retracting.warnings(store, run, trials)],
        "screen": screening.of_run(store, run),
        "profiler_cost": profiler_cost.of_run(run),
        "trials": sum(totals.trials.values()),
        "failed": totals.trials.get(TrialState.FAILED, 0),
        "pruned": totals.trials.get(TrialState.PRUNED, 0),
        "cost_usd": _money(totals.llm_cost_usd),
        "xpu_hours": totals.xpu_hours,
        "seconds": seconds if seconds is not None else _duration(run),
    }


def _front(store: Store, run: RunRecord) -> RunFront | None:
    """The front of a run whose objective has one."""
    from ccl_search.pareto.front import MAX_AXES, MIN_AXES
    from ccl_search.pareto.of_run import of_run

    return of_run(store, run.id) if MIN_AXES <= len(run.objective["terms"]) <= MAX_AXES else None


def _infeasible(run: RunRecord, trials: Sequence[TrialRecord]) -> int:
    """How many trials ran but break a limit."""
    from ccl_search import constraints

    limits = constraints.limits_of(run)
    succeeded = [trial for trial in trials if trial.state is TrialState.SUCCEEDED]
    return sum(bool(constraints.violations(limits, trial.metrics)) for trial in succeeded)


def best_summary(store: Store, trial: TrialRecord) -> dict[str, Any]:
    """A trial as `best` shows it, with the path of its policy."""
    policy = store.trial_dir(trial.run_id, trial.number) / "policy.py"
    return {
        "trial": trial.number,
        "config": trial.config,
        "score": trial.score,
        "metrics": trial.values,
        "spread": _spreads(trial),
        "policy_path": str(policy),
    }


def _spreads(trial: TrialRecord) -> dict[str, float] | None:
    """Largest minus smallest over the repeats of each metric; None where the config was measured once."""
    from ccl_search import repeats

    found = {name: repeats.spread(value) for name, value in trial.metrics.items()}
    return {name: width for name, width in found.items() if width is not None} or None


def trial_row(trial: TrialRecord) -> dict[str, Any]:
    """A trial as one line of `show`."""
    return {
        "trial": trial.number,
        "iteration": trial.iteration,
        "state": trial.state.value,
        "failure": trial.failure.value if trial.failure else None,
        "config": trial.config,
        "score": trial.score,
        "num_xpus": trial.num_xpus,
        "avg_step_time": trial.values.get("avg_step_time"),
        "evidence": trial.evidence or None,
    }


def trial_detail(store: Store, trial: TrialRecord) -> dict[str, Any]:
    """Everything kept of a trial."""
    from ccl_search import retracting

    return {
        **trial_row(trial),
        "run_id": trial.run_id,
        "evidence": trial.evidence or None,
        "rationale": trial.rationale or None,
        "plan": trial.plan,
        "metrics": {name: value.as_dict() for name, value in trial.metrics.items()},
        "retracted": retracting.of_run(store, trial.run_id, [trial]).get(trial.number, []),
        "fidelity": trial.fidelity.value if trial.fidelity else None,
        "backend": trial.backend,
        "provenance": trial.provenance,
        "screening": _screening(store, trial),
        "seconds": vars(trial.timings),
        "xpu_hours": trial.xpu_hours,
        "policy_sha256": trial.policy_id,
        "policy": trial.policy_source,
        "card": trial.card,
        "script": trial.script,
        "directory": str(store.trial_dir(trial.run_id, trial.number)),
        "trace_files": [vars(found) for found in store.trace_files(trial.run_id, trial.number)],
        "attempts": [_attempt(found) for found in store.attempts(trial.run_id, trial.number)],
        "llm_calls": [_call(c) for c in store.llm_calls(trial.run_id) if c.trial == trial.number],
    }


def _screening(store: Store, trial: TrialRecord) -> dict[str, Any] | None:
    """What a screen said of a trial's proposal; None where none looked."""
    found = store.screenings(trial.run_id).get(trial.number)
    return None if found is None else vars(found)


def run_row(store: Store, run: RunRecord) -> dict[str, Any]:
    """A run as one line of `list`."""
    best = store.best(run.id)
    return {
        "id": run.id,
        "created": run.created.isoformat(),
        "kind": run.kind,
        "status": run.status.value,
        "workload": run.workload.get("model_family"),
        "phase": run.workload.get("phase"),
        "framework": run.framework,
        "xpus": run.environment.get("total_gpus"),
        "proposer": run.proposer,
        "target": run.target,
        "objective": run.objective["name"],
        "trials": sum(store.totals(run.id).trials.values()),
        "best_score": best.score if best else None,
        "best_trial": best.number if best else None,
    }


def closing_lines(summary: dict[str, Any]) -> str:
    """What a person reads when a run has ended."""
    best = summary["best"]
    counts = f"{_trials(summary['trials'])}, {summary['failed']} failed, {summary['pruned']} refused before launch"
    if best is None and summary["infeasible"]:
        bounds = " and ".join(summary["limits"])
        return f"run {summary['run_id']}: {counts}; {summary['infeasible']} ran, none of them within {bounds}"
    if best is None:
        return f"run {summary['run_id']}: {counts}; no trial succeeded"
    said = "".join(f"{line}\n" for line in _remarks(summary))
    config = " ".join(f"{key}={value}" for key, value in best["config"].items())
    step = best["metrics"].get("avg_step_time")
    shown = f", step time {step:.4g} s ({summary['fidelity']})" if step is not None else ""
    return (
        f"best trial {best['trial']}: {config}\n"
        f"     score {best['score']:.6g} ({summary['objective']}){shown}\n"
        f"     policy {best['policy_path']}\n"
        f"{said}"
        f"run {summary['run_id']}: {counts}{_took(summary['seconds'])}; `ccl-search show {summary['run_id']}`"
    )


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"


def _took(seconds: float | None) -> str:
    """How long it took; nothing for a run that has not ended."""
    return "" if seconds is None else f", {seconds:.1f} s"


def _remarks(summary: dict[str, Any]) -> list[str]:
    """Lines on ties, front, constraints and noise, where there is something to say."""
    from ccl_search import profiler_cost

    found = []
    if summary["profiler_cost"] is not None:
        found.append(f"     {profiler_cost.described(summary['profiler_cost'])}")
    if summary["ties"]:
        names = ", ".join(map(str, summary["ties"]))
        found.append(f"     not told apart from trial {names}: the difference is inside the measured spread")
    if summary["screen"] is not None:
        from ccl_search.screening.report import lines

        found.extend(lines(summary["screen"]))
    if summary["front"] is not None:
        names = ", ".join(map(str, summary["front"]))
        found.append(f"on the Pareto front: trial {names}; `ccl-search pareto {summary['run_id']}`")
    if summary["infeasible"]:
        bounds = " or ".join(summary["limits"])
        many = summary["infeasible"] > 1
        told = f"{summary['infeasible']} trial{'s' if many else ''} ran but break{'' if many else 's'} {bounds}"
        found.append(f"{told}; {'they are no candidates' if many else 'it is no candidate'}")
    return [*found, *(f"warning: {text}" for text in summary["warnings"])]


def no_result(summary: dict[str, Any]) -> CclSearchError:
    """The error of a run without any result."""
    return BudgetExhaustedError(
        f"run {summary['run_id']} ended without a result: {summary['stop_reason'] or summary['status']}",
        f"`ccl-search show {summary['run_id']}` lists every trial and why it failed",
    )


def _attempt(found: Any) -> dict[str, Any]:
    return {
        "attempt": found.number,
        "state": found.state.value,
        "failure": found.failure.value if found.failure else None,
        "evidence": found.evidence or None,
        "seconds": found.seconds,
    }


def _call(call: Any) -> dict[str, Any]:
    outcome = call.outcome
    return {
        "id": call.id,
        "model": call.request.model,
        "purpose": call.request.purpose,
        "turn": call.request.turn,
        "stop_reason": outcome.stop_reason if outcome else None,
        "input_tokens": outcome.input_tokens if outcome else None,
        "output_tokens": outcome.output_tokens if outcome else None,
        "cost_usd": _money(outcome.cost_usd) if outcome else None,
    }


def _money(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _duration(run: RunRecord) -> float | None:
    return (run.finished - run.created).total_seconds() if run.finished else None
