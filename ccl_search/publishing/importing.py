"""Importing a published search into the store: everything in one transaction, or nothing.

Before anything is written the whole folder is verified. Traces are restored byte for byte. The run has the kind
`imported` and can be shown, compared, exported and replayed as one's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search.publishing import opening, packing, transcript
from ccl_search.publishing.opening import PublishedTrial
from ccl_search.publishing.staging import KIND, ORIGIN, place, staged
from ccl_search.publishing.verifying import Verification, verify
from ccl_search.publishing.writing import CONFIG, EXECUTION, METRICS, SCRIPT, SEED_POLICY
from policies.reading import CARD, MANIFEST, POLICY, Published
from policies.unpacking import list_files, unpacked
from runs.digests import file_sha256
from runs.errors import BadInputError, UnverifiableError
from runs.objective import Objective
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from runs.store import RunStatus, Store, TraceFile

_COPIED = (CARD, POLICY, CONFIG, SCRIPT, METRICS, EXECUTION)
_AT_PROPOSAL = (FailureClass.POLICY_ERROR, FailureClass.PROPOSAL_FAILED)


def import_from(store: Store, path: Path) -> list[str]:
    """Import what is at `path`: a published folder, a benchmark entry, a folder of entries, or an archive of those.

    The ids of the new runs; entries of the same workload, environment and framework become trials of one run.

    Raises:
        BadInputError: it is hostile, none of these, or of another schema version, or was imported before.
        MismatchError: a published value is not what its evidence gives.
        UnverifiableError: a trace that should be there is missing.
    """
    from ccl_search.publishing import benchmark
    from policies.reading import read_published

    with unpacked(path) as root:
        if MANIFEST in list_files(root):
            return [import_published(store, read_published(root, path.name))]
        return benchmark.import_entries(store, root, path.name)


def import_published(store: Store, published: Published, check: bool = True) -> str:
    """Import an open published folder; the new run's id. Without `check` nothing is verified.

    Raises:
        as `import_from`.
    """
    digest = manifest_sha256(published)
    known = find_imported(store, digest)
    if known is not None:
        raise BadInputError(f"{published.name} was imported before, as run {known}", f"`ccl-search show {known}`")
    verification = _verified(published) if check else None
    trials = opening.trials(published)
    with staged(store) as staging:
        for trial in trials:
            _stage(published, trial, staging / str(trial.number))
        with store.transaction():
            run_id = _add(store, published, trials, digest, verification, staging)
            place(store, staging, run_id)
    return run_id


def manifest_sha256(published: Published) -> str:
    """What tells one published folder from all others."""
    return file_sha256(published.root / MANIFEST)


def find_imported(store: Store, digest: str) -> str | None:
    """The run that was imported from the folder whose manifest has this SHA-256."""
    runs = store.list_runs(kind=KIND)
    return next((run.id for run in runs if run.options.get(ORIGIN, {}).get("manifest_sha256") == digest), None)


def _verified(published: Published) -> Verification:
    found = verify(published)
    if found.status == "mismatch":
        found.require()
    unlisted = [finding for finding in found.findings if finding.what == "is missing"]
    if unlisted:
        raise UnverifiableError(
            f"{unlisted[0].file} is missing although {MANIFEST} lists it", "get the folder again, with its traces"
        )
    return found


def _stage(published: Published, trial: PublishedTrial, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in _COPIED:
        if f"{trial.folder}/{name}" in published.files:
            shutil.copyfile(published.root / trial.folder / name, folder / name)
    for packed in trial.traces:
        if packed.file is not None:
            packing.unpack(packed, published.root / trial.folder, folder, zip_again=True)


def _add(
    store: Store,
    published: Published,
    trials: list[PublishedTrial],
    digest: str,
    verification: Verification | None,
    staging: Path,
) -> str:
    objective = opening.objective(published.manifest)
    run_id = store.create_run(_new_run(published, objective, digest, verification))
    calls = _add_calls(store, published, run_id)
    for trial in trials:
        _add_trial(store, run_id, trial, calls.get(trial.number, ()), objective, staging / str(trial.number))
    store.finish_run(run_id, _status(published), str(published.manifest["run"].get("stop_reason") or ""))
    return run_id


def _new_run(published: Published, objective: Objective, digest: str, verification: Verification | None) -> Any:
    from runs.store import NewRun

    manifest = published.manifest
    proposer, target, space = manifest["proposer"], manifest["target"], published.space()
    seed = proposer.get("seed")
    origin = {
        "run_id": manifest["run"].get("id"),
        "name": published.name,
        "manifest_sha256": digest,
        "verified": None if verification is None else verification.status,
        "anonymised": manifest.get("anonymised"),
        "best": published.best,
    }
    return NewRun(
        card=published.read_text(CARD),
        workload={**manifest["workload"], "config_space": [knob.as_dict() for knob in space.knobs]},
        environment=manifest["environment"],
        framework=str(manifest["framework"].get("name")),
        space=space,
        objective=objective,
        metrics=opening.metric_specs(manifest),
        target=str(target.get("name")),
        target_settings=target.get("settings") or {},
        proposer=str(proposer.get("name")),
        model=proposer.get("model"),
        sandbox=str(proposer.get("sandbox") or ""),
        seed=seed if type(seed) is int else None,
        budgets=manifest["budgets"],
        tool_versions=dict(manifest["versions"].get("metrics") or {}),
        product_version=str(manifest["versions"].get("ccl_search") or ""),
        options={"settings": manifest["settings"], "seed_policy": _seed_policy(published), ORIGIN: origin},
        notes=str(manifest["run"].get("notes") or ""),
        kind=KIND,
    )


def _seed_policy(published: Published) -> str:
    return published.read_text(SEED_POLICY) if SEED_POLICY in published.files else ""


def _status(published: Published) -> RunStatus:
    """A search that was still open when it was published cannot go on here: its target is another's."""
    from runs.store import RunStatus

    told = published.manifest["run"].get("status")
    known = {status.value for status in RunStatus} - {RunStatus.RUNNING.value, RunStatus.INTERRUPTED.value}
    return RunStatus(told) if told in known else RunStatus.FINISHED


def _add_calls(store: Store, published: Published, run_id: str) -> dict[int, tuple[int, ...]]:
    """The ids of the LLM calls by the trial they led to."""
    if transcript.TRANSCRIPT not in published.files:
        return {}
    found: dict[int, tuple[int, ...]] = {}
    for request, outcome, attempts, trial in transcript.read(published.root / transcript.TRANSCRIPT):
        call = store.ledger.adopt(replace(request, run_id=run_id), outcome, attempts)
        if trial is not None:
            found[trial] = (*found.get(trial, ()), call)
    for name in published.files:
        if name.startswith("prompts/"):
            store.add_prompt(published.read_text(name))
    return found


def _add_trial(
    store: Store, run_id: str, trial: PublishedTrial, calls: tuple[int, ...], objective: Objective, folder: Path
) -> None:
    from runs.store import NewTrial

    refused = trial.plan is None and (trial.state is TrialState.PRUNED or trial.failure in _AT_PROPOSAL)
    seconds = trial.data.get("seconds")
    number = store.add_trial(
        run_id,
        NewTrial(
            iteration=trial.iteration,
            policy_source=trial.policy_source or None,
            config=trial.config,
            rationale=str(trial.data["rationale"]),
            llm_calls=calls,
            state=trial.state if refused else TrialState.QUEUED,
            failure=trial.failure if refused else None,
            evidence=str(trial.data["evidence"]),
            plan=trial.plan,
            num_xpus=trial.data["num_xpus"],
            proposer_seconds=_seconds(seconds, "proposer"),
            proposed=_moment(trial.data.get("proposed")),
        ),
    )
    if number != trial.number:
        raise BadInputError(f"{trial.folder}: there is no trial {number} before it", "get the folder again")
    if not refused:
        store.prepare_trial(run_id, number, card=trial.card, script=trial.script)
        _finish(store, run_id, trial, objective, folder)


def _finish(store: Store, run_id: str, trial: PublishedTrial, objective: Objective, folder: Path) -> None:
    from runs.store import Timings, TrialOutcome

    seconds: Any = trial.data.get("seconds")
    hours: Any = trial.data.get("xpu_hours")
    timings = Timings(**{kind: _seconds(seconds, kind) for kind in ("proposer", "launch", "metrics", "overhead")})
    outcome = TrialOutcome(
        state=trial.state,
        failure=trial.failure,
        evidence=str(trial.data["evidence"]),
        metrics=tuple(trial.metrics.values()),
        score=trial.score,
        objective=objective,
        fidelity=trial.fidelity,
        backend=trial.data["backend"],
        provenance=trial.data["provenance"],
        timings=timings,
        xpu_hours=float(hours) if type(hours) in (int, float) else None,
        traces=tuple(_trace(run_id, trial.number, packed, folder) for packed in trial.traces),
        finished=_moment(trial.data.get("finished")),
    )
    store.finish_trial(run_id, trial.number, outcome)


def _trace(run_id: str, number: int, packed: packing.PackedFile, folder: Path) -> TraceFile:
    from runs.store import TraceFile

    kept = packed.file is not None
    path = f"runs/{run_id}/trials/{number}/{packed.path}"
    if not kept:
        return TraceFile(path, packed.size, packed.sha256, False, "only its hash was published")
    place = folder / packed.path
    return TraceFile(path, place.stat().st_size, file_sha256(place))


def _seconds(seconds: Any, kind: str) -> float | None:
    value: Any = seconds.get(kind) if isinstance(seconds, Mapping) else None
    return float(value) if type(value) in (int, float) else None


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
