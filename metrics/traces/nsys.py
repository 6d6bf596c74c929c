"""Nsight Systems SQLite exports (schemas 2.9 to 3.25): one lane for each device of each process.

An export has only the tables, and a table only the columns, that its version and its capture needed: every query is
built from what is there. CUPTI device ids count per process, so a device is (globalPid, deviceId). Kernels keep their
demangled names, because the short name merges all instances of a template.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import metrics.identify as identify
from metrics.traces.timeline import NEVER, Collectives, Copies, CopyKind, Ints, Kernels, Lane, Reals, Samples

NO_STEPS = "an Nsight Systems capture has no step spans; Table 3 gives this metric for Kineto/XLA traces only"
NO_SM_COUNT = "no SM count in the file (no TARGET_INFO_CUDA_DEVICE.numMultiprocessors, no TARGET_INFO_GPU.smCount)"
NO_SIZES = "Nsight kernel records carry no message sizes"
NO_SAMPLES = "no GPU_METRICS table"
NO_KERNELS = "no kernel table: the capture traced no CUDA kernels"
GRAPHS = "whole CUDA graphs were traced, not their kernels (nsys profile --cuda-graph-trace=node records kernels)"
_KERNEL, _COPY, _SET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_COPY_KINDS = {1: CopyKind.H2D, 2: CopyKind.D2H, 8: CopyKind.D2D, 10: CopyKind.P2P}
_DEVICE = tuple[int, int]


@dataclass
class Export:
    """An open export and its columns by table."""

    connection: sqlite3.Connection
    columns: dict[str, set[str]]

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table is there with these columns."""
        return table in self.columns and set(columns) <= self.columns[table]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of a table; a column that this schema does not have is NULL, a missing table is empty."""
        if table not in self.columns:
            return []
        wanted = ", ".join(f'"{c}"' if c in self.columns[table] else "NULL" for c in columns)
        return self.connection.execute(f'SELECT {wanted} FROM "{table}"').fetchall()  # noqa: S608


@contextmanager
def opened(path: Path) -> Iterator[Export]:
    """The export, read-only and without touching the file's folder."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: {row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')} for name in names}
        yield Export(connection, columns)


def read(path: Path, source: str) -> tuple[list[Lane], list[str]]:
    """The lanes of one export and the warnings about it; an export that SQLite cannot read gives no lane and says
    so."""
    try:
        with opened(path) as export:
            return _lanes(export, source)
    except sqlite3.Error as error:
        return [], [f"{source}: left out, SQLite cannot read it: {error}"]


def _lanes(export: Export, source: str) -> tuple[list[Lane], list[str]]:
    lost: Counter[str] = Counter()
    kernels = _by_device(export.rows(_KERNEL, "globalPid", "deviceId", "start", "end", *_KERNEL_MORE), lost)
    copies = _by_device(export.rows(_COPY, "globalPid", "deviceId", "start", "end", "copyKind", "bytes"), lost)
    memsets = _by_device(export.rows(_SET, "globalPid", "deviceId", "start", "end", "NULL", "bytes"), lost)
    counts = sm_counts(export)
    names = Names(export)
    samples = _samples(export)
    out: list[Lane] = []
    for number, key in enumerate(sorted({*kernels, *copies, *memsets})):
        lane = Lane("nsys", source, number, _label(key), ranks=(number,), device_name="")
        lane.sm_count = counts.get(key, counts.get((-1, key[1])))
        _fill(lane, names, kernels.get(key, []), copies.get(key, []), memsets.get(key, []))
        _attach(lane, key[1], samples, names)
        lane.why |= _why(export, lane)
        lane.facts |= {"events": True, "schema": schema_version(export)}
        out.append(lane)
    problems = [] if _KERNEL in export.columns else [f"{source}: {GRAPHS if _GRAPH in export.columns else NO_KERNELS}"]
    problems += [f"{source}: {count} event(s) ignored: {why}" for why, count in lost.items()]
    return out, problems


_KERNEL_MORE = ("streamId", "demangledName", "shortName", "gridX", "gridY", "gridZ")


def _by_device(rows: Sequence[tuple[Any, ...]], lost: Counter[str]) -> dict[_DEVICE, list[tuple[Any, ...]]]:
    """Rows by device without its two columns; `lost` counts those that have no time, or end before they start."""
    out: dict[_DEVICE, list[tuple[Any, ...]]] = {}
    for row in rows:
        if not _timed(row[2], row[3]):
            lost["its time is missing or negative"] += 1
            continue
        key = (row[0] if row[0] is not None else -1, row[1] if row[1] is not None else 0)
        out.setdefault(key, []).append(row[2:])
    return out


def _timed(start: Any, end: Any) -> bool:
    return type(start) is int and type(end) is int and end >= start


def _label(key: _DEVICE) -> str:
    return f"device {key[1]}" if key[0] < 0 else f"process {pid_of(key[0])} device {key[1]}"


def pid_of(global_pid: int) -> int:
    """The process id inside a globalPid (bits 24 to 47)."""
    return global_pid >> 24 & 0xFFFFFF


def schema_version(export: Export) -> str:
    """The export's schema version as text, empty when it does not say."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        found = dict(export.rows(table, "name", "value"))
        if "EXPORT_SCHEMA_VERSION" in found:
            return str(found["EXPORT_SCHEMA_VERSION"])
    return ""


def sm_counts(export: Export) -> dict[_DEVICE, int]:
    """SM counts by (globalPid, deviceId) from TARGET_INFO_CUDA_DEVICE, else by (-1, CUDA ordinal) from
    TARGET_INFO_GPU."""
    out: dict[_DEVICE, int] = {}
    for ordinal, pid, count in export.rows("TARGET_INFO_CUDA_DEVICE", "cudaId", "pid", "numMultiprocessors"):
        if count:
            out[-1, ordinal] = count
            out |= {(g, ordinal): count for g in _global_pids(export) if pid is not None and pid_of(g) == pid}
    for ident, ordinal, count in export.rows("TARGET_INFO_GPU", "id", "cuDevice", "smCount"):
        if count:
            out.setdefault((-1, ordinal if ordinal is not None else ident), count)
    return out


def _global_pids(export: Export) -> list[int]:
    if not export.has(_KERNEL, "globalPid"):
        return []
    return [g for (g,) in export.connection.execute(f'SELECT DISTINCT globalPid FROM "{_KERNEL}"') if g is not None]  # noqa: S608


class Names:
    """The export's string table."""

    def __init__(self, export: Export) -> None:
        self.text: dict[int, str] = dict(export.rows("StringIds", "id", "value"))

    def of(self, ident: Any, other: Any = None) -> str:
        """The text of an id, else of another, else the id itself (very old exports hold names in place)."""
        for candidate in (ident, other):
            if candidate is not None:
                return self.text.get(candidate, str(candidate))
        return "(no name)"


def _fill(lane: Lane, names: Names, kernels: list[Any], copies: list[Any], memsets: list[Any]) -> None:
    ids: dict[str, int] = {}
    shorts: dict[str, str] = {}
    rows = []
    for _, _, _, demangled, short, *_ in kernels:
        name = names.of(demangled, short)
        shorts[name] = names.of(short, demangled)
        rows.append(ids.setdefault(name, len(ids)))
    lane.names, lane.facts["short_names"] = list(ids), shorts
    lane.kernels = _kernels(lane, np.array(rows, np.int64), kernels)
    chosen = np.flatnonzero(lane.kernels.comm == 1)
    ops = [int(identify.op_of_kernel(lane.names[i])) for i in lane.kernels.name[chosen].tolist()]
    unknown = np.full(len(chosen), -1, np.int64)
    lane.collectives = Collectives(chosen, np.array(ops, np.int64), *(unknown for _ in range(5)))
    moves = [(*c[:2], _COPY_KINDS.get(c[2], CopyKind.OTHER), c[3]) for c in copies]
    moves += [(*m[:2], CopyKind.MEMSET, m[3]) for m in memsets]
    start, end, kind, size = (_column([row[i] for row in moves]) for i in range(4))
    lane.copies = Copies(start, end, kind, size, np.full(len(moves), NEVER))


def _column(values: list[Any]) -> Ints:
    return np.array([-1 if v is None else v for v in values], np.int64)


def _kernels(lane: Lane, names: Ints, rows: list[Any]) -> Kernels:
    comm = np.array([int(identify.communicates(n)) for n in lane.names], np.int64)
    flags = np.array([identify.flags(n) for n in lane.names], np.int64)
    empty = np.empty(0, np.int64)
    return Kernels(
        start=_column([r[0] for r in rows]), end=_column([r[1] for r in rows]), name=names,
        stream=_column([r[2] for r in rows]), launch=np.full(len(rows), NEVER), coverage=_coverage(lane, rows),
        comm=comm[names] if rows else empty, flags=flags[names] if rows else empty,
    )  # fmt: skip


def _coverage(lane: Lane, rows: list[Any]) -> Reals:
    """Blocks per SM: the grid over the SM count."""
    if lane.sm_count is None:
        return np.full(len(rows), np.nan)
    blocks = [np.nan if None in r[5:8] else float(r[5] * r[6] * r[7]) for r in rows]
    return np.array(blocks, np.float64) / lane.sm_count


def _samples(export: Export) -> dict[int, list[tuple[int, str, float]]]:
    """Samples of link counters by device; a typeId belongs to one source, whose low byte is the device."""
    if not export.has("GPU_METRICS", "typeId", "metricId") or "TARGET_INFO_GPU_METRICS" not in export.columns:
        return {}
    names = {(t, m): n for t, m, n in export.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")}
    out: dict[int, list[tuple[int, str, float]]] = {}
    for time, kind, metric, value in export.rows("GPU_METRICS", "timestamp", "typeId", "metricId", "value"):
        name = names.get((kind, metric))
        if name is not None and value is not None:
            out.setdefault(kind & 0xFF, []).append((time, str(name), float(value)))
    return out


def _attach(lane: Lane, device: int, samples: dict[int, list[tuple[int, str, float]]], names: Names) -> None:
    """Put a device's samples into its lane; metric names join the lane's names."""
    mine = samples.get(device, [])
    ids = {name: i for i, name in enumerate(lane.names)}
    metric = [ids.setdefault(name, len(ids)) for _, name, _ in mine]
    lane.names = list(ids)
    lane.samples = Samples(
        _column([t for t, _, _ in mine]), _column(metric), np.array([v for *_, v in mine], np.float64)
    )


def _why(export: Export, lane: Lane) -> dict[str, str]:
    why = {"step": NO_STEPS, "sizes": NO_SIZES}
    if not len(lane.kernels):
        why["kernels"] = GRAPHS if _GRAPH in export.columns else NO_KERNELS
    if lane.sm_count is None:
        why["coverage"] = NO_SM_COUNT
    if "GPU_METRICS" not in export.columns:
        why["samples"] = NO_SAMPLES
    if _COPY in export.columns and not export.rows(_COPY, "start"):
        why["copies"] = "the memory copy table is empty"
    return why
