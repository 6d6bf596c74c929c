"""CCL-Bench entries as other people contribute them: a folder with a workload card, a launch script and traces.

Names differ from contributor to contributor. The card is `card.yaml`, or the only YAML file that is a workload card;
the script is `script.sh`, `run.sh`, or the only shell script; the traces are the folder `trace` or `traces`, or
whatever files beside the card are traces.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search.publishing.staging import KIND, ORIGIN, place, staged
from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.space import ConfigSpace, Knob
from runs.trial import Fidelity, TrialState

if TYPE_CHECKING:
    from runs.card import WorkloadCard
    from runs.objective import Objective
    from runs.store import Store

_CARD = "card.yaml"
_SCRIPTS = ("script.sh", "run.sh")
_TRACES = ("trace", "traces")
_DEGREES = ("tp", "cp", "pp", "dp", "ep")
_PEEK = 1 << 18
_SIMULATED = re.compile(rb'"simulated"\s*:\s*\{')


@dataclass(frozen=True)
class BenchmarkEntry:
    """An entry as it was found: its folder, its card and the card's text, script, traces and metric values."""

    folder: Path
    name: str
    card: WorkloadCard
    text: str
    script: str
    traces: tuple[Path, ...]
    trace_root: Path
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.MEASURED
    backend: str | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The parallelism that the card tells, as a config."""
        facts = self.card.normalised()
        found = {key: facts[key] for key in _DEGREES if facts[key] is not None}
        size = self.card.plan.pp_mb
        return found | ({"micro_batch_size": size} if type(size) is int and size > 0 else {})

    @property
    def num_xpus(self) -> int | None:
        """Devices the card tells."""
        total: int | None = self.card.normalised()["total_count"]
        return total

    @property
    def workload(self) -> dict[str, Any]:
        """The workload as a policy would see it, or the little that an incomplete card tells."""
        try:
            return self.card.workload().policy_input()
        except BadInputError:
            return _told(self.card, ("model_family", "phase", "batch_size", "seq_len"))

    @property
    def environment(self) -> dict[str, Any]:
        """The machines as a policy would see them, or the little that an incomplete card tells."""
        try:
            return self.card.environment().policy_input()
        except BadInputError:
            known = _told(self.card, ("xpu_model", "total_count", "count_per_node", "framework_version"))
            names = {"xpu_model": "gpu_model", "total_count": "total_gpus", "count_per_node": "gpus_per_node"}
            return {names.get(key, key): value for key, value in known.items()}

    @property
    def framework(self) -> str:
        """The framework's name, `unknown` where the card has none."""
        return str(self.card.normalised()["framework_name"] or "unknown")


def find_entries(root: Path, name: str) -> list[BenchmarkEntry]:
    """The entries in `root` (itself one, or a folder of them at any depth), in the order of their names, measured.

    Raises:
        BadInputError: there is none, one has no trace, or a trace cannot be read.
    """
    folders = sorted({path.parent for pattern in ("*.yaml", "*.yml") for path in root.rglob(pattern)})
    found = [entry for folder in folders if (entry := _entry(folder, root, name)) is not None]
    if not found:
        raise BadInputError(
            f"{name} holds no published search and no benchmark entry",
            "give a folder with manifest.yaml, or one with a workload card, traces and a script",
        )
    return found


def import_entries(store: Store, root: Path, name: str) -> list[str]:
    """Import every entry below `root`, all or none; the ids of the new runs.

    Raises:
        BadInputError: as `find_entries`.
    """
    groups: dict[str, list[BenchmarkEntry]] = {}
    for entry in find_entries(root, name):
        key = json.dumps([entry.workload, _without_size(entry.environment), entry.framework], sort_keys=True)
        groups.setdefault(key, []).append(entry)
    made: list[str] = []
    try:
        with store.transaction():
            for group in groups.values():
                with staged(store) as staging:
                    for number, entry in enumerate(group):
                        _stage(entry, staging / str(number))
                    made.append(_add_run(store, group, staging, name))
                    place(store, staging, made[-1])
    except BaseException:
        for run_id in made:
            shutil.rmtree(store.home / "runs" / run_id, ignore_errors=True)
        raise
    return made


def _entry(folder: Path, root: Path, name: str) -> BenchmarkEntry | None:
    from metrics.api import compute
    from metrics.facts import CardFacts

    card = _card(folder)
    if card is None:
        return None
    found, text = card
    label = folder.relative_to(root).as_posix() if folder != root else name
    trace_root, traces = _traces(folder, label)
    try:
        values = compute(trace_root, facts=CardFacts.from_card(found))
    except BadInputError as error:
        raise BadInputError(f"entry {label}: {error.message}", error.hint) from error
    backend = _backend(folder, traces)
    fidelity = Fidelity.MEASURED if backend is None else Fidelity.SIMULATED
    return BenchmarkEntry(folder, label, found, text, _script(folder), traces, trace_root, values, fidelity, backend)


def _card(folder: Path) -> tuple[WorkloadCard, str] | None:
    from runs.card import CardError, parse_card

    files = [folder / _CARD] if (folder / _CARD).is_file() else sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
            found.append((parse_card(text, path.name).card, text))
        except (CardError, UnicodeDecodeError) as error:
            if path.name == _CARD:
                raise BadInputError(f"{path.name} in {folder.name} cannot be used: {error}", "mend the card") from error
    if len(found) > 1:
        raise BadInputError(f"{folder.name} holds {len(found)} workload cards", f"name the right one {_CARD}")
    return found[0] if found else None


def _traces(folder: Path, label: str) -> tuple[Path, tuple[Path, ...]]:
    from metrics.traces import discover

    place = next((folder / name for name in _TRACES if (folder / name).is_dir()), folder)
    if place is not folder:
        files = tuple(sorted(path for path in place.rglob("*") if path.is_file()))
    else:
        try:
            files = tuple(found.path for found in discover.find(folder)[0])
        except BadInputError:
            files = ()
    if not files:
        raise BadInputError(f"entry {label} has no trace", "an entry is a card, a script and traces")
    return place, files


def _script(folder: Path) -> str:
    named = [folder / name for name in _SCRIPTS if (folder / name).is_file()]
    found = named or sorted(folder.glob("*.sh"))
    return found[0].read_text(encoding="utf-8", errors="replace") if len(found) == 1 or named else ""


def _backend(folder: Path, traces: tuple[Path, ...]) -> str | None:
    """The simulator behind the entry, None for a measurement: what its `execution.json` or its traces say."""
    from metrics.traces.raw import head_of

    try:
        told = json.loads((folder / "execution.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = {}
    if isinstance(told, dict) and told.get("backend"):
        return str(told["backend"])
    simulated = any(_SIMULATED.search(head_of(path, _PEEK)) for path in traces)
    return "unknown" if simulated else None


def _stage(entry: BenchmarkEntry, target: Path) -> None:
    target.mkdir(parents=True)
    (target / _CARD).write_text(entry.text, encoding="utf-8")
    (target / "script.sh").write_text(entry.script, encoding="utf-8")
    (target / "config.json").write_text(json.dumps(entry.config, indent=2) + "\n", encoding="utf-8")
    for path in entry.traces:
        copy = target / "trace" / path.relative_to(entry.trace_root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    told = entry.folder / "execution.json"
    if told.is_file():
        shutil.copyfile(told, target / "execution.json")


def _add_run(store: Store, group: list[BenchmarkEntry], staging: Path, name: str) -> str:
    from ccl_search.loop import trial_files
    from ccl_search.version import version
    from metrics import registry
    from runs import objective
    from runs.store import NewRun, RunStatus

    goal = objective.build([registry.spec("avg_step_time")], None)
    first = max(group, key=lambda entry: entry.num_xpus or 0)
    run_id = store.create_run(
        NewRun(
            card=first.text,
            workload=first.workload,
            environment=first.environment,
            framework=first.framework,
            space=_space(group),
            objective=goal,
            metrics=tuple(registry.spec(each) for each in registry.BUNDLED),
            target=KIND,
            proposer=KIND,
            product_version=version(),
            options={"settings": {}, "seed_policy": "", ORIGIN: {"name": name, "entries": [e.name for e in group]}},
            kind=KIND,
        )
    )
    for number, entry in enumerate(group):
        score = _score(entry, goal)
        trial_files.write_metrics(staging / str(number), entry.metrics, score)
        _add_trial(store, run_id, number, entry, score, staging / str(number))
    store.finish_run(run_id, RunStatus.FINISHED, f"imported from {name}")
    return run_id


def _add_trial(
    store: Store, run_id: str, number: int, entry: BenchmarkEntry, score: float | None, folder: Path
) -> None:
    from ccl_search.loop import trial_files
    from runs.store import NewTrial, TraceFile, TrialOutcome

    rationale = f"imported entry {entry.name}"
    store.add_trial(run_id, NewTrial(iteration=number, config=entry.config or None, rationale=rationale))
    store.prepare_trial(run_id, number, card=entry.text, script=entry.script, num_xpus=entry.num_xpus)
    traces = tuple(
        TraceFile(f"runs/{run_id}/trials/{number}/{found.path}", found.size, found.sha256)
        for found in trial_files.trace_files(folder)
    )
    store.finish_trial(
        run_id,
        number,
        TrialOutcome(
            state=TrialState.SUCCEEDED,
            metrics=tuple(entry.metrics.values()),
            score=score,
            fidelity=entry.fidelity,
            backend=entry.backend,
            traces=traces,
        ),
    )


def _space(group: list[BenchmarkEntry]) -> ConfigSpace:
    """The configs that were imported, as a space: every knob with the values it had."""
    choices: dict[str, list[int]] = {}
    for entry in group:
        for key, value in entry.config.items():
            known = choices.setdefault(key, [])
            if value not in known:
                known.append(value)
    knobs = tuple(Knob(key, "int", tuple(sorted(values))) for key, values in choices.items())
    return ConfigSpace("imported", knobs or (Knob("num_xpus", "int", (group[0].num_xpus or 1,)),))


def _score(entry: BenchmarkEntry, goal: Objective) -> float | None:
    found = entry.metrics.get(goal.terms[0].spec.name)
    return None if found is None or found.value is None else goal.score({found.name: found.value})


def _told(card: WorkloadCard, keys: tuple[str, ...]) -> dict[str, Any]:
    facts = card.normalised()
    return {key: facts[key] for key in keys if facts[key] is not None}


def _without_size(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in environment.items() if key not in ("total_gpus", "gpus_per_node")}
