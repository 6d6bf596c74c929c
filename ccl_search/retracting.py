"""Values that a bad version of a metric tool gave: flagged in the record, and told of wherever a run is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metrics.retraction import Retraction
    from runs.metric import MetricValue
    from runs.store import RunRecord, Store, TrialRecord


def flag(store: Store) -> int:
    """Flag every stored value of a tool version that `metrics.retraction` lists; how many were not flagged before.

    A flagged value stays where it is but counts no more: it is in no view and in no ranking of metrics, and `rescore`
    computes it again from its trace.
    """
    from metrics.registry import names
    from metrics.retraction import retractions

    flagged = 0
    for entry in retractions():
        metrics = names() if entry.metric == "*" else (entry.metric,)
        flagged += sum(store.retract(name, version, entry.reason) for name in metrics for version in entry.versions)
    return flagged


def of_run(store: Store, run_id: str, trials: Sequence[TrialRecord]) -> dict[int, list[dict[str, Any]]]:
    """The retracted values (name, version, value, unit, why) that no other has replaced, by trial."""
    from metrics.retraction import retractions

    found: dict[int, list[dict[str, Any]]] = {}
    flagged, table = store.retracted_values(run_id), retractions()
    for trial in trials:
        stored = [(record.value, record.retracted_reason) for record in flagged.get(trial.number, ())]
        entries = [_entry(value, why) for value, why in stored if value.name not in trial.metrics]
        entries += _unflagged(trial, table) if table else []
        if entries:
            found[trial.number] = entries
    return found


def _unflagged(trial: TrialRecord, table: Sequence[Retraction]) -> list[dict[str, Any]]:
    """Values that the next command that writes will flag: a store may have been opened for reading alone since."""
    from metrics.retraction import retracted

    known = ((value, retracted(value.name, value.version, table)) for value in trial.metrics.values())
    return [_entry(value, entry.reason) for value, entry in known if entry is not None]


def _entry(value: MetricValue, why: str) -> dict[str, Any]:
    return {"name": value.name, "version": value.version, "value": value.value, "unit": value.unit, "retracted": why}


def warnings(store: Store, run: RunRecord, trials: Sequence[TrialRecord]) -> list[str]:
    """One line for every tool version of the objective's metrics whose values are retracted, with what to do."""
    terms = {term.spec.name for term in run.typed_objective().terms}
    counts: dict[tuple[str, str, str], int] = {}
    for entries in of_run(store, run.id, trials).values():
        for entry in entries:
            key = (entry["name"], entry["version"], entry["retracted"])
            counts[key] = counts.get(key, 0) + (entry["name"] in terms)
    return [
        f"{name} {version} is retracted ({why}): scores of {count} trial{'s' if count > 1 else ''} rest on it; "
        f"`ccl-search rescore {run.id} --objective {run.objective['name']}` reads the traces again"
        for (name, version, why), count in counts.items()
        if count
    ]
