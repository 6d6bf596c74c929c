"""The manifest of a published folder, all but the list of its files."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from policies.program import Policy
from policies.reading import SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from ccl_search.publishing.anonymising import Treatment
    from ccl_search.publishing.entries import Entry
    from ccl_search.publishing.packing import PackedFile
    from runs.objective import Objective
    from runs.store import RunRecord

_OF_THIS_MACHINE = ("replay_llm", "prices")
_PACKINGS = {
    "folded": "gzip of a folded trace: distinct lines, their order, and columns of numbers; `ccl-search import` "
    "restores the profiler's file byte for byte",
    "gzip": "gzip of the profiler's file",
    "plain": "the profiler's file",
    "hash": "not published, only size and SHA-256",
}


def manifest(
    run: RunRecord,
    entries: list[Entry],
    best: Entry | None,
    objective: Objective,
    treatment: Treatment,
    packed: list[PackedFile],
    transcript: bool,
) -> dict[str, Any]:
    """The document, in the order in which people read it."""
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        **_about_run(run),
        "best": None if best is None else _best(best, treatment),
        "objective": objective.as_dict(),
        **_subject(run),
        **_means(run, entries),
        "trials": {"total": len(entries), **_counts(entries)},
        "evidence": {
            "traces": _traces(packed),
            "recorded_bytes": sum(found.size for found in packed),
            "packings": {kind: _PACKINGS[kind] for kind in sorted({found.packing for found in packed})},
            "transcript": transcript,
        },
        "versions": {"ccl_search": run.product_version, "metrics": run.tool_versions},
        "space": run.space,
        "metrics": run.metrics,
    }
    document = treatment.data(document)
    document["anonymised"] = treatment.statement()
    plain: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    return plain


def _about_run(run: RunRecord) -> dict[str, Any]:
    told = {
        "id": run.id,
        "kind": run.kind,
        "created": run.created.isoformat(),
        "status": run.status.value,
        "stop_reason": run.stop_reason,
        "notes": run.notes,
    }
    return {"run": told}


def _subject(run: RunRecord) -> dict[str, Any]:
    return {
        "workload": {key: value for key, value in run.workload.items() if key != "config_space"},
        "environment": run.environment,
        "framework": {"name": run.framework, "version": str(run.environment.get("framework_version", ""))},
    }


def _means(run: RunRecord, entries: list[Entry]) -> dict[str, Any]:
    """What searched, where its trials ran, and within which bounds."""
    return {
        "target": {
            "name": run.target,
            "settings": run.target_settings,
            "fidelity": sorted({entry.trial.fidelity.value for entry in entries if entry.trial.fidelity}),
            "backends": sorted({entry.trial.backend for entry in entries if entry.trial.backend}),
        },
        "proposer": {"name": run.proposer, "model": run.model, "sandbox": run.sandbox, "seed": run.seed},
        "budgets": run.budgets,
        "settings": {k: v for k, v in run.options.get("settings", {}).items() if k not in _OF_THIS_MACHINE},
    }


def _best(best: Entry, treatment: Treatment) -> dict[str, Any]:
    source = treatment.program(best.trial.policy_source)
    return {
        "trial": best.number,
        "score": best.score,
        "config": best.trial.config,
        "policy_sha256": Policy(source).sha256,
        "rationale": treatment.prose(best.trial.rationale),
    }


def _counts(entries: list[Entry]) -> dict[str, int]:
    return dict(sorted(Counter(entry.trial.state.value for entry in entries).items()))


def _traces(packed: list[PackedFile]) -> str:
    if not packed:
        return "none"
    return "hashes" if all(found.packing == "hash" for found in packed) else "full"
