"""From event texts to columns: chunks are decoded in one call each, broken ones event by event, losses are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import numpy as np

from metrics.traces.kineto import events as ev
from metrics.traces.kineto import scan
from metrics.traces.timeline import Ints

E = TypeVar("E")
_DEVICE = msgspec.json.Decoder(list[ev.DeviceEvent])
_LAUNCH = msgspec.json.Decoder(list[ev.LaunchEvent])
_OTHER = msgspec.json.Decoder(list[ev.AnyEvent])
_NO_STEPS = ("nccl:", "record_param_comms", "bubble")  # the other wanted spans are steps
_MEMORY_ARGS = msgspec.json.Decoder(ev.MemoryArgs)
_KERNEL_ARGS = msgspec.json.Decoder(ev.KernelArgs)
_LAUNCH_ARGS = msgspec.json.Decoder(ev.LaunchArgs)


@dataclass
class Block:
    """Columns of one chunk of device events."""

    start: Ints
    dur: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    name: Ints
    kernel: Ints
    nbytes: Ints
    coverage: Any


@dataclass
class Span:
    """A host annotation (or a bubble) that matters: times in ns, thread, category, name, arguments of a collective."""

    name: str
    cat: str
    thread: int
    start: int
    end: int
    args: ev.KernelArgs | None = None


@dataclass
class Collector:
    """Everything wanted of one file, growing chunk by chunk.

    `marked`: a profiler step was seen, so that the loops of serving engines do not matter any more. `processes`: ids of
    the processes whose host events these are.
    """

    names: dict[str, int] = field(default_factory=dict)
    threads: dict[Any, int] = field(default_factory=dict)
    device: list[Block] = field(default_factory=list)
    launch: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    comm_args: dict[int, ev.KernelArgs] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    events: int = 0
    processes: set[int] = field(default_factory=set)
    marked: bool = False
    rows: int = 0

    def take(self, picked: scan.Picked) -> None:
        """The picked events of one chunk."""
        self.events += len(picked.device) + len(picked.launch) + len(picked.other)
        if picked.device:
            self.take_device(self._decode(_DEVICE, picked.device))
        if picked.launch:
            self.take_launches(self._decode(_LAUNCH, picked.launch))
        if picked.other:
            self.take_any(self._decode(_OTHER, picked.other))

    def take_texts(self, texts: list[bytes]) -> None:
        """Events of any kind, in any layout."""
        self.events += len(texts)
        self.take_any(self._decode(_OTHER, texts))

    def take_list(self, text: bytes) -> bool:
        """A chunk that should be whole events with commas between; False (and nothing taken) when it is not."""
        try:
            decoded = _OTHER.decode(b"[" + text + b"]")
        except msgspec.MsgspecError:
            return False
        self.events += len(decoded)
        self.take_any(decoded)
        return True

    def _decode(self, decoder: msgspec.json.Decoder[list[E]], texts: list[bytes]) -> list[E]:
        try:
            return decoder.decode(b"[" + b",".join(texts) + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return [event for text in texts for event in self._decode_one(decoder, text)]

    def _decode_one(self, decoder: msgspec.json.Decoder[list[E]], text: bytes) -> list[E]:
        try:
            return decoder.decode(b"[" + text + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        for version, what in scan.repairs(text):
            try:
                event = decoder.decode(b"[" + version + b"]")
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if what:
                self.repaired[what] += 1
            return event
        self.dropped["not valid JSON"] += 1
        return []

    def take_any(self, decoded: list[ev.AnyEvent]) -> None:
        """Events of any kind: device events and launches are decoded again with their arguments."""
        device = [e for e in decoded if e.ph == "X" and _among(e.cat, ev.DEVICE_CATS)]
        launch = [e for e in decoded if e.ph == "X" and _among(e.cat, ev.LAUNCH_CATS)]
        if device:
            self.take_device([_device(e) for e in device])
        if launch:
            self.take_launches([_launch(e) for e in launch])
        self.take_spans([e for e in decoded if e.ph == "X" and _wanted_span(e)])
        self.take_memory([e for e in decoded if e.ph in ("i", "I") and e.name == "[memory]"])

    def take_device(self, found: list[ev.DeviceEvent]) -> None:
        """Kernels, copies and memsets."""
        start, dur, good = self._times([e.ts for e in found], [e.dur for e in found])
        if len(good) < len(found):
            found = [found[i] for i in good]
        args = [e.args or ev.KernelArgs() for e in found]
        block = Block(
            start=start, dur=dur,
            device=ev.integers([a.device if a.device is not None else e.pid for a, e in zip(args, found, strict=True)]),
            stream=ev.integers([a.stream if a.stream is not None else -1 for a in args]),
            correlation=ev.integers([a.correlation if a.correlation is not None else -1 for a in args]),
            name=self._name_ids(found),
            kernel=np.array([_among(e.cat, ev.KERNEL_CATS) for e in found], np.int64),
            nbytes=ev.integers([a.bytes if a.bytes is not None else -1 for a in args]),
            coverage=_reals([a.coverage for a in args]),
        )  # fmt: skip
        for row, arg in enumerate(args, self.rows):
            if arg.collective is not None:
                self.comm_args[row] = arg
        self.rows += len(found)
        self.device.append(block)

    def _name_ids(self, found: list[ev.DeviceEvent]) -> Ints:
        names = self.names
        out = []
        for event in found:
            name = event.name if isinstance(event.name, str) else "(no name)"
            number = names.get(name)
            if number is None:
                number = names[name] = len(names)
            out.append(number)
        return np.array(out, np.int64)

    def take_launches(self, found: list[ev.LaunchEvent]) -> None:
        """Runtime and driver calls; those without a correlation id launch nothing."""
        start, bad = ev.nanoseconds([e.ts for e in found]) if found else (np.empty(0, np.int64), {})
        correlation = ev.integers([-1 if e.args is None else e.args.correlation for e in found])
        threads = self.threads
        thread = np.array([threads.setdefault(str(e.tid), len(threads)) for e in found], np.int64)
        self._of_process(found[0].pid if found else None)
        keep = correlation >= 0
        keep[list(bad)] = False
        self.launch.append((correlation[keep], start[keep], thread[keep]))

    def take_spans(self, found: list[ev.AnyEvent]) -> None:
        """Host annotations."""
        if not found:
            return
        start, dur, good = self._times([e.ts for e in found], [e.dur for e in found])
        for row, index in enumerate(good):
            event = found[index]
            if not dur[row] and not event.name.startswith(_NO_STEPS):
                self.dropped["a step or iteration without length"] += 1
                continue
            thread = self.threads.setdefault(str(event.tid), len(self.threads))
            args = _arguments(_KERNEL_ARGS, event.args) if event.name == "record_param_comms" else None
            self.marked |= event.name.startswith("ProfilerStep#")
            self._of_process(event.pid if event.cat != "gpu_user_annotation" else None)
            self.spans.append(Span(event.name, event.cat, thread, int(start[row]), int(start[row] + dur[row]), args))

    def _of_process(self, process: Any) -> None:
        if type(process) is int:
            self.processes.add(process)

    def take_memory(self, found: list[ev.AnyEvent]) -> None:
        """Allocator samples of a device (`Device Type` 0 is the host)."""
        times, bad = ev.nanoseconds([e.ts for e in found]) if found else (np.empty(0, np.int64), {})
        for row, event in enumerate(found):
            args = _arguments(_MEMORY_ARGS, event.args)
            if row not in bad and args is not None and args.device_type != 0 and args.allocated is not None:
                device, size = ev.integers([args.device, args.allocated]).tolist()
                if size >= 0:
                    self.memory.append((int(times[row]), device, size))

    def _times(self, ts: list[Any], dur: list[Any]) -> tuple[Ints, Ints, list[int]]:
        """Start and duration of the events whose times are sound, and their rows; the others are counted as dropped."""
        starts, bad_start = ev.nanoseconds(ts)
        durations, bad_dur = ev.nanoseconds(dur)
        negative = durations < 0
        if not bad_start and not bad_dur and not negative.any():
            return starts, durations, list(range(len(ts)))
        reasons = {row: f"ts is {why or 'missing'}" for row, why in bad_start.items()}
        reasons |= {row: f"dur is {why or 'missing'}" for row, why in bad_dur.items()}
        reasons |= {int(row): "dur is negative" for row in np.flatnonzero(negative)}
        self.dropped.update(reasons.values())
        good = [row for row in range(len(ts)) if row not in reasons]
        return starts[good], durations[good], good


def _device(event: ev.AnyEvent) -> ev.DeviceEvent:
    args = _arguments(_KERNEL_ARGS, event.args)
    return ev.DeviceEvent(args, event.ph, event.cat, event.name, event.pid, event.tid, event.ts, event.dur)


def _launch(event: ev.AnyEvent) -> ev.LaunchEvent:
    return ev.LaunchEvent(_arguments(_LAUNCH_ARGS, event.args), event.pid, event.tid, event.ts, event.dur)


def _among(cat: Any, wanted: frozenset[str]) -> bool:
    """Whether a category is one of these; a damaged event may have anything there."""
    return isinstance(cat, str) and cat in wanted


def _wanted_span(event: ev.AnyEvent) -> bool:
    name = event.name
    if not isinstance(name, str):
        return False
    return name.startswith(("ProfilerStep#", "execute_", "step[", "nccl:", "record_param_comms", "bubble")) or (
        "run_batch" in name
    )


def _arguments(decoder: msgspec.json.Decoder[E], raw: msgspec.Raw) -> E | None:
    try:
        return decoder.decode(raw)
    except msgspec.MsgspecError:
        return None


def _reals(values: list[Any]) -> Any:
    try:
        return np.array([float("nan") if v is None else v for v in values], np.float64)
    except (TypeError, ValueError):
        return np.array([ev.real(v) for v in values], np.float64)
