"""Small traces in the real schemas: Kineto JSON, XLA JSON, Nsight Systems SQLite. Times are given in integer
nanoseconds."""

from __future__ import annotations

import gzip
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def micros(ns: int) -> str:
    """Decimal microseconds with three digits, exactly."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def collective(name: str, inside: int, outside: int, size: int, dtype: str = "BFloat16", **more: Any) -> dict[str, Any]:
    """Collective arguments as NCCL kernels carry them; `inside` and `outside` are elements."""
    ranks = more.pop("ranks", list(range(size)))
    return {
        "Collective name": name, "In msg nelems": inside, "Out msg nelems": outside, "Group size": size, "dtype": dtype,
        "In split size": "[]", "Out split size": "[]", "Process Group Name": more.pop("group", "0"),
        "Process Group Description": "default_pg", "Process Group Ranks": str(ranks), **more,
    }  # fmt: skip


@dataclass
class Kineto:
    """One rank's Kineto file under construction."""

    rank: int | None = 0
    world: int | None = 1
    sms: int | None = 132
    represents: list[int] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _next: int = 1

    def event(self, cat: str, name: Any, start: int, duration: int, **more: Any) -> dict[str, Any]:
        """Any X event; `more` may hold pid, tid and args."""
        event = {
            "ph": "X", "cat": cat, "name": name, "pid": more.get("pid", 100), "tid": more.get("tid", 100),
            "ts": start, "dur": duration, "args": more.get("args", {}),
        }  # fmt: skip
        self.events.append(event)
        return event

    def step(self, number: int, start: int, duration: int) -> None:
        """A ProfilerStep span on the host."""
        self.event("user_annotation", f"ProfilerStep#{number}", start, duration)

    def kernel(self, name: str, start: int, duration: int, launch: int | None = None, **args: Any) -> int:
        """A kernel and, where `launch` is given, the call that launched it; its correlation id."""
        device, stream, cat = args.pop("device", 0), args.pop("stream", 7), args.pop("cat", "kernel")
        tid = args.pop("thread", 100)
        number, self._next = self._next, self._next + 1
        facts = {"device": device, "stream": stream, "correlation": number, **args}
        self.event(cat, name, start, duration, pid=device, tid=stream, args=facts)
        if launch is not None:
            self.event("cuda_runtime", "cudaLaunchKernel", launch, 1000, tid=tid, args={"correlation": number})
        return number

    def copy(self, name: str, start: int, duration: int, nbytes: int | None, launch: int | None = None) -> None:
        """A memory copy (or memset, by its name)."""
        cat = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
        self.kernel(name, start, duration, launch, cat=cat, **({} if nbytes is None else {"bytes": nbytes}))

    def memory(self, time: int, allocated: int | None, device_type: int = 1) -> None:
        """A [memory] instant."""
        args = {"Device Type": device_type, "Device Id": 0, "Bytes": 1}
        args |= {} if allocated is None else {"Total Allocated": allocated}
        self.events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 100,
                            "ts": time, "args": args})  # fmt: skip

    def noise(self, start: int) -> None:
        """What surrounds every launch: frames, operators, flow arrows, names."""
        self.event("python_function", "torch/nn/modules/module.py(1553): _call_impl", start, 500)
        self.event("cpu_op", "aten::linear", start, 400, args={"External id": 5, "Input Dims": [[1, 2], []]})
        self.event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", start, 400)
        self.events.append({"ph": "s", "id": 9, "pid": 100, "tid": 100, "ts": start, "cat": "ac2g", "name": "ac2g"})
        self.events.append({"name": "process_name", "ph": "M", "ts": start, "pid": 100, "tid": 0,
                            "args": {"name": "python"}})  # fmt: skip

    # --- writing ----------------------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """The top level without the events."""
        out: dict[str, Any] = {"schemaVersion": 1}
        if self.sms is not None:
            out["deviceProperties"] = [{"id": i, "name": "NVIDIA H100", "numSms": self.sms} for i in range(8)]
        if self.rank is not None:
            out["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        if self.represents is not None:
            out["represents"] = self.represents
        return out

    def text(self, layout: str = "kineto", whole_us: bool = False) -> str:
        """The file. Layouts: `kineto` (the profiler's own), `compact`, `indented`, `name_first`, `list`, `tail`
        (metadata after the events)."""
        chunks = [_encode(event, layout, whole_us) for event in self.events]
        head = json.dumps(self.metadata())[:-1]
        if layout == "list":
            return "[" + ",\n".join(chunks) + "]"
        if layout == "tail":
            return '{"traceEvents": [\n' + ",\n".join(chunks) + "\n]," + head[1:] + "}"
        if layout == "kineto":
            return head + ',\n  "traceEvents": [\n  ' + ",\n  ".join(chunks) + '\n  ],\n  "traceName": "x.json"\n}'
        return head + ', "traceEvents": [' + ", ".join(chunks) + "]}"

    def write(self, path: Path, layout: str = "kineto", whole_us: bool = False) -> Path:
        """Write the file, compressed where its name says so."""
        data = self.text(layout, whole_us).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def _encode(event: dict[str, Any], layout: str, whole_us: bool) -> str:
    """One event; times are written as decimal text, not through a float."""
    times = {}
    for key in ("ts", "dur"):
        if isinstance(event.get(key), int):
            times[key] = str(event[key] // 1000) if whole_us else micros(event[key])
    plain = {key: (f"@{key}@" if key in times else value) for key, value in event.items()}
    if layout == "name_first":
        plain = {"name": plain.pop("name"), **plain}
    if layout == "kineto":
        text = _as_kineto(plain)
    elif layout == "indented":
        text = json.dumps(plain, indent=2)
    else:
        text = json.dumps(plain, separators=(",", ":") if layout == "compact" else None)
    for key, value in times.items():
        text = text.replace(f'"@{key}@"', value)
    return text


def _as_kineto(event: dict[str, Any]) -> str:
    """Line breaks where the profiler's logger puts them."""
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.items() if key != "args"]
    args = event.get("args")
    inner = ",".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in args.items()) if args is not None else None
    tail = f',\n    "args": {{\n      {inner}\n    }}' if inner is not None else ""
    return "{\n    " + ", ".join(parts) + tail + "\n  }"


@dataclass
class Xla:
    """An XLA profile under construction. Device times in picoseconds, host-aligned times in nanoseconds."""

    chips: int = 1
    kind: str = "TPU"
    lanes: tuple[str, ...] = ("XLA Modules", "XLA Ops", "Framework Ops", "Steps")
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for chip in range(self.chips):
            self._name("process_name", 3 + chip, 0, f"/device:{self.kind}:{chip}")
            for tid, lane in enumerate(self.lanes, 2):
                self._name("thread_name", 3 + chip, tid, lane)
        self._name("process_name", 701, 0, "/host:CPU")
        self._name("thread_name", 701, 1, "python")

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        self.events.append({"args": {"name": name}, "name": what, "ph": "M", "pid": pid, "tid": tid})

    def add(self, chip: int, lane: str, name: str, ts: int, dur: int, args: dict[str, Any] | None = None) -> None:
        """Any event of a device lane; ts and dur in ns."""
        event = {
            "ph": "X",
            "name": name,
            "pid": 3 + chip,
            "tid": 2 + self.lanes.index(lane),
            "ts": ts / 1000,
            "dur": dur / 1000,
        }
        self.events.append(event | ({"args": args} if args is not None else {}))

    def module(self, chip: int, name: str, ts: int, dur: int) -> None:
        """An execution of a module."""
        self.add(chip, "XLA Modules", f"{name}(123456789)", ts, dur, {"run_id": "1"})

    def op(self, chip: int, category: str, ts: int, dur: int, name: str | None = None, **args: Any) -> None:
        """An op whose device clock runs 1 ms ahead of the host-aligned one; XLA writes numbers as text."""
        facts = {
            "hlo_category": category,
            "device_offset_ps": str(ts * 1000 - 10**9),
            "device_duration_ps": str(dur * 1000),
        }
        self.add(chip, "XLA Ops", name or category, ts, dur, facts | {k: str(v) for k, v in args.items()})

    def host(self, name: str, ts: int, dur: int) -> None:
        """A host span."""
        self.events.append({"ph": "X", "name": name, "pid": 701, "tid": 1, "ts": ts / 1000, "dur": dur / 1000})

    def write(self, path: Path) -> Path:
        """Write trace.json(.gz); the profiler ends its list with an empty object."""
        body = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*self.events, {}]}
        data = json.dumps(body).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


_NSYS_TABLES = {
    "StringIds": "id INTEGER, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, "
    "gridZ INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, globalPid INTEGER, "
    "bytes INTEGER, copyKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER, "
    "value INTEGER, bytes INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT, numMultiprocessors INTEGER",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, smCount INTEGER, cuDevice INTEGER",
    "GPU_METRICS": "timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER",
    "TARGET_INFO_GPU_METRICS": "typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
}  # fmt: skip


def global_pid(pid: int) -> int:
    """A process id as Nsight packs it."""
    return (1 << 48) | (pid << 24)


def nsys(path: Path, tables: dict[str, list[tuple[Any, ...]]]) -> Path:
    """An export with these tables; rows are tuples in the order of the schema above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    for name, rows in tables.items():
        connection.execute(f"CREATE TABLE {name} ({_NSYS_TABLES[name]})")
        if rows:
            marks = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    connection.commit()
    connection.close()
    return path
