"""One trial on its way into a published folder: its record, its trace files, and what is rewritten of both."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search.portability.spec import NAME as PORTABILITY
from ccl_search.publishing.packing import PackedFile
from runs.errors import UnverifiableError
from runs.metric import MetricValue
from runs.trial import TrialState

if TYPE_CHECKING:
    from ccl_search.measuring import Measurement
    from ccl_search.publishing.rewriting import TraceRewriter
    from runs.environment import Environment
    from runs.plan import ParallelPlan
    from runs.store import Store, TrialRecord
    from runs.workload import Workload

EXECUTION = "execution.json"
_TIMELESS = (
    "backend", "version", "calibration", "decode_steps", "recorded_steps", "warmup_steps", "failure", "memory",
    "provenance",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A trial to be published. `metrics` and `score` are those of the traces as they are published.

    `sources` maps the paths of trace files, relative to the trial's folder, to where they lie; `execution` is the
    content of `execution.json`, None where the trial has none. `dropped` are the facts of traces that were not kept,
    where none was: they are published as hashes.
    """

    trial: TrialRecord
    metrics: dict[str, MetricValue]
    score: float | None
    sources: dict[str, Path] = field(default_factory=dict)
    execution: dict[str, Any] | None = None
    dropped: tuple[PackedFile, ...] = ()

    @property
    def number(self) -> int:
        """The trial's number."""
        return self.trial.number

    @property
    def folder(self) -> str:
        """The entry's folder in the published one."""
        return folder_of(self.number)

    @property
    def values(self) -> dict[str, float]:
        """The metrics that have a value."""
        return {name: found.value for name, found in self.metrics.items() if found.value is not None}


def folder_of(number: int) -> str:
    """`trials/07` for trial 7."""
    return f"trials/{number:02d}"


def collect(store: Store, run_id: str) -> list[Entry]:
    """The run's trials in order, with the places of their trace files.

    Raises:
        UnverifiableError: a trace file that the store lists is gone.
    """
    return [_entry(store, trial) for trial in store.trials(run_id) if trial.state.is_finished]


def _entry(store: Store, trial: TrialRecord) -> Entry:
    directory = store.trial_dir(trial.run_id, trial.number)
    sources: dict[str, Path] = {}
    dropped: list[PackedFile] = []
    for found in store.trace_files(trial.run_id, trial.number):
        place = store.home / found.path
        if found.kept and not place.is_file():
            raise UnverifiableError(
                f"trial {trial.number}: the trace {found.path} is gone", "restore it; a trial is its evidence"
            )
        if found.kept:
            sources[place.relative_to(directory).as_posix()] = place
        else:
            path = place.relative_to(directory).as_posix()
            dropped.append(PackedFile(path, found.size, found.sha256, "hash"))
    execution = _execution(directory / EXECUTION)
    return Entry(trial, dict(trial.metrics), trial.score, sources, execution, () if sources else tuple(dropped))


def _execution(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def timeless(execution: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `execution.json` without any time in it."""
    return {key: value for key, value in execution.items() if key in _TIMELESS}


def trace_data(source: Path, path: str, rewriter: TraceRewriter | None) -> bytes:
    """The content of a trace file as it is published."""
    data = source.read_bytes()
    return data if rewriter is None else rewriter.rewritten(data, path)


def remeasured(entry: Entry, rewriter: TraceRewriter, subject: Subject) -> Entry:
    """The entry with its metrics computed from its rewritten traces, and no score yet.

    Without a trace it has no metrics either: values of a trace as it was say what rewriting it should hide.
    """
    if entry.trial.state is not TrialState.SUCCEEDED:
        return replace(entry, metrics={}, score=None)
    plan = entry.trial.parallel_plan()
    if plan is None or not entry.sources:
        return replace(entry, metrics={}, score=None)
    with tempfile.TemporaryDirectory(prefix="ccl-search-") as place:
        for path, source in entry.sources.items():
            target = Path(place) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(trace_data(source, path, rewriter))
        measurement = measured(Path(place), subject, plan)
    of_policies = {name: value for name, value in entry.metrics.items() if name == PORTABILITY}
    return replace(entry, metrics={**measurement.values, **of_policies}, score=None)


@dataclass(frozen=True)
class Subject:
    """What metrics need to know beside the trace and the plan."""

    workload: Workload
    environment: Environment


def measured(directory: Path, subject: Subject, plan: ParallelPlan) -> Measurement:
    """All metrics of a trial's folder: of its `trace`, or the mean over its repeats where there are several."""
    from ccl_search import measuring, repeats

    places = [directory / "trace", *sorted((directory / "repeats").glob("*/trace"), key=_repeat)]
    about: Any = subject
    return repeats.mean([measuring.measure(place, about, plan) for place in places])


def _repeat(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name) if name.isdigit() else 0, name)


def document(entry: Entry, traces: list[PackedFile], timed: bool) -> dict[str, Any]:
    """The content of `trial.json`. Without `timed` nothing in it tells how long anything took."""
    trial = entry.trial
    found: dict[str, Any] = {
        "number": trial.number,
        "iteration": trial.iteration,
        "state": trial.state.value,
        "failure": trial.failure.value if trial.failure else None,
        "evidence": trial.evidence,
        "config": trial.config,
        "rationale": trial.rationale,
        "score": entry.score,
        "plan": trial.plan,
        "num_xpus": trial.num_xpus,
        "fidelity": trial.fidelity.value if trial.fidelity else None,
        "backend": trial.backend,
        "provenance": trial.provenance,
        "policy_sha256": trial.policy_id,
        "traces": [packed.as_dict() for packed in traces],
    }
    if timed:
        found |= {
            "proposed": trial.proposed.isoformat(),
            "finished": trial.finished.isoformat() if trial.finished else None,
            "seconds": vars(trial.timings),
            "xpu_hours": trial.xpu_hours,
        }
    return found


def metrics_document(entry: Entry) -> dict[str, Any]:
    """The content of `metrics.json`."""
    return {"score": entry.score, "metrics": {name: found.as_dict() for name, found in entry.metrics.items()}}
