"""The events of an XLA profile by device lane. Only the lanes that hold ops and module executions matter; the others
are derived."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from metrics.traces.kineto import scan
from metrics.traces.kineto.events import nanoseconds
from metrics.traces.raw import blocks_of

_EMPTY = msgspec.Raw(b"")
WRITTEN_AT_MOST = 1_000_000
"""Events in a trace.json of XLA's profiler, unless TF_PROFILER_TRACE_VIEWER_MAX_EVENTS says another number (taken to be
a multiple): the ones that start later are left out without a word (xplane_to_trace_events.cc). Events that start with
the last one of them are kept, so that there may be a few more."""
_TIES = 1000


class Args(msgspec.Struct, gc=False):
    """Arguments a metric reads. XLA writes numbers as strings."""

    name: Any = None
    category: Any = msgspec.field(default=None, name="hlo_category")
    offset: Any = msgspec.field(default=None, name="device_offset_ps")
    duration: Any = msgspec.field(default=None, name="device_duration_ps")
    flops: Any = msgspec.field(default=None, name="model_flops")
    accessed: Any = msgspec.field(default=None, name="bytes_accessed")
    long_name: Any = None
    shape: Any = msgspec.field(default=None, name="shape_with_layout")
    memcpy: Any = msgspec.field(default=None, name="memcpy_details")


class Event(msgspec.Struct, gc=False):
    """One event; metadata events name processes and threads."""

    ph: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: Args | None = None


_DECODER = msgspec.json.Decoder(list[Event])
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')


@dataclass
class Device:
    """The lanes of one device by their name, in file order."""

    name: str
    lanes: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Profile:
    """Devices by name, host spans, and what was wrong with the file. `last`: when the last event starts (ns), in a file
    whose writer left later ones out."""

    devices: list[Device]
    host: list[Event]
    problems: list[str]
    last: int | None = None


def read_profile(path: Path, source: str) -> Profile:
    """All lanes of a profile file.

    Damage is handled event by event: whole events are used, the rest is counted in `problems`.
    """
    problems: list[str] = []
    parts = []
    try:
        for block in blocks_of(path):
            parts.append(block)  # noqa: PERF402 - extend would lose the blocks before an error
    except (EOFError, OSError) as error:
        problems.append(f"{source}: cut off: {error}")
    return profile_of(b"".join(parts), source, problems)


def profile_of(text: bytes, source: str, problems: list[str]) -> Profile:
    """The lanes of a profile given as JSON text."""
    match = _KEY.search(text)
    body = text[match.end() :] if match else text.lstrip().removeprefix(b"[")
    events = _events(body, source, problems)
    profile = _by_device(events, problems)
    spans = [event.ts for event in events if event.ph == "X"]
    if len(spans) >= WRITTEN_AT_MOST and len(spans) % WRITTEN_AT_MOST <= _TIES:
        profile.last = int(nanoseconds(spans)[0].max())
        problems.append(
            f"{source}: full, XLA's profiler leaves out events after the first {len(spans):,}; steps after that were "
            "not used (set TF_PROFILER_TRACE_VIEWER_MAX_EVENTS to get them)"
        )
    return profile


def _events(body: bytes, source: str, problems: list[str]) -> list[Event]:
    end = body.rfind(b"]")
    if end >= 0:
        try:
            return _DECODER.decode(b"[" + body[:end] + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
    split = scan.split_events(body)
    if not split.ended:
        problems.append(f"{source}: incomplete, the file ends inside the event list; its whole events were used")
    lost: Counter[str] = Counter()
    found = [event for a, b in split.events for event in _one(body[a:b], lost)]
    problems += [f"{source}: {count} event(s) {what}" for what, count in sorted(lost.items())]
    return found


def _one(text: bytes, lost: Counter[str]) -> list[Event]:
    versions = [(text, ""), *scan.repairs(text)]
    for version, what in versions:
        try:
            found = _DECODER.decode(b"[" + version + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if what:
            lost[f"repaired: {what}"] += 1
        return found
    lost["ignored: not valid JSON"] += 1
    return []


def _by_device(events: list[Event], problems: list[str]) -> Profile:
    processes: dict[str, str] = {}
    threads: dict[tuple[str, str], str] = {}
    for event in events:
        if event.ph == "M" and event.args is not None and isinstance(event.args.name, str):
            if event.name == "process_name":
                processes[str(event.pid)] = event.args.name
            elif event.name == "thread_name":
                threads[str(event.pid), str(event.tid)] = event.args.name
    devices: dict[str, Device] = {}
    host: list[Event] = []
    for event in events:
        if event.ph != "X":
            continue
        process = processes.get(str(event.pid), "")
        if process.startswith("/device:") and "SparseCore" not in process:
            device = devices.setdefault(process, Device(process))
            device.lanes[threads.get((str(event.pid), str(event.tid)), "")].append(event)
        elif isinstance(event.name, str) and (event.name.startswith("$core.py:") or event.name == "StepMarker"):
            host.append(event)
    return Profile([devices[name] for name in sorted(devices, key=_natural)], host, problems)


def _natural(name: str) -> tuple[str, int]:
    digits = re.search(r"(\d+)\D*$", name)
    return (name[: digits.start()], int(digits[1])) if digits else (name, -1)
