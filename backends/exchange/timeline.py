"""The timeline of a run of traces as Kineto (PyTorch profiler) Chrome JSON, as `backends.trace` writes steps.

One host span `ProfilerStep#5` holds the run; kernels and transfers are on the streams of their unit, collectives carry
the arguments of NCCL's profiler hook. A transfer is drawn from when it gets under way; the wait before it, and every
other wait for another rank, is a `bubble`.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.exchange.execution import Span
from backends.exchange.operations import CollectiveCall, MemoryAccess, MessageCall, Operation
from backends.exchange.raw import RawResult
from backends.trace import BASE_NS, HOST_PID, LAUNCH_NS, WARMUP_STEPS

_STREAMS = {"gpu": 7, "cpu": HOST_PID, "memory": 13, "comm": 20, "receive": 21}
_KERNELS = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_u8_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_u8_RING_LL()"),
    "all_to_all": ("all_to_all", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    "broadcast": ("broadcast", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "send": ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    "recv": ("recv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}


@dataclass(frozen=True)
class RankClass:
    """Ranks whose nodes ran at the same times, in ascending order."""

    ranks: tuple[int, ...]
    spans: tuple[Span, ...]


def rank_classes(result: RawResult) -> list[RankClass]:
    """Ranks by their timelines."""
    alike: dict[Hashable, list[int]] = {}
    for rank, spans in enumerate(result.spans):
        key = tuple((span.node.id, span.node.name, span.start, span.moving, span.end, _unit(span)) for span in spans)
        alike.setdefault(key, []).append(rank)
    return [RankClass(tuple(ranks), result.spans[ranks[0]]) for ranks in alike.values()]


def write_traces(result: RawResult, folder: Path) -> tuple[Path, ...]:
    """Write `rank<R>_trace.json` for each class of ranks with the same timeline, R its first rank.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for one in rank_classes(result):
        path = folder / f"rank{one.ranks[0]}_trace.json"
        path.write_text(json.dumps(_document(result, one), separators=(",", ":")), encoding="utf-8")
        files.append(path)
    return tuple(files)


def _document(result: RawResult, one: RankClass) -> dict[str, Any]:
    rank, ranks = one.ranks[0], result.inputs.ranks
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "", "totalGlobalMem": 0, "numSms": 1}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": 1},
        "represents": list(one.ranks),
        "simulated": {"backend": result.backend, "version": result.version, "source": "Chakra execution traces"},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceName": f"rank{rank}_trace.json",
        "traceEvents": [*_names(rank), *_events(one, rank)],
    }


def _names(rank: int) -> Iterator[dict[str, Any]]:
    for pid, label in ((HOST_PID, f"rank {rank} (host)"), (0, f"rank {rank} (device)")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": label}}
    for name, stream in _STREAMS.items():
        if name != "cpu":
            label = f"stream {stream} {name}"
            yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": stream, "ts": 0, "args": {"name": label}}


def _events(one: RankClass, rank: int) -> Iterator[dict[str, Any]]:
    wall = max(span.end for span in one.spans)
    yield _event("user_annotation", f"ProfilerStep#{WARMUP_STEPS}", HOST_PID, HOST_PID, (0, wall), {})
    numbers: dict[str, int] = {}
    for correlation, span in enumerate(sorted(one.spans, key=lambda span: (span.moving, span.node.id)), 1):
        if span.end == span.moving:
            continue
        stream = _STREAMS[_unit(span)]
        if stream == HOST_PID:
            yield _event("cpu_op", span.node.name, HOST_PID, HOST_PID, (span.start, span.end), {})
            continue
        launched = max(0, span.moving - 2 * LAUNCH_NS)
        at = (min(launched, wall - 1), min(launched, wall - 1) + LAUNCH_NS)
        yield _event("cuda_runtime", "cudaLaunchKernel", HOST_PID, HOST_PID + stream, at, {"correlation": correlation})
        category, name, facts = _facts(span.what, span.node.name, rank, numbers)
        arguments = {"correlation": correlation, "device": 0, "stream": stream, "node": span.node.id, **facts}
        yield _event(category, name, 0, stream, (span.moving, span.end), arguments)
    for gap in _bubbles(one, wall):
        yield _event("gpu_user_annotation", "bubble", 0, _STREAMS["gpu"], gap, {"bubble": True})


def _event(
    category: str, name: str, pid: int, tid: int, interval: tuple[int, int], arguments: dict[str, Any]
) -> dict[str, Any]:
    start, end = interval
    times = {"ts": round(start / 1000, 3), "dur": round((end - start) / 1000, 3)}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": arguments}


def _unit(span: Span) -> str:
    what = span.what
    if isinstance(what, CollectiveCall):
        return "comm"
    if isinstance(what, MessageCall):
        return "comm" if what.sends else "receive"
    return "memory" if isinstance(what, MemoryAccess) else what.unit


def _facts(what: Operation, node: str, rank: int, numbers: dict[str, int]) -> tuple[str, str, dict[str, Any]]:
    """Category, name and arguments of an operation on the device."""
    if isinstance(what, MemoryAccess):
        return "gpu_memcpy", node, {"bytes": what.size}
    if not isinstance(what, CollectiveCall | MessageCall):
        return "kernel", node, {}
    members: tuple[int, ...]
    if isinstance(what, MessageCall):
        kind, group, members = "send" if what.sends else "recv", "messages", (what.source, what.target)
        received = sent = what.size
    else:
        kind, group, members = what.kind, f"group {what.group}", what.members
        sent = what.size
        received = {"all_gather": sent * len(members), "reduce_scatter": sent // len(members)}.get(kind, sent)
    called, kernel = _KERNELS[kind]
    numbers[group] = numbers.get(group, 0) + 1
    return "kernel", kernel, {
        "Collective name": called, "In msg nelems": sent, "Out msg nelems": received, "Group size": len(members),
        "dtype": "Byte", "Process Group Name": group, "Process Group Ranks": str(list(members)), "operation": node,
        "Seq": numbers[group],
    }  # fmt: skip


def _bubbles(one: RankClass, wall: int) -> Iterator[tuple[int, int]]:
    """Gaps in which nothing of the rank works or moves."""
    reached = 0
    for start, end in sorted((span.moving, span.end) for span in one.spans):
        if start > reached:
            yield reached, start
        reached = max(reached, end)
    if wall > reached:
        yield reached, wall
