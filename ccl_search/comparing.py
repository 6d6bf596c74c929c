"""Comparing runs: first whether they do the same work, then how fast, how cheap and how soon.

Runs whose work differs are never ranked: a step over one sequence is not faster than a step over thirty-two. Measured
and simulated results, results of two simulators, and perturbed ones are ranked each among themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccl_search import repeats
from runs.trial import TrialState

if TYPE_CHECKING:
    from runs.store import RunRecord, Store, TrialRecord

WORK = ("model_family", "phase", "precision", "batch_size", "seq_len", "input_len", "output_len")
"""Facts of a workload that fix the work of a step: all must be equal, or unset in all runs."""
SHAPE = (
    "num_layers", "hidden_size", "num_heads", "num_kv_heads", "intermediate_size", "moe_intermediate_size",
    "num_experts", "num_experts_per_tok", "num_shared_experts", "vocab_size", "num_params", "num_active_params",
)  # fmt: skip
"""Facts of the model's shape: equal wherever two runs know them."""
RANKED_BY = ("avg_step_time", "tpot", "ttft")
"""The first of these that every best trial of a group has ranks the group; all are times, lower is better."""


def differences(runs: Sequence[RunRecord]) -> list[str]:
    """How the work of the runs differs, one line a fact; empty when it is the same."""
    found = []
    for key in (*WORK, *SHAPE):
        values = {run.id: run.workload.get(key) for run in runs}
        known = {name: value for name, value in values.items() if value is not None}
        compared = values if key in WORK else known
        if len({repr(value) for value in compared.values()}) > 1:
            found.append(f"{key} is {', '.join(f'{value} in {name}' for name, value in compared.items())}")
    return found


def compare(store: Store, references: Sequence[str]) -> dict[str, Any]:
    """The runs side by side, and rankings where there may be some.

    `refused` says why runs are not ranked (empty when they are); `groups` then has one ranking for each kind of
    result. Times in seconds, money in US dollars, None where not known.

    Raises:
        BadInputError: a reference means no run, or several.
    """
    runs = list({run.id: run for run in map(store.run, references)}.values())
    rows = [_row(store, run) for run in runs]
    refused = differences(runs)
    return {
        "work": {} if refused else _work(runs),
        "refused": refused,
        "runs": rows,
        "groups": [] if refused else _groups(rows),
    }


def _work(runs: Sequence[RunRecord]) -> dict[str, Any]:
    return {key: runs[0].workload[key] for key in WORK if key in runs[0].workload}


def _row(store: Store, run: RunRecord) -> dict[str, Any]:
    best = store.best(run.id)
    totals = store.totals(run.id)
    launched = [t for t in store.trials(run.id) if t.state is not TrialState.PRUNED and t.config is not None]
    cost = totals.llm_cost_usd
    return {
        "run_id": run.id,
        "workload": {key: run.workload[key] for key in WORK if key in run.workload},
        "framework": run.framework,
        "framework_version": run.environment.get("framework_version"),
        "environment": {
            "xpu_model": run.environment.get("gpu_model"), "total_xpus": run.environment.get("total_gpus"),
        },
        "proposer": run.proposer,
        "target": run.target,
        "objective": run.objective["name"],
        "perturbed": _is_perturbed(run),
        "trials_launched": len(launched),
        "trials_to_best": sum(trial.number <= best.number for trial in launched) if best else None,
        "llm_cost_usd": None if cost is None else float(cost),
        "search_xpu_hours": totals.xpu_hours,
        "best": _best(best) if best else None,
    }  # fmt: skip


def _is_perturbed(run: RunRecord) -> bool:
    """Whether the run was imported with times that were changed before they were published."""
    from ccl_search.publishing.staging import ORIGIN

    statement = run.options.get(ORIGIN, {}).get("anonymised")
    return isinstance(statement, Mapping) and bool(statement.get("perturbation"))


def _best(trial: TrialRecord) -> dict[str, Any]:
    values = trial.values
    step, xpus = values.get("avg_step_time"), trial.num_xpus
    return {
        "trial": trial.number,
        "config": trial.config,
        "score": trial.score,
        "fidelity": trial.fidelity.value if trial.fidelity else None,
        "backend": trial.backend,
        "calibration": trial.provenance.get("calibration"),
        "num_xpus": xpus,
        **{name: values.get(name) for name in RANKED_BY},
        "spread": {name: repeats.spread(trial.metrics.get(name)) for name in RANKED_BY if name in values},
        "tokens_per_s": values.get("tokens_per_s"),
        "tokens_per_s_per_xpu": values.get("tokens_per_s_per_xpu"),
        "xpu_seconds_per_step": step * xpus if step is not None and xpus else None,
    }


def _groups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One ranking for every kind of result: fidelity, whether times were perturbed, simulator and calibration."""
    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["best"] is not None:
            kind = tuple(row["best"][key] for key in ("fidelity", "backend", "calibration"))
            kinds[*kind, row["perturbed"]].append(row)
    return [_ranking(kind, found) for kind, found in kinds.items()]


def _ranking(kind: tuple[Any, ...], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fidelity, backend, calibration, perturbed = kind
    metric = next((name for name in RANKED_BY if all(row["best"][name] is not None for row in rows)), None)
    ordered = sorted(rows, key=lambda row: row["best"][metric]) if metric else []
    return {
        "fidelity": fidelity,
        "backend": backend,
        "calibration": calibration,
        "perturbed": perturbed,
        "ranked_by": metric,
        "ranking": [
            {
                "run_id": row["run_id"],
                metric: row["best"][metric],
                "ratio_to_fastest": _ratio(row["best"][metric], ordered[0]["best"][metric]),
                "told_apart": row is ordered[0] or not _inside_spread(row["best"], ordered[0]["best"], metric),
            }
            for row in ordered
        ],
    }


def _inside_spread(one: Mapping[str, Any], fastest: Mapping[str, Any], metric: str | None) -> bool:
    """Whether the difference is no larger than the measured spread; False where nothing was measured twice."""
    assert metric is not None
    return repeats.within(one[metric] - fastest[metric], one["spread"].get(metric), fastest["spread"].get(metric))


def _ratio(value: float, fastest: float) -> float | None:
    return value / fastest if fastest else None
