"""The README of a published folder: what was searched, how the search went, and how to check and replay it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ccl_search.publishing.curve import CurvePoint
from runs.trial import TrialState

if TYPE_CHECKING:
    from ccl_search.publishing.anonymising import Treatment
    from ccl_search.publishing.entries import Entry
    from runs.objective import Objective
    from runs.store import RunRecord

_EXACT = "ccl-search replay --exact .                    # the search again, config by config, offline\n"
_USE = """## Check it, and use it

```
ccl-search verify .                            # every metric and score again, from the traces
ccl-search import .                            # into your own store, traces restored byte for byte
ccl-search replay . --environment NAME-COUNT   # does the optimum transfer to another cluster?
{exact}```

`policy.py` is the best policy, `card.yaml` the workload card of the search, `manifest.yaml` everything else with the
hash of every file. Each folder under `trials/` is one benchmark entry. Folded traces (`*.folded.gz`) become profiler
files again by `ccl-search import`.
"""


def text(
    run: RunRecord,
    entries: list[Entry],
    best: Entry | None,
    objective: Objective,
    treatment: Treatment,
    curve: Sequence[CurvePoint],
) -> str:
    """The whole page, in Markdown."""
    workload, environment = run.workload, run.environment
    title = (
        f"{workload.get('model_family', 'a model')} {workload.get('phase', '')} on "
        f"{environment.get('total_gpus', '?')} x {environment.get('gpu_model', 'devices')} with {run.framework}"
    )
    parts = [
        f"# {title}\n",
        f"A search by `{run.proposer}` for **{objective.name}** (a higher score is better), {len(entries)} trials, "
        f"target `{run.target}`.\n",
        *_constraints(run),
        _best(best, treatment),
        "## Search curve\n",
        "![score by trial](curve.svg)\n",
        _table(entries, curve),
        *_front(entries, objective),
        *_statement(treatment.statement()),
        _USE.format(exact="" if treatment.options.perturb else _EXACT),
    ]
    return treatment.text("\n".join(parts))


def _constraints(run: RunRecord) -> list[str]:
    texts = run.options.get("settings", {}).get("constraints") or ()
    return [f"Within {', '.join(f'`{text}`' for text in texts)}: what breaks one has no score.\n"] if texts else []


def _best(best: Entry | None, treatment: Treatment) -> str:
    if best is None:
        return "No trial succeeded within every constraint.\n"
    reason = treatment.prose(best.trial.rationale) or "none given"
    return f"Best: trial {best.number}, score {best.score:.6g}: `{_config(best.trial.config)}`\n\nWhy: {reason}\n"


def _table(entries: list[Entry], curve: Sequence[CurvePoint]) -> str:
    rows = ["| trial | outcome | score | best so far | devices | config |", "|---|---|---|---|---|---|"]
    for entry, point in zip(entries, curve, strict=True):
        trial = entry.trial
        cells = (
            str(entry.number), _outcome(entry), _number(point.score), _number(point.best), _whole(trial.num_xpus),
            f"`{_config(trial.config)}`",
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _outcome(entry: Entry) -> str:
    """The failure's class, or the state; of a trial that ran but has no score, what is wrong with it."""
    trial = entry.trial
    if trial.failure is not None:
        return trial.failure.value
    if trial.state is TrialState.SUCCEEDED and entry.score is None:
        return "breaks a constraint" if trial.evidence.startswith("infeasible:") else "not scored"
    return trial.state.value


def _front(entries: list[Entry], objective: Objective) -> list[str]:
    """The trials no other trial beats on every metric of a composite objective."""
    from ccl_search.pareto.front import MAX_AXES, MIN_AXES, Point, front

    axes = [term.spec for term in objective.terms]
    if not MIN_AXES <= len(axes) <= MAX_AXES:
        return []
    points = [
        Point(entry.number, tuple(entry.values[spec.name] for spec in axes))
        for entry in entries
        if entry.score is not None and all(spec.name in entry.values for spec in axes)
    ]
    heads = [f"{spec.name} ({spec.unit})" if spec.unit else spec.name for spec in axes]
    rows = [f"| trial | {' | '.join(heads)} |", "|---|" + "---|" * len(axes)]
    rows += [f"| {p.trial} | {' | '.join(map(_number, p.values))} |" for p in front(points, axes)]
    return ["## Front\n", "\n".join(rows) + "\n"]


def _statement(statement: dict[str, Any] | None) -> list[str]:
    if statement is None:
        return []
    return ["## What was anonymised\n", "\n".join(f"- {line}" for line in statement["done"]) + "\n"]


def _config(config: dict[str, Any] | None) -> str:
    return " ".join(f"{key}={value}" for key, value in config.items()) if config else "none"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _whole(value: int | None) -> str:
    return "" if value is None else str(value)
