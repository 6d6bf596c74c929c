"""Timelines as Kineto (PyTorch profiler) Chrome JSON: one file per class of ranks with the same timeline.

Layout of events after the profiler's own files: host spans `ProfilerStep#N` (or one span per serving iteration),
`cuda_runtime` launches inside them, kernels and copies with the launch's correlation id on their stream, collective
arguments under the names NCCL's profiler hooks use. Times are microseconds with three decimals.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backends.graph import COMPUTE
from backends.layout import Groups
from backends.memory import waves
from backends.ops import Communication, Compute, Transfer
from backends.timeline import Piece, RankTimeline, SimulationResult, TaskRun

WARMUP_STEPS = 5
RECORDED_STEPS = 5
BASE_NS = 1_700_000_000_000_000_000
"""Time zero of every trace: a fixed date, so that equal simulations write equal files."""
HOST_PID = 1000
LAUNCH_NS = 2000

_NCCL = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_{dtype}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce_scatter": (
        "_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_{dtype}_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    "all_to_all": ("all_to_all", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    "broadcast": ("broadcast", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "send_recv": ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}  # fmt: skip
_DTYPE = {1: ("Byte", "u8"), 2: ("BFloat16", "bf16"), 4: ("Float", "f32")}
_STREAMS = {COMPUTE: 7, "copy": 13}
_AXES = {"tp": "tensor", "cp": "context", "ep": "expert", "dp": "data", "edp": "expert_data", "pp": "pipeline",
         "replicate": "replicate", "world": "default_pg"}  # fmt: skip


@dataclass(frozen=True)
class TraceInfo:
    """What was written: the files, steps simulated before recording, steps recorded, decode iterations among them."""

    files: tuple[Path, ...]
    warmup_steps: int
    recorded_steps: int
    decode_steps: int

    def as_dict(self) -> dict[str, int]:
        """The counts."""
        return {
            "warmup_steps": self.warmup_steps, "recorded_steps": self.recorded_steps, "decode_steps": self.decode_steps,
        }  # fmt: skip


def write_traces(result: SimulationResult, directory: Path, compress: bool = False) -> TraceInfo:
    """Write one `rank<R>_trace.json` (`.json.gz` when `compress`) per rank class, R the first rank it represents.

    A training step is written RECORDED_STEPS times; the WARMUP_STEPS before it are only named in the metadata,
    because a simulated step has no transient. Inference writes each simulated iteration once.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for timeline in result.timelines:
        data = encode_trace(result, timeline)
        path = directory / f"rank{timeline.represents[0]}_trace.json{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(data, 1, mtime=0) if compress else data)
        files.append(path)
    serving = not result.graph.workload.is_training
    decode = sum(phase == "decode" for phase in _iteration_phases(result.timelines[0]).values()) if serving else 0
    recorded = result.graph.steps if serving else RECORDED_STEPS
    return TraceInfo(tuple(files), WARMUP_STEPS, recorded, decode)


def encode_trace(result: SimulationResult, timeline: RankTimeline) -> bytes:
    """The trace of one rank class, as JSON text."""
    head = msgspec.json.format(msgspec.json.encode(_metadata(result, timeline)), indent=1)
    events = _Writer(result, timeline).events()
    return head.rstrip()[:-1].rstrip() + b',\n"traceEvents":[\n' + ",\n".join(events).encode() + b"\n]}"


def _metadata(result: SimulationResult, timeline: RankTimeline) -> dict[str, Any]:
    ranks, plan = timeline.represents, result.graph.plan
    memory = int(result.memory.limit_bytes) if result.memory else 0
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": 0, "name": result.device_name, "totalGlobalMem": memory, "numSms": result.multiprocessors,
                "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "warpSize": 32,
            }
        ],
        "distributedInfo": {
            "backend": "nccl", "rank": ranks[0], "world_size": plan.world_size, "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": plan.world_size,
                           "ranks": list(range(plan.world_size))}],
        },
        "represents": list(ranks),
        "pipeline_stage": timeline.rank_class.stage,
        "simulated": {
            "backend": result.backend, "version": result.version, "calibration": result.calibration,
            "detail": result.detail, "warmup_steps": WARMUP_STEPS, "waves": waves(result.graph.workload, plan),
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceName": f"rank{ranks[0]}_trace.json",
    }  # fmt: skip


def _iteration_phases(timeline: RankTimeline) -> dict[int, str]:
    return {r.task.step: r.task.phase for r in timeline.runs if r.task.phase in ("prefill", "decode")}


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


@dataclass
class _Writer:
    """Writes the events of one rank class as JSON text, one object a line."""

    result: SimulationResult
    timeline: RankTimeline
    correlation: int = 0
    _heads: dict[int, tuple[str, str]] = field(default_factory=dict)
    _sequence: dict[str, int] = field(default_factory=dict)
    _streams: dict[str, int] = field(default_factory=lambda: dict(_STREAMS))
    _groups: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)

    def events(self) -> list[str]:
        """All events: names first, then step by step."""
        lines: list[str] = []
        if self.result.graph.workload.is_training:
            start, end = self.timeline.spans[0]
            for repeat in range(RECORDED_STEPS):
                name = f"ProfilerStep#{WARMUP_STEPS + repeat}"
                self._step(lines, name, repeat * (end - start), (start, end), self.timeline.runs)
        else:
            self._iterations(lines)
        return [*self._names(), *lines]

    def _iterations(self, lines: list[str]) -> None:
        for step, span in enumerate(self.timeline.spans):
            runs = self.timeline.step_runs[step]
            delay = step * self._overhead_ns
            self._step(lines, self._iteration_name(runs), delay, (span[0] - delay, span[1] - delay), runs)

    @property
    def _overhead_ns(self) -> int:
        """What calibration adds to every step: later iterations start later by as much."""
        first = self.timeline.spans[0]
        ends = [run.end for run in self.timeline.runs if run.task.step == 0 and run.task.stream == COMPUTE]
        return first[1] - max(ends) if len(self.timeline.spans) > 1 else 0

    def _iteration_name(self, runs: tuple[TaskRun, ...]) -> str:
        """The span name serving engines write: requests and tokens in prefill, then in decode."""
        work = [run.task for run in runs if run.task.phase in ("prefill", "decode")]
        requests, tokens = work[0].work if work else (0, 0)
        if work and work[0].phase == "decode":
            return f"execute_context_0(0)_generation_{requests}({tokens})"
        return f"execute_context_{requests}({tokens})_generation_0(0)"

    # --- one step ---------------------------------------------------------------------------------------------------

    def _step(self, lines: list[str], name: str, shift: int, span: tuple[int, int], runs: Any) -> None:
        start, end = span[0] + shift, span[1] + shift
        lines.append(self._span("user_annotation", name, HOST_PID, HOST_PID, start, end - start))
        lines += self._memory(start, end)
        for run in runs:
            self._task(lines, run, shift, (start, end))
        lines += [
            self._span("gpu_user_annotation", "bubble", 0, 7, a + shift, b - a, '"bubble":true')
            for a, b in _bubbles(runs, span)
        ]

    def _task(self, lines: list[str], run: TaskRun, shift: int, step: tuple[int, int]) -> None:
        task, at = run.task, run.start + shift
        if task.stream == COMPUTE:
            about = f'"pass":"{task.phase}","microbatch":{task.microbatch},"chunk":{task.chunk}'
            lines.append(self._span("gpu_user_annotation", task.label, 0, 7, at, run.end - run.start, about))
        stream = self._stream(task.stream)
        graph_launch = self._shared_launch(lines, task.stream, stream, _inside(step, at))
        for group in run.runs:
            for turn in range(group.times):
                base = at + group.offset + turn * group.stride
                for piece in group.pieces:
                    self._piece(lines, piece, base + piece.start, stream, step, graph_launch)

    def _shared_launch(self, lines: list[str], name: str, stream: int, at: int) -> int | None:
        """One launch for all kernels of a task: a CUDA graph's, or that of folded kernels."""
        if self.result.graph.plan.cuda_graph and name == COMPUTE:
            return self._launch(lines, "cudaGraphLaunch", stream, at)
        if self.result.detail != "kernel" and name != "copy":
            return self._launch(lines, "cudaLaunchKernel", stream, at)
        return None

    def _piece(
        self, lines: list[str], piece: Piece, at: int, stream: int, step: tuple[int, int], graph_launch: int | None
    ) -> None:
        found = self._heads.get(id(piece))
        if found is None:
            found = self._heads[id(piece)] = self._describe(piece, stream)
        head, tail = found
        if piece.what == "copy":
            correlation = self._launch(lines, "cudaMemcpyAsync", stream, _inside(step, at))
        elif graph_launch is None:
            correlation = self._launch(lines, "cudaLaunchKernel", stream, _inside(step, at))
        else:
            correlation = graph_launch
        if piece.what == "communication":
            tail = f"{tail},{self._number(piece)}"
        lines.append(f'{head},"ts":{at // 1000}.{at % 1000:03d},"args":{{"correlation":{correlation},{tail}}}}}')

    def _launch(self, lines: list[str], name: str, stream: int, at: int) -> int:
        self.correlation += 1
        lines.append(
            f'{{"ph":"X","cat":"cuda_runtime","name":"{name}","pid":{HOST_PID},"tid":{HOST_PID + stream},'
            f'"ts":{at // 1000}.{at % 1000:03d},"dur":2,"args":{{"correlation":{self.correlation}}}}}'
        )
        return self.correlation

    def _span(self, cat: str, name: str, pid: int, tid: int, at: int, took: int, args: str = "") -> str:
        return (
            f'{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{_us(at)},"dur":{_us(took)},'
            f'"args":{{{args}}}}}'
        )

    def _stream(self, name: str) -> int:
        return self._streams.setdefault(name, 20 + len(self._streams))

    # --- what a kernel says about itself ----------------------------------------------------------------------------

    def _describe(self, piece: Piece, stream: int) -> tuple[str, str]:
        """The constant text of a piece: everything but its time, correlation and sequence number."""
        category, name, args = self._facts(piece)
        if isinstance(piece.item, Communication):
            stream = self._stream(f"nccl {piece.item.axis}") if piece.item.axis != "pp" else stream
        head = f'{{"ph":"X","cat":"{category}","name":{_text(name)},"pid":0,"tid":{stream},"dur":{_us(piece.duration)}'
        inside = _text({"device": 0, "context": 1, "stream": stream, **args})[1:-1]
        return head, inside

    def _facts(self, piece: Piece) -> tuple[str, str, dict[str, Any]]:
        item = piece.item
        if isinstance(item, Transfer):
            speed = item.nbytes / max(piece.duration, 1)
            return "gpu_memcpy", item.name, {"bytes": int(item.nbytes), "memory bandwidth (GB/s)": round(speed, 3)}
        if isinstance(item, Compute):
            return "kernel", kernel_name(piece), self._launch_facts(piece.blocks, 256, piece.count)
        _, kernel = _NCCL[item.kind]
        dtype, short = _DTYPE[item.dtype_bytes]
        facts = self._launch_facts(16, 544, piece.count)
        return "kernel", kernel.format(dtype=short), {**facts, **self._collective_facts(item, piece.groups, dtype)}

    def _launch_facts(self, blocks: int, threads: int, count: int) -> dict[str, Any]:
        multiprocessors = max(1, self.result.multiprocessors)
        blocks = max(1, blocks)
        facts: dict[str, Any] = {
            "grid": [blocks, 1, 1],
            "block": [threads, 1, 1],
            "blocks per SM": round(blocks / multiprocessors, 6),
            "warps per SM": round(blocks * (threads / 32) / multiprocessors, 6),
        }
        return {**facts, "folded": count} if count > 1 else facts

    def _collective_facts(self, item: Communication, groups: Groups, dtype: str) -> dict[str, Any]:
        elements = int(item.nbytes / item.dtype_bytes)
        name, size = self._group(item, groups)
        inputs = elements // size if item.kind == "all_gather" else elements
        outputs = elements // size if item.kind == "reduce_scatter" else elements
        rank = self.timeline.represents[0]
        members = next((g for g in groups if rank in g), groups[0])
        receives = item.kind == "send_recv" and members[0] != rank
        return {
            "Collective name": "recv" if receives else _NCCL[item.kind][0],
            "In msg nelems": inputs,
            "Out msg nelems": outputs,
            "Group size": size,
            "dtype": dtype,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": name,
            "Process Group Description": _AXES[item.axis],
            "Process Group Ranks": str(list(members)),
            "operation": item.name,
        }

    def _group(self, item: Communication, groups: Groups) -> tuple[str, int]:
        """A process group's name, the same on all its ranks, and its size."""
        members = next((g for g in groups if self.timeline.represents[0] in g), groups[0])
        return f"{_AXES[item.axis]}_{'_'.join(map(str, members[:1] + members[-1:]))}", len(members)

    def _number(self, piece: Piece) -> str:
        assert isinstance(piece.item, Communication)
        name, _ = self._group(piece.item, piece.groups)
        self._sequence[name] = self._sequence.get(name, 0) + 1
        return f'"Seq":{self._sequence[name]}'

    # --- around the steps -------------------------------------------------------------------------------------------

    def _memory(self, start: int, end: int) -> Iterator[str]:
        """Allocated bytes at the start of a step, at its peak and at its end."""
        memory = self.result.memory
        if memory is None:
            return
        kept = sum(memory.parts.get(name, 0.0) for name in ("weights", "gradients", "optimizer", "kv_cache"))
        peak = memory.total_bytes - memory.parts.get("framework", 0.0)
        before = 0.0
        for at, size in ((start, kept), ((start + end) // 2, peak), (max(start, end - 1), kept)):
            args = {
                "Total Reserved": int(peak), "Total Allocated": int(size), "Bytes": int(size - before),
                "Addr": 0, "Device Id": 0, "Device Type": 1,
            }  # fmt: skip
            before = size
            yield (
                f'{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","s":"t","pid":{HOST_PID},"tid":{HOST_PID},'
                f'"ts":{_us(at)},"args":{_text(args)}}}'
            )

    def _names(self) -> Iterator[str]:
        rank, stage = self.timeline.represents[0], self.timeline.rank_class.stage
        for pid, label in ((HOST_PID, f"rank {rank} (host)"), (0, f"rank {rank}, stage {stage} (device)")):
            yield f'{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"ts":0,"args":{{"name":"{label}"}}}}'
        for name, stream in self._streams.items():
            yield (
                f'{{"ph":"M","name":"thread_name","pid":0,"tid":{stream},"ts":0,'
                f'"args":{{"name":"stream {stream} {name}"}}}}'
            )


def kernel_name(piece: Piece) -> str:
    """A kernel name as profilers show them: the library's family of kernels, then the operation."""
    assert isinstance(piece.item, Compute)
    family = {
        "gemm": "cutlass_bf16_gemm_tn", "grouped_gemm": "moe_grouped_gemm_bf16", "attention": "flash_fwd_kernel",
        "attention_backward": "flash_bwd_kernel", "norm": "rms_norm_kernel", "routing": "moe_permute_topk_kernel",
        "embedding": "embedding_kernel", "loss": "cross_entropy_kernel", "optimizer": "multi_tensor_apply_kernel",
        "elementwise": "vectorized_elementwise_kernel", "copy": "copy_kernel",
    }.get(piece.item.kind, "kernel")  # fmt: skip
    return f"{family}<{piece.name}>"


def _inside(step: tuple[int, int], at: int) -> int:
    """When the host launches what starts at `at`: a little earlier, and always within the step it belongs to."""
    return min(max(step[0], at - 2 * LAUNCH_NS), step[1] - 1)


def _bubbles(runs: Any, span: tuple[int, int]) -> list[tuple[int, int]]:
    """Gaps of a step in which no task of the rank is under way."""
    at, gaps = span[0], list[tuple[int, int]]()
    for run in sorted(runs, key=lambda run: run.start):
        start = min(run.start, span[1])
        if start > at:
            gaps.append((at, start))
        at = max(at, min(run.end, span[1]))
    if at < span[1]:
        gaps.append((at, span[1]))
    return gaps
