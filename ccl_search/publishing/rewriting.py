"""Rewriting traces before they are published: names redacted, operators renamed, times perturbed.

Times are perturbed by a warp of the time axis, t + Σ aₖ sin(2πt/λₖ + φₖ), the same for all ranks of a trial. With
Σ aₖ·2π/λₖ = `largest` its slope stays within 1 ± `largest`, so that the order of events, what overlaps what, and what
contains what are kept, while every duration changes. Wavelengths reach from kernels to whole runs; phases come from a
seed and the trial's number.
"""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ccl_search.publishing.names import Redactor
from runs.errors import BadInputError

LARGEST = 0.2
"""The largest relative change of any duration."""

_WAVES = 12
_SHORTEST_US, _LONGEST_US = 20.0, 5e6
_PS_PER_US = 1e6
_KEPT_CATEGORIES = ("cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset", "cpu_instant_event", "ac2g", "fwdbwd")
_KEPT_ARGUMENTS = frozenset(
    {
        "correlation", "device", "context", "stream", "grid", "block", "blocks per SM", "warps per SM", "External id",
        "registers per thread", "shared memory", "est. achieved occupancy %", "queued", "bytes", "cbid",
        "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size", "Out split size",
        "Process Group Name", "Process Group Description", "Process Group Ranks", "Seq", "Comms Id", "Rank", "Src Rank",
        "Dst Rank", "Total Reserved", "Total Allocated", "Bytes", "Addr", "Device Id", "Device Type", "hlo_category",
        "model_flops", "flops", "bytes_accessed", "raw_bytes_accessed", "device_offset_ps", "device_duration_ps",
        "run_id", "name", "sort_index", "labels", "memory bandwidth (GB/s)",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Warp:
    """A strictly increasing map of microseconds to microseconds (see the module's text)."""

    waves: tuple[tuple[float, float, float], ...]

    @classmethod
    def of(cls, seed: int, trial: int, largest: float = LARGEST) -> Warp:
        """The warp of one trial."""
        draw = random.Random(f"{seed}:{trial}")  # noqa: S311 - reproducible, no secret
        ratio = (_LONGEST_US / _SHORTEST_US) ** (1 / (_WAVES - 1))
        lengths = [_SHORTEST_US * ratio**k * draw.uniform(0.8, 1.25) for k in range(_WAVES)]
        turn = 2 * math.pi
        return cls(tuple((largest / _WAVES * length / turn, length, draw.uniform(0, turn)) for length in lengths))

    def __call__(self, microseconds: float) -> float:
        shift = (a * math.sin(2 * math.pi * microseconds / length + phase) for a, length, phase in self.waves)
        return microseconds + math.fsum(shift)


@dataclass
class OperatorNames:
    """Neutral names for operators, the same for the same operator in all trials. Names that say what kind of transfer,
    collective or step an event is are kept: without them a trace tells nothing."""

    _words: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, category: str) -> str:
        """The name to be published."""
        from metrics import identify

        if category in _KEPT_CATEGORIES or _tells_structure(name) or identify.communicates(name):
            return name
        if name not in self._words:
            word = f"operator-{len(self._words) + 1}"
            self._words[name] = f"moe::{word}" if identify.flags(name) and identify.flags(f"moe::{word}") else word
        return self._words[name]

    def __len__(self) -> int:
        return len(self._words)


@dataclass(frozen=True)
class TraceRewriter:
    """What is done to every trace. Without `operators` their names stay, without `warp` the times do."""

    redactor: Redactor
    operators: OperatorNames | None = None
    warp: Warp | None = None

    def rewritten(self, data: bytes, path: str) -> bytes:
        """The trace file with everything done to it.

        Raises:
            BadInputError: it is no JSON trace, so that what it says cannot be known.
        """
        packed = data[:2] == b"\x1f\x8b"
        try:
            document = msgspec.json.decode(gzip.decompress(data) if packed else data)
        except (msgspec.DecodeError, OSError, EOFError) as error:
            raise BadInputError(
                f"{path} cannot be anonymised: it is no JSON ({error})", "publish with --metrics-only, or without it"
            ) from error
        text = self._encoded(document)
        return gzip.compress(text, 9, mtime=0) if packed else text

    def _encoded(self, document: Any) -> bytes:
        events = document.get("traceEvents") if isinstance(document, dict) else document
        if not isinstance(events, list):
            return msgspec.json.encode(self.redactor.data(document))
        lines = b",\n".join(msgspec.json.encode(self._event(event)) for event in events)
        if isinstance(document, list):
            return b"[\n" + lines + b"\n]"
        head = msgspec.json.encode(self.redactor.data({k: v for k, v in document.items() if k != "traceEvents"}))
        return head[:-1] + (b"," if len(head) > 2 else b"") + b'"traceEvents":[\n' + lines + b"\n]}"

    def _event(self, event: Any) -> Any:
        if not isinstance(event, dict):
            return self.redactor.data(event)
        changed = dict(event) if event.get("cat") == "kernel" and self.operators is None else self.redactor.data(event)
        if self.operators is not None and event.get("ph") != "M":
            changed["name"] = self.operators.of(str(event.get("name", "")), str(event.get("cat", "")))
            changed["args"] = _only_known(changed.get("args"))
        if event.get("ph") != "M":
            self._retime(changed)
        return changed

    def _retime(self, event: dict[str, Any]) -> None:
        start: Any = event.get("ts")
        duration: Any = event.get("dur", 0)
        if type(start) not in (int, float) or type(duration) not in (int, float):
            return
        if self.warp is None:
            _exact(event)
            return
        moved, ended = self.warp(start), self.warp(start + duration)
        event["ts"] = moved
        if "dur" in event:
            event["dur"] = max(0.0, ended - moved)
        _retime_device(event.get("args"), moved - start, ended - moved)
        _exact(event)


def _retime_device(arguments: Any, shift_us: float, duration_us: float) -> None:
    """XLA events say their place on the device's clock too, in picoseconds."""
    if not isinstance(arguments, dict):
        return
    if "device_offset_ps" in arguments:
        offset = float(arguments["device_offset_ps"]) + shift_us * _PS_PER_US
        arguments["device_offset_ps"] = type(arguments["device_offset_ps"])(round(offset))
    if "device_duration_ps" in arguments:
        arguments["device_duration_ps"] = type(arguments["device_duration_ps"])(round(duration_us * _PS_PER_US))
    for name in ("memory bandwidth (GB/s)", "queued"):
        arguments.pop(name, None)


def _exact(event: dict[str, Any]) -> None:
    """Times as the profiler writes them: microseconds with three decimals."""
    for key in ("ts", "dur"):
        if isinstance(event.get(key), float):
            event[key] = msgspec.Raw(f"{event[key]:.3f}".encode())


def _only_known(arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):
        return {}
    return {key: value for key, value in arguments.items() if key in _KEPT_ARGUMENTS}


def _tells_structure(name: str) -> bool:
    return name.startswith(("ProfilerStep#", "[memory]", "Memcpy", "Memset", "$core.py", "execute_", "step["))
