"""The "XLA Ops" lane of a TPU chip: leaf ops, collectives with their sizes, and copies paired from start to end of
done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import metrics.identify as identify
from metrics.traces.kineto.events import integers, nanoseconds
from metrics.traces.timeline import COPY_OP, IN_FLIGHT, Collectives, Copies, CopyKind, Ints, Kernels, Lane, Op
from metrics.traces.xla import hlo
from metrics.traces.xla.events import Event

_COPY_OPS = frozenset({"copy-start", "copy-done"})
_CONTAINERS = frozenset({"while", "conditional", "call"})


@dataclass
class Table:
    """Ops with sound times: device start and end (ps), host-aligned time (ns), the execution they belong to."""

    events: list[Event]
    start: Ints
    end: Ints
    time: Ints
    execution: Ints


def fill(lane: Lane, ops: list[Event], modules: list[Event]) -> None:
    """Put the ops of a chip into its lane."""
    table = _leaves(_table(ops, modules))
    categories = [_category(event) for event in table.events]
    names: dict[str, int] = {}
    ids = np.array([names.setdefault(c, len(names)) for c in categories], np.int64)
    found = [identify.op_of_hlo(c) for c in categories]
    pairs = _pairs(table, categories)
    flights = [(a, b) for a, b in pairs if found[a] is not None]
    kernels = Kernels(
        start=table.start, end=table.end, name=ids, stream=np.zeros(len(ids), np.int64), launch=table.time,
        coverage=np.full(len(ids), np.nan), comm=_classes(categories, found), flags=_copy_flags(categories),
    )  # fmt: skip
    lane.kernels = _with_flights(kernels, flights)
    lane.names = list(names)
    lane.collectives = _collectives(table, found, flights, len(table.events))
    lane.copies = _copies(table, pairs, categories)
    unpaired = sum(c in _COPY_OPS for c in categories) - 2 * len(lane.copies)
    lane.facts["unpaired_copy_ops"] = unpaired
    _add_flops(lane, table)


def _category(event: Event) -> str:
    args = event.args
    if args is not None and isinstance(args.category, str):
        return args.category
    return str(event.name).rstrip("0123456789").rstrip(".")


def _table(ops: list[Event], modules: list[Event]) -> Table:
    time, bad = nanoseconds([e.ts for e in ops])
    start = integers([_number(e, "offset") for e in ops])
    duration = integers([_number(e, "duration") for e in ops])
    host_duration, worse = nanoseconds([e.dur for e in ops])
    without_clock = (start < 0) | (duration < 0)
    if without_clock.any():  # older profiles: no device clock, fall back to the host-aligned one for the whole lane
        start, duration = time * 1000, host_duration * 1000
    keep = [i for i in range(len(ops)) if i not in bad and i not in worse and duration[i] >= 0]
    start, duration, time = start[keep], duration[keep], time[keep]
    return Table([ops[i] for i in keep], start, start + duration, time, _executions(time, modules))


def _number(event: Event, name: str) -> object:
    value = getattr(event.args, name) if event.args is not None else None
    return -1 if value is None else value


def _executions(time: Ints, modules: list[Event]) -> Ints:
    """Which module execution each op runs in; -1 for none."""
    if not modules:
        return np.zeros(len(time), np.int64)
    start, _ = nanoseconds([e.ts for e in modules])
    duration, _ = nanoseconds([e.dur for e in modules])
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], time, "right") - 1
    inside = (at >= 0) & (time <= (start + duration)[order][np.maximum(at, 0)])
    return np.where(inside, at, -1)


def _leaves(table: Table) -> Table:
    """Without ops that hold other ops (`while` and its body lie on the same lane)."""
    order = np.lexsort((-table.end, table.start))
    start, end = table.start[order], table.end[order]
    holds = np.zeros(len(order), bool)
    holds[:-1] = (start[1:] < end[:-1]) & (end[1:] <= end[:-1])
    keep = [i for i, h in zip(order.tolist(), holds.tolist(), strict=True)
            if not (h and _category(table.events[i]) in _CONTAINERS)]  # fmt: skip
    return Table(
        [table.events[i] for i in keep], table.start[keep], table.end[keep], table.time[keep], table.execution[keep]
    )


def _classes(categories: list[str], found: list[Op | None]) -> Ints:
    """1 for collectives, 2 for copy ops, 0 for compute."""
    kinds = [1 if op is not None else 2 if c in _COPY_OPS else 0 for c, op in zip(categories, found, strict=True)]
    return np.array(kinds, np.int64)


def _copy_flags(categories: list[str]) -> Ints:
    return np.array([COPY_OP if c in _COPY_OPS else 0 for c in categories], np.int64)


def _pairs(table: Table, categories: list[str]) -> list[tuple[int, int]]:
    """Rows of each `-start` and the `-done` that waits for it, within one module execution.

    The done names its start as operand; where HLO text is missing, names that differ only in start and done belong
    together.
    """
    open_starts: dict[tuple[int, str], int] = {}
    pairs = []
    for row in np.lexsort((table.end, table.start)).tolist():
        event, category, execution = table.events[row], categories[row], int(table.execution[row])
        if category.endswith("-start"):
            open_starts[execution, str(event.name)] = row
        elif category.endswith("-done"):
            start = open_starts.pop((execution, _started_as(event)), None)
            if start is not None:
                pairs.append((start, row))
    return pairs


def _started_as(event: Event) -> str:
    text = event.args.long_name if event.args is not None else None
    named = hlo.operand(text) if isinstance(text, str) else None
    return named or str(event.name).replace("-done", "-start")


def _with_flights(kernels: Kernels, flights: list[tuple[int, int]]) -> Kernels:
    """The ops and, for each asynchronous collective, its time in flight: from its start to the end of its done."""
    if not flights:
        return kernels
    first, last = (np.array(column, np.int64) for column in zip(*flights, strict=True))
    extra = {
        "start": kernels.start[first], "end": kernels.end[last], "name": kernels.name[first],
        "stream": kernels.stream[first],
        "launch": kernels.launch[first], "coverage": kernels.coverage[first], "comm": kernels.comm[first],
        "flags": np.full(len(first), IN_FLIGHT, np.int64),
    }  # fmt: skip
    return Kernels(**{name: np.concatenate([getattr(kernels, name), column]) for name, column in extra.items()})


def _collectives(table: Table, found: list[Op | None], flights: list[tuple[int, int]], count: int) -> Collectives:
    """One row for each synchronous collective, and one for each asynchronous one (its time in flight)."""
    paired = {row for pair in flights for row in pair}
    rows = [(row, row) for row, op in enumerate(found) if op is not None and row not in paired]
    rows += [(count + number, start) for number, (start, _) in enumerate(flights)]
    out = []
    for kernel, row in rows:
        op = found[row]
        sizes = _sizes(table.events[row])
        out.append((kernel, int(op if op is not None else Op.UNKNOWN), *sizes, -1, -1))
    return Collectives(*np.array(out, np.int64).reshape(-1, 7).T)


def _sizes(event: Event) -> tuple[int, int, int]:
    """Bytes in, bytes out and group size from the HLO text; -1 for what it does not say."""
    text = event.args.long_name if event.args is not None else None
    if not isinstance(text, str):
        return -1, -1, -1
    result, operands = hlo.result_and_operand(text)
    before, after = hlo.all_shapes(operands), hlo.all_shapes(result)
    asynchronous = str(event.name).split(".")[0].endswith("-start") and result.lstrip().startswith("(")
    output = after[-1] if asynchronous and len(after) > 1 else sum(after)
    group = hlo.group_size(text)
    return sum(before) if before else -1, output if after else -1, group if group is not None else -1


def _copies(table: Table, pairs: list[tuple[int, int]], categories: list[str]) -> Copies:
    mine = [(a, b) for a, b in pairs if categories[a] == "copy-start"]
    if not mine:
        return Copies()
    first, last = (np.array(column, np.int64) for column in zip(*mine, strict=True))
    starts = [table.events[a] for a, _ in mine]
    kinds = [CopyKind[hlo.copy_direction(str(e.args.shape or e.args.long_name)) if e.args else "OTHER"] for e in starts]
    return Copies(
        start=table.start[first], end=table.end[last], kind=np.array(kinds, np.int64),
        bytes=integers([_number(e, "accessed") for e in starts]), launch=table.time[first],
    )  # fmt: skip


def _add_flops(lane: Lane, table: Table) -> None:
    """model_flops of the ops that start inside each step; a step without any stays at -1."""
    if not len(lane.steps):
        return
    flops = np.maximum(integers([_number(e, "flops") for e in table.events]), 0)
    at = np.searchsorted(lane.steps.start, table.time, "right") - 1
    inside = (at >= 0) & (table.time <= lane.steps.end[np.maximum(at, 0)])
    totals = np.bincount(at[inside], weights=flops[inside], minlength=len(lane.steps))
    lane.steps.flops = np.where(totals > 0, totals, -1).astype(np.int64)
