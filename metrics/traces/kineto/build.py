"""Columns of one Kineto file become lanes: one for each device of the rank, with launches joined to kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import metrics.identify as identify
from metrics.traces.kineto.collect import Block, Collector, Span
from metrics.traces.kineto.comm import HostAnnotations, collectives
from metrics.traces.kineto.spans import find_steps
from metrics.traces.kineto.stream import Contents
from metrics.traces.timeline import NEVER, Copies, Ints, Kernels, Lane, Marks, Steps, rows

NO_COVERAGE = "kernel records have no 'blocks per SM' (ROCm and simulated traces do not write it)"
NO_GPU = "no GPU kernel events in the trace"


def lanes(contents: Contents, source: str, rank: int) -> list[Lane]:
    """The lanes of one file. A rank without device events gives one lane that holds only its steps."""
    got = contents.events
    table = _join(got.device)
    launch = _launch_columns(table.correlation, got)
    step_kind, steps = find_steps(got.spans)
    devices = np.unique(table.device).tolist() or [-1]
    hosts = HostAnnotations(got.spans)
    out = [_lane(table, launch, got, hosts, device, len(devices)) for device in devices]
    for lane, device in zip(out, devices, strict=True):
        _common(lane, contents, source, rank, device)
        lane.facts["devices"] = len(devices)
        lane.step_kind, lane.steps = step_kind, rows(steps, slice(None)) if len(steps) else Steps()
    return out


def _common(lane: Lane, contents: Contents, source: str, rank: int, device: int) -> None:
    info, properties = contents.metadata.get("distributedInfo"), contents.metadata.get("deviceProperties")
    known = (
        {p.get("id"): p for p in properties if isinstance(p, dict) and isinstance(p.get("id"), int)}
        if isinstance(properties, list)
        else {}
    )
    mine = known.get(device, {})
    lane.source, lane.rank = source, rank
    lane.facts["events"] = contents.any_event
    lane.facts["processes"] = sorted(contents.events.processes)
    lane.device = "no device" if device < 0 else f"device {device}"
    lane.device_name = str(mine.get("name", ""))
    lane.sm_count = mine.get("numSms") if isinstance(mine.get("numSms"), int) else None
    if isinstance(info, dict) and isinstance(info.get("world_size"), int):
        lane.world_size = info["world_size"]
    stands_for = contents.metadata.get("represents")
    known_ranks = isinstance(stands_for, list) and stands_for and all(isinstance(r, int) for r in stands_for)
    lane.ranks = tuple(stands_for) if isinstance(stands_for, list) and known_ranks else (rank,)


def _join(blocks: list[Block]) -> Block:
    if not blocks:
        none = np.empty(0, np.int64)
        return Block(none, none, none, none, none, none, none, none, np.empty(0, np.float64))
    if len(blocks) == 1:
        return blocks[0]
    return Block(**{k: np.concatenate([getattr(b, k) for b in blocks]) for k in Block.__dataclass_fields__})


def _launch_columns(correlation: Ints, got: Collector) -> tuple[Ints, Ints]:
    """Time and thread of the call that launched each device event, by correlation id; `NEVER` and -1 where none was
    recorded."""
    never, nowhere = np.full(len(correlation), NEVER), np.full(len(correlation), -1, np.int64)
    if not got.launch or not len(correlation):
        return never, nowhere
    ids, times, threads = (np.concatenate(column) for column in zip(*got.launch, strict=True))
    if not len(ids):
        return never, nowhere
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    at = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    found = (ids[at] == correlation) & (correlation >= 0)
    return np.where(found, times[order][at], NEVER), np.where(found, threads[order][at], -1)


def _lane(
    table: Block, launch: tuple[Ints, Ints], got: Collector, hosts: HostAnnotations, device: int, devices: int
) -> Lane:
    names = list(got.names)
    mine = np.flatnonzero(table.device == device)
    kernel_rows = mine[table.kernel[mine] == 1]
    copy_rows = mine[table.kernel[mine] == 0]
    lane = Lane("kineto", "", -1, "", names=names)
    lane.copies = _copies(table, launch[0], copy_rows, names)
    lane.kernels = _kernels(table, launch[0], kernel_rows, names, got)
    comm_rows = kernel_rows[lane.kernels.comm == 1]
    found, lane.groups = collectives(comm_rows, names, table.name, got.comm_args, launch, hosts)
    found.kernel = np.searchsorted(kernel_rows, comm_rows)
    lane.collectives = found
    lane.launches = bool((lane.kernels.launch != NEVER).any())
    lane.marks = _marks(got.spans, got.memory, device, devices)
    lane.why = _why(lane)
    return lane


def _kernels(table: Block, launch: Ints, chosen: Ints, names: list[str], got: Collector) -> Kernels:
    by_name = np.array([identify.communicates(name) for name in names], np.int64)
    flags = np.array([identify.flags(name) for name in names], np.int64)
    name = table.name[chosen]
    comm = by_name[name] if len(names) else np.empty(0, np.int64)
    with_args = np.fromiter(got.comm_args, np.int64, len(got.comm_args))
    comm = np.maximum(comm, np.isin(chosen, with_args).astype(np.int64))
    return Kernels(
        start=table.start[chosen], end=table.start[chosen] + table.dur[chosen], name=name,
        stream=table.stream[chosen], launch=launch[chosen], coverage=table.coverage[chosen],
        comm=comm, flags=flags[name] if len(names) else comm,
    )  # fmt: skip


def _copies(table: Block, launch: Ints, chosen: Ints, names: list[str]) -> Copies:
    used = np.unique(table.name[chosen])
    kinds = np.zeros(len(names), np.int64)
    kinds[used] = [int(identify.copy_kind(names[i])) for i in used.tolist()]
    start = table.start[chosen]
    return Copies(start, start + table.dur[chosen], kinds[table.name[chosen]], table.nbytes[chosen], launch[chosen])


def _marks(spans: list[Span], memory: list[tuple[int, int, int]], device: int, devices: int) -> Marks:
    bubbles = [span for span in spans if span.name == "bubble" or span.name.startswith("bubble ")]
    samples = [(time, size) for time, where, size in memory if devices == 1 or where in (device, -1)]
    pairs: Any = np.array([(b.start, b.end) for b in bubbles], np.int64).reshape(-1, 2)
    sizes: Any = np.array(samples, np.int64).reshape(-1, 2)
    return Marks(pairs[:, 0], pairs[:, 1], sizes[:, 0], sizes[:, 1])


def _why(lane: Lane) -> dict[str, str]:
    why = {}
    if not len(lane.kernels):
        why["kernels"] = NO_GPU
    if not np.isfinite(lane.kernels.coverage).any():
        why["coverage"] = NO_COVERAGE if len(lane.kernels) else NO_GPU
    return why
