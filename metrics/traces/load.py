"""All files of a trace folder as one `Timeline`: read or taken from the cache, ranks checked, losses reported."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from metrics.traces import captures, discover, replicas, split
from metrics.traces.discover import TraceFile
from metrics.traces.pool import read_all
from metrics.traces.timeline import Lane, Timeline
from runs.errors import BadInputError


def load(folder: Path, cache: Path | None = None) -> Timeline:
    """The timeline of a trace folder or file. `cache` is the folder of the column cache; None reads every time.

    Raises:
        BadInputError: nothing is there, or nothing of it can be read.
    """
    files, warnings = discover.find(folder)
    family, files, dropped = _one_family(files)
    warnings += dropped
    lanes: list[Lane] = []
    for file, (found, said) in split.joined(files, read_all(files, cache)):
        warnings += said
        lanes += _with_content(file, found, warnings)
    if not lanes:
        raise BadInputError(
            f"the trace in {folder} holds no device events, no steps: {'; '.join(warnings) or 'its files are empty'}",
            "check that the profiler was active while the job ran",
        )
    lanes = _unique_ranks(replicas.apart(captures.in_a_row(lanes, warnings), warnings), warnings)
    _name_missing(lanes, warnings)
    _name_bare(lanes, warnings)
    return Timeline(str(folder), family, lanes, warnings)


def _one_family(files: list[TraceFile]) -> tuple[str, list[TraceFile], list[str]]:
    """The files of the family most files belong to; the others are named, never silently mixed in."""
    family = {"xplane": "xla"}
    counts = Counter(family.get(f.family, f.family) for f in files)
    chosen = counts.most_common(1)[0][0]
    kept = [f for f in files if family.get(f.family, f.family) == chosen]
    if chosen == "xla" and any(f.family == "xla" for f in kept):
        kept = [f for f in kept if f.family == "xla"]
    out = [f"{f.source}: left out, a {f.family} trace among {chosen} traces" for f in files if f not in kept]
    return chosen, kept, out


def _with_content(file: TraceFile, found: list[Lane], warnings: list[str]) -> list[Lane]:
    kept = [lane for lane in found if lane.has_work or len(lane.steps)]
    if not kept:
        empty = not any(lane.facts.get("events") for lane in found)
        what = "holds no events" if empty else "holds no GPU events and no step"
        warnings.append(f"{file.source}: {what}; it was left out")
    return kept


def _unique_ranks(lanes: list[Lane], warnings: list[str]) -> list[Lane]:
    """One file for each rank: of several, the first by name is used, and the user is told."""
    sources: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for lane in lanes:
        if lane.family == "kineto" and lane.rank >= 0 and lane.source not in sources[lane.ranks]:
            sources[lane.ranks].append(lane.source)
    out = set()
    for ranks, files in sources.items():
        if len(files) > 1:
            out |= set(files[1:])
            warnings.append(
                f"rank {ranks[0]} is there {_times(len(files))}: {files[0]} was used, {', '.join(files[1:])} left out"
            )
    return sorted((lane for lane in lanes if lane.source not in out), key=_order)


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _order(lane: Lane) -> tuple[int, str]:
    return lane.rank, lane.device


def _name_bare(lanes: list[Lane], warnings: list[str]) -> None:
    """Say which ranks lack what others have: without it a mean over ranks would leave them out without a word."""
    for what, has in (("device events", lambda lane: lane.has_work), ("steps", lambda lane: len(lane.steps) > 0)):
        bare = [lane.label for lane in lanes if not has(lane)]
        if lanes[0].family == "kineto" and 0 < len(bare) < len(lanes):
            shown = ", ".join(bare[:8]) + (", …" if len(bare) > 8 else "")
            warnings.append(f"{shown}: no {what} recorded; values that need them are those of the other ranks")


def _name_missing(lanes: list[Lane], warnings: list[str]) -> None:
    worlds = {lane.world_size for lane in lanes if lane.world_size}
    if len(worlds) != 1:
        return
    world = worlds.pop()
    present = {rank for lane in lanes for rank in lane.ranks}
    missing = sorted(set(range(world)) - present)
    if missing and max(present) < world:
        shown = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        warnings.append(
            f"rank {shown} of {world} is missing; the values are those of the {world - len(missing)} ranks present"
        )
