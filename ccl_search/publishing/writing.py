"""`publish`: writing the folder. The same run and the same options give the same bytes, whenever and wherever."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ccl_search.publishing import curve, entries, readme, transcript
from ccl_search.publishing.anonymising import PublishOptions, Treatment
from ccl_search.publishing.entries import Entry, Subject
from ccl_search.publishing.manifest import manifest
from ccl_search.publishing.packing import LARGE_BYTES, PackedFile, pack, pack_large
from policies.program import Policy
from policies.reading import CARD, MANIFEST, POLICY
from runs.digests import file_sha256
from runs.errors import BadInputError
from runs.objective import Objective
from runs.trial import TrialState

if TYPE_CHECKING:
    from runs.store import LlmCallRecord, RunRecord, Store

TRIAL, CONFIG, SCRIPT, METRICS, EXECUTION = "trial.json", "config.json", "script.sh", "metrics.json", "execution.json"
SEED_POLICY, CURVE, README = "seed_policy.py", "curve.svg", "README.md"


@dataclass(frozen=True)
class Publication:
    """What was written: the folder, its files and bytes, the bytes of the traces as recorded, the statement on
    anonymisation (None where nothing was changed)."""

    path: Path
    files: int
    bytes: int
    trace_bytes: int
    trials: int
    statement: dict[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "path": str(self.path)}


@dataclass
class _Folder:
    """The folder while it is written: every file's size and hash as it goes."""

    root: Path
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, name: str, content: str | bytes) -> None:
        data = content.encode("utf-8") if isinstance(content, str) else content
        place = self.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        self.listed[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def take(self, name: str, keep: bool) -> None:
        """A file that was written by somebody else: listed, or removed again."""
        place = self.root / name
        if keep:
            self.listed[name] = {"size": place.stat().st_size, "sha256": file_sha256(place)}
        else:
            place.unlink()

    def put_json(self, name: str, document: Any) -> None:
        self.put(name, json.dumps(document, indent=1, allow_nan=False) + "\n")

    @property
    def size(self) -> int:
        return sum(facts["size"] for facts in self.listed.values())


def publish(store: Store, reference: str, destination: Path, options: PublishOptions | None = None) -> Publication:
    """Write the run that `reference` means to the new folder `destination`.

    Raises:
        BadInputError: there is no such run, it has no trial, it runs at this moment, the folder exists, or the traces
            cannot be anonymised.
        UnverifiableError: a trace file that the store lists is gone.
    """
    run = store.run(reference)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise BadInputError(f"{destination} exists already", "give a new folder")
    found, calls = entries.collect(store, run.id), store.llm_calls(run.id)
    if not found:
        raise BadInputError(f"run {run.id} has no finished trial", "publish a run that has been searched")
    treatment = Treatment.of(options or PublishOptions(), run, found, calls)
    partial = destination.with_name(f".{destination.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        made = _write(_Folder(partial), store, run, found, calls, treatment)
        if destination.exists():
            destination.rmdir()
        partial.replace(destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return replace(made, path=destination)


def _write(
    folder: _Folder,
    store: Store,
    run: RunRecord,
    found: list[Entry],
    calls: list[LlmCallRecord],
    treatment: Treatment,
) -> Publication:
    folder.root.mkdir(parents=True)
    found, objective = treatment.measured(found, run.typed_objective(), subject_of(run.card))
    packed: list[PackedFile] = []
    for entry in found:
        packed += _write_entry(folder, entry, treatment)
    best = best_of(found)
    _write_run(folder, run, found, best, objective, treatment)
    told = treatment.options.transcript and bool(calls) and not treatment.options.perturb
    if told:
        _write_transcript(folder, store, calls, treatment)
    document = manifest(run, found, best, objective, treatment, packed, told)
    document["files"] = dict(sorted(folder.listed.items()))
    folder.put(MANIFEST, yaml_text(document))
    return Publication(
        folder.root, len(folder.listed), folder.size, sum(p.size for p in packed), len(found), treatment.statement()
    )


def best_of(found: list[Entry]) -> Entry | None:
    """The succeeded trial with the highest score, the earlier one of equals; measured ones before simulated ones."""
    scored = [entry for entry in found if entry.score is not None and entry.trial.state is TrialState.SUCCEEDED]
    measured = [entry for entry in scored if entry.trial.fidelity and entry.trial.fidelity.value == "measured"]
    return max(measured or scored, key=lambda entry: (entry.score or 0.0, -entry.number), default=None)


def subject_of(card: str) -> Subject:
    """Workload and environment that a run's card describes."""
    from runs.card import parse_card

    found = parse_card(card, CARD).card
    return Subject(found.workload(), found.environment())


def _write_entry(folder: _Folder, entry: Entry, treatment: Treatment) -> list[PackedFile]:
    """One trial's folder; the facts of its trace files."""
    trial, where = entry.trial, entry.folder
    traces = list(_write_traces(folder, entry, treatment))
    timed = not treatment.options.perturb
    document = treatment.data(entries.document(entry, traces, timed))
    document |= {"rationale": treatment.prose(trial.rationale), "evidence": treatment.prose(trial.evidence)}
    if trial.policy_source:
        source = treatment.program(trial.policy_source)
        folder.put(f"{where}/{POLICY}", source)
        document["policy_sha256"] = Policy(source).sha256
    document["traces"] = [packed.as_dict() for packed in traces]
    folder.put_json(f"{where}/{TRIAL}", document)
    if trial.config is not None:
        folder.put_json(f"{where}/{CONFIG}", trial.config)
    for name, text in ((CARD, _public_card(trial.card, treatment)), (SCRIPT, treatment.text(trial.script))):
        if text:
            folder.put(f"{where}/{name}", text)
    if entry.execution is not None:
        folder.put_json(f"{where}/{EXECUTION}", _public_execution(entry.execution, treatment))
    if entry.metrics:
        folder.put_json(f"{where}/{METRICS}", treatment.data(entries.metrics_document(entry)))
    return traces


def _write_traces(folder: _Folder, entry: Entry, treatment: Treatment) -> Iterator[PackedFile]:
    options, rewriter = treatment.options, treatment.rewriter(entry.number)
    for path, source in sorted(entry.sources.items()):
        if rewriter is None and source.stat().st_size >= LARGE_BYTES:
            facts = pack_large(source, path, folder.root / entry.folder)
            folder.take(f"{entry.folder}/{facts.file}", keep=not options.metrics_only)
        else:
            data = entries.trace_data(source, path, rewriter)
            facts, content = pack(data, path, fold=not options.plain_traces)
            if not options.metrics_only:
                folder.put(f"{entry.folder}/{facts.file}", content)
        yield replace(facts, packing="hash", file=None) if options.metrics_only else facts
    yield from entry.dropped


def _public_card(text: str, treatment: Treatment) -> str:
    """A card as it is published: anonymised ones name neither contributor nor the place of the trace."""
    if not text or treatment.redactor is None:
        return text
    from runs.card import parse_card, to_yaml

    card = parse_card(text, CARD).card
    return treatment.text(to_yaml(card.model_copy(update={"contributor": "", "contact": "", "trace_url": ""})))


def _public_execution(execution: dict[str, Any], treatment: Treatment) -> Any:
    found = entries.timeless(execution) if treatment.options.perturb else execution
    if "evidence" in execution:
        found = {**found, "evidence": treatment.prose(str(execution["evidence"]))}
    return treatment.data(found)


def _write_run(
    folder: _Folder,
    run: RunRecord,
    found: list[Entry],
    best: Entry | None,
    objective: Objective,
    treatment: Treatment,
) -> None:
    folder.put(CARD, _public_card(run.card, treatment))
    if best is not None:
        folder.put(POLICY, treatment.program(best.trial.policy_source))
    seed = run.options.get("seed_policy")
    if seed:
        folder.put(SEED_POLICY, treatment.program(seed))
    line = curve.points([(entry.number, entry.score) for entry in found])
    folder.put(CURVE, curve.svg(line, objective.name))
    folder.put(README, readme.text(run, found, best, objective, treatment, line))


def _write_transcript(folder: _Folder, store: Store, calls: list[LlmCallRecord], treatment: Treatment) -> None:
    folder.put(transcript.TRANSCRIPT, transcript.written([treatment.data(transcript.as_data(call)) for call in calls]))
    for name in sorted({call.request.prompt_hash for call in calls}):
        try:
            text = store.prompt(name)
        except BadInputError:  # a run recorded without its prompts
            continue
        folder.put(f"prompts/{name}.md", treatment.text(text))


class _Dumper(yaml.SafeDumper):
    """Writes values out instead of using aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def yaml_text(document: dict[str, Any]) -> str:
    """A document as YAML in the order it has."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text
