"""Trace volume: traces are gzipped, sampled by rank, and dropped where the user does not want to keep them.

What is dropped is recorded first (file, size, SHA-256, when, why) and deleted then, so that the record never promises
a file that is gone. A process that ends in between leaves a file too many, which the next one deletes.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search.loop import trial_files
from ccl_search.loop.trial_files import FileFacts
from launchers.frameworks.commands.sampling import sampled_ranks
from runs.errors import BadInputError
from runs.trial import FailureClass

if TYPE_CHECKING:
    from runs.store import RunRecord, Store, TraceFile, TrialRecord

KEEP = ("all", "best", "none")
SAMPLED = "its rank is not among those that are sampled (--trace-ranks)"
_SAMPLED_FILE = "dropped-traces.json"
_LEVEL = 6
_BLOCK = 1 << 20
_HEAD = 1 << 18
_PLAIN = ".json"
_UNREADABLE = (FailureClass.TRACE_MISSING, FailureClass.METRIC_ERROR)
_RANK_IN_NAME = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_RANK_IN_TRACE = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')


# --- what an execution leaves ---------------------------------------------------------------------------------------


def tidy(directory: Path, ranks: int | None = None) -> None:
    """Before a trial is measured: drop the traces of ranks that are not sampled, gzip what is plain JSON.

    May be called again after a process ended in the middle of it.
    """
    for folder in trial_files.trace_folders(directory):
        _finish_compressing(folder)
        if ranks is not None:
            _sample(directory, folder, ranks)
        for path in sorted(folder.rglob(f"*{_PLAIN}")):
            compress(path)


def compress(path: Path) -> Path:
    """Put `path.gz` in the place of `path`; the same content always gives the same bytes."""
    packed, partial = path.with_name(f"{path.name}.gz"), path.with_name(f"{path.name}.gz.partial")
    with path.open("rb") as source, partial.open("wb") as file:
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as target:
            shutil.copyfileobj(source, target, _BLOCK)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(packed)
    path.unlink()
    return packed


def _finish_compressing(folder: Path) -> None:
    for partial in folder.rglob("*.gz.partial"):
        partial.unlink()
    for packed in folder.rglob(f"*{_PLAIN}.gz"):
        plain = packed.with_suffix("")
        if plain.is_file() and plain.stat().st_mtime <= packed.stat().st_mtime:
            plain.unlink()


def rank_of(path: Path) -> int | None:
    """The rank that wrote a trace file, by its name, else by what it says of itself; None where neither tells."""
    from metrics.traces.raw import head_of

    named = _RANK_IN_NAME.search(path.name)
    if named is not None:
        return int(named.group(1))
    told = _RANK_IN_TRACE.search(head_of(path, _HEAD))
    return int(told.group(1)) if told is not None else None


def _sample(directory: Path, folder: Path, count: int) -> None:
    files: dict[int, list[Path]] = defaultdict(list)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        rank = rank_of(path)
        if rank is not None:
            files[rank].append(path)
    wanted = sampled_ranks(files, count)
    gone = [path for rank, paths in sorted(files.items()) if rank not in wanted for path in paths]
    if not gone:
        return
    facts = [trial_files.facts_of(path, directory) for path in gone]
    _write_sampled(directory, [*sampled_out(directory), *facts])
    for path in gone:
        path.unlink()


def _write_sampled(directory: Path, dropped: Sequence[FileFacts]) -> None:
    partial = directory / f"{_SAMPLED_FILE}.partial"
    unique = {facts.path: vars(facts) for facts in dropped}
    with partial.open("w", encoding="utf-8") as stream:
        json.dump({"reason": SAMPLED, "files": list(unique.values())}, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(directory / _SAMPLED_FILE)


def sampled_out(directory: Path) -> list[FileFacts]:
    """The trace files of a trial that were dropped because their ranks are not sampled."""
    try:
        found = json.loads((directory / _SAMPLED_FILE).read_text(encoding="utf-8"))
    except OSError:
        return []
    return [FileFacts(**facts) for facts in found["files"]]


# --- what a store keeps ---------------------------------------------------------------------------------------------


@dataclass
class Retention:
    """Drops the traces of a run's trials that `keep` does not want. `best`: the best trial's, in a Pareto search the
    front's. Traces that no metric tool could read are kept in any case: a mended tool may read them."""

    store: Store
    run_id: str
    keep: str
    _settled: set[int] = field(default_factory=set)

    def sweep(self) -> int:
        """Delete files that the record calls dropped: an earlier process ended before it could. How many there were."""
        count = 0
        for trial in self.store.trials(self.run_id) if self.keep != "all" else ():
            for file in self.store.trace_files(self.run_id, trial.number):
                place = self.store.home / file.path
                if not file.kept and place.is_file():
                    place.unlink()
                    count += 1
        return count

    def settle(self) -> list[Dropped]:
        """Drop what is not wanted any more, now that the run's latest trial is recorded."""
        if self.keep == "all":
            return []
        run = self.store.run(self.run_id)
        wanted = _wanted(self.store, run, self.keep)
        reason = f"--keep-traces {self.keep}" + (f": trial {_names(wanted)} is kept" if wanted else "")
        found: list[Dropped] = []
        for trial in self.store.trials(self.run_id):
            if trial.number in self._settled or not trial.state.is_finished or trial.failure in _UNREADABLE:
                continue
            if trial.number not in wanted:
                found += drop(self.store, trial, reason)
                self._settled.add(trial.number)
        return found


def check_keep(keep: str, option: str = "--keep-traces", choices: tuple[str, ...] = KEEP) -> str:
    """`keep` as it is; `option` is what the user gave it by, `choices` are what that takes.

    Raises:
        BadInputError: it is none of `choices`.
    """
    if keep not in choices:
        raise BadInputError(f"{option} {keep}: there is no such choice", f"choose one of {', '.join(choices)}")
    return keep


@dataclass(frozen=True)
class Dropped:
    """A trace file that was dropped, or would be."""

    run: str
    trial: int
    path: str
    size: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))


def prune(store: Store, runs: Sequence[RunRecord], keep: str, dry: bool = False) -> list[Dropped]:
    """Drop the traces of finished trials of `runs`, apart from what `keep` wants of each; with `dry` only name them.

    Runs that are not over are left alone: their search decides, and needs what is in flight.
    """
    found: list[Dropped] = []
    for run in runs:
        if run.status.value == "running":
            continue
        wanted = _wanted(store, run, check_keep(keep))
        for trial in store.trials(run.id):
            if trial.state.is_finished and trial.number not in wanted and trial.failure not in _UNREADABLE:
                found += _kept(store, trial) if dry else drop(store, trial, f"store prune --keep {keep}")
    return found


def drop(store: Store, trial: TrialRecord, reason: str) -> list[Dropped]:
    """Record that the kept traces of a trial are dropped, then delete them."""
    found = _kept(store, trial)
    with store.transaction():
        for file in found:
            store.drop_trace_file(trial.run_id, trial.number, file.path, reason)
    for file in found:
        place = store.home / file.path
        place.unlink(missing_ok=True)
        _remove_empty(place.parent, store.trial_dir(trial.run_id, trial.number))
    return found


def _remove_empty(folder: Path, above: Path) -> None:
    """Remove folders that hold nothing any more, up to the trial's own."""
    while folder != above and above in folder.parents and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def why_gone(files: Sequence[TraceFile]) -> str | None:
    """Why a trial has no trace any more, where all of it was dropped; else None."""
    if not files or any(file.kept for file in files):
        return None
    last = files[-1]
    when = f" on {last.dropped:%Y-%m-%d}" if last.dropped is not None else ""
    return f"the trace was dropped{when}: {last.reason}"


def _kept(store: Store, trial: TrialRecord) -> list[Dropped]:
    files = store.trace_files(trial.run_id, trial.number)
    return [Dropped(trial.run_id, trial.number, file.path, file.size) for file in files if file.kept]


def _wanted(store: Store, run: RunRecord, keep: str) -> set[int]:
    """Trials whose traces stay."""
    if keep == "none":
        return set()
    if keep == "all":
        return {trial.number for trial in store.trials(run.id)}
    best = store.best(run.id)
    wanted = {best.number} if best is not None else set()
    if run.options.get("settings", {}).get("pareto"):
        from ccl_search.pareto.of_run import of_run

        wanted |= {point.trial for point in of_run(store, run.id).members}
    return wanted


def _names(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
