"""XLA profiles of GPUs: kernels and copies lie on "Stream #k(…)" lanes and carry host-aligned times only."""

from __future__ import annotations

import re

import numpy as np

import metrics.identify as identify
from metrics.traces.kineto.events import nanoseconds
from metrics.traces.timeline import NEVER, Collectives, Copies, CopyKind, Kernels, Lane
from metrics.traces.xla.events import Device, Event, Profile
from metrics.traces.xla.steps import NO_STEPS, find_steps

_SIZE = re.compile(r"size:(\d+)")
_KINDS = {"MemcpyH2D": CopyKind.H2D, "MemcpyD2H": CopyKind.D2H, "MemcpyD2D": CopyKind.D2D, "MemcpyP2P": CopyKind.P2P}


def lane(device: Device, profile: Profile) -> Lane:
    """The lane of one device."""
    out = Lane("xla", "", -1, device.name)
    streams = [(name, event) for name, found in device.lanes.items() if name.startswith("Stream #") for event in found]
    copies = [event for _, event in streams if _is_copy(event)]
    kernels = [event for _, event in streams if not _is_copy(event)]
    out.step_kind, out.steps = find_steps(device, profile.host, profile.last)
    _kernels(out, kernels)
    _copies(out, copies)
    out.why = {"coverage": "XLA profiles of GPUs do not say how many blocks an SM holds",
               "sizes": "XLA profiles of GPUs carry no message sizes"}  # fmt: skip
    if not len(out.steps):
        out.why["step"] = NO_STEPS
    return out


def _is_copy(event: Event) -> bool:
    return str(event.name).startswith(("Memcpy", "Memset", "memcpy", "memset"))


def _kernels(out: Lane, events: list[Event]) -> None:
    names: dict[str, int] = {}
    start, bad = nanoseconds([e.ts for e in events]) if events else (np.empty(0, np.int64), {})
    duration, worse = nanoseconds([e.dur for e in events]) if events else (np.empty(0, np.int64), {})
    keep = [i for i in range(len(events)) if i not in bad and i not in worse and duration[i] >= 0]
    ids = np.array([names.setdefault(str(events[i].name), len(names)) for i in keep], np.int64)
    comm = np.array([int(identify.communicates(name)) for name in names], np.int64)
    flags = np.array([identify.flags(name) for name in names], np.int64)
    nothing = np.full(len(keep), -1, np.int64)
    empty = np.empty(0, np.int64)
    out.names = list(names)
    out.kernels = Kernels(
        start=start[keep], end=start[keep] + duration[keep], name=ids, stream=nothing, launch=np.full(len(keep), NEVER),
        coverage=np.full(len(keep), np.nan), comm=comm[ids] if keep else empty, flags=flags[ids] if keep else empty,
    )  # fmt: skip
    rows = np.flatnonzero(out.kernels.comm == 1)
    ops = np.array([int(identify.op_of_kernel(out.names[ids[row]])) for row in rows.tolist()], np.int64)
    unknown = np.full(len(rows), -1, np.int64)
    out.collectives = Collectives(rows, ops, unknown, unknown, unknown, unknown, unknown)


def _copies(out: Lane, events: list[Event]) -> None:
    if not events:
        return
    start, _ = nanoseconds([e.ts for e in events])
    duration, _ = nanoseconds([e.dur for e in events])
    sizes = [_SIZE.search(str(e.args.memcpy)) if e.args is not None else None for e in events]
    kinds = [CopyKind.MEMSET if str(e.name).lower().startswith("memset") else _KINDS.get(str(e.name), CopyKind.OTHER)
             for e in events]  # fmt: skip
    out.copies = Copies(
        start=start, end=start + np.maximum(duration, 0), kind=np.array(kinds, np.int64),
        bytes=np.array([int(s[1]) if s else -1 for s in sizes], np.int64), launch=np.full(len(events), NEVER),
    )  # fmt: skip
