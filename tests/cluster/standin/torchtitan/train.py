"""Stands in for `torchtitan.train` of the releases 0.2: takes their arguments and no others, trains nothing.

A step takes as long as `step_ms` says, without waiting for it: the trace of every rank is written as the profiler
would have written it, and steps under the profiler are logged as `PROFILED` times longer than others. Some configs do
not fit, and end as PyTorch's do.
"""

import json
import math
import os
import sys
from pathlib import Path

VALUES = {
    "--job.config_file", "--job.dump_folder", "--job.description", "--model.name", "--model.flavor",
    "--model.hf_assets_path", "--training.dataset", "--training.dataset_path", "--training.local_batch_size",
    "--training.global_batch_size", "--training.seq_len", "--training.steps", "--training.mixed_precision_param",
    "--training.mixed_precision_reduce", "--parallelism.data_parallel_replicate_degree",
    "--parallelism.data_parallel_shard_degree", "--parallelism.fsdp_reshard_after_forward",
    "--parallelism.tensor_parallel_degree", "--parallelism.pipeline_parallel_degree",
    "--parallelism.pipeline_parallel_schedule", "--parallelism.pipeline_parallel_microbatch_size",
    "--parallelism.context_parallel_degree", "--parallelism.expert_parallel_degree",
    "--parallelism.expert_tensor_parallel_degree", "--activation_checkpoint.mode", "--profiling.profile_freq",
    "--profiling.save_traces_folder", "--profiling.profiler_active", "--profiling.profiler_warmup",
    "--metrics.log_freq", "--comm.init_timeout_seconds",
}  # fmt: skip
SWITCHES = {
    "--profiling.enable_profiling", "--metrics.disable_color_printing", "--compile.enable",
    "--training.enable_cpu_offload",
}  # fmt: skip


PROFILED = 1.04


class OutOfMemoryError(RuntimeError):
    """The real one is of the module torch."""


OutOfMemoryError.__module__ = "torch"


def parse(words):
    found, rest = {}, list(words)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if name in SWITCHES and not given:
            found[name] = "true"
        elif name in VALUES and (given or rest):
            found[name] = value if given else rest.pop(0)
        else:
            print(f"train.py: error: unrecognized arguments: {name}", file=sys.stderr)
            sys.exit(2)
    return found


def step_ms(options):
    """Tensor parallelism costs a quarter for each doubling, larger micro-batches gain, recomputation costs a third."""
    tp = int(options["--parallelism.tensor_parallel_degree"])
    size = int(options["--training.local_batch_size"])
    again = 4 / 3 if options.get("--activation_checkpoint.mode") == "full" else 1.0
    return 100.0 * (1 + 0.25 * math.log2(tp)) * again / (1 + 0.2 * math.log2(size))


def check_memory(options):
    tp = int(options["--parallelism.tensor_parallel_degree"])
    size = int(options["--training.local_batch_size"])
    if size > 2 * tp and options.get("--activation_checkpoint.mode") != "full":
        raise OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 7.00 GiB. GPU 0 has a total capacity of 39.50 GiB"
        )


def degrees(options):
    names = (
        "data_parallel_replicate",
        "data_parallel_shard",
        "tensor_parallel",
        "pipeline_parallel",
        "context_parallel",
    )
    return math.prod(int(options.get(f"--parallelism.{name}_degree", 1)) for name in names)


def trace(options, rank, world):
    steps, active = int(options["--training.steps"]), int(options["--profiling.profiler_active"])
    length = 1000.0 * step_ms(options)
    events = []
    for number in range(steps - active, steps):
        start = 1e9 + number * length
        own = {"ph": "X", "pid": 4000 + rank, "tid": 4000 + rank, "ts": start, "dur": length}
        events.append({**own, "cat": "user_annotation", "name": f"ProfilerStep#{number}"})
        launch = {**own, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 5, "dur": 4}
        events.append({**launch, "args": {"correlation": number}})
        kernel = {"ph": "X", "cat": "kernel", "name": "ampere_bf16_s16816gemm", "pid": 0, "tid": 7}
        where = {"device": 0, "stream": 7, "correlation": number, "External id": number}
        events.append({**kernel, "ts": start + 20, "dur": 0.9 * length, "args": where})
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42285268992}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "traceEvents": events,
        "traceName": f"rank{rank}_trace.json",
    }


def log_steps(options, world):
    """The line that the real one logs of every step; tokens are those of a device and second."""
    steps, active = int(options["--training.steps"]), int(options["--profiling.profiler_active"])
    tokens = int(options["--training.global_batch_size"]) * int(options["--training.seq_len"]) / world
    for number in range(1, steps + 1):
        profiled = "--profiling.enable_profiling" in options and number > steps - active
        seconds = step_ms(options) / 1000 * (PROFILED if profiled else 1)
        print(
            f"[titan] root - INFO - step: {number:2}  loss: 12.2000  grad_norm:  1.0000  memory: 21.50GiB(54.00%)  "
            f"tps: {round(tokens / seconds):,}  tflops: 100.00  mfu: 30.00%"
        )


def main():
    options = parse(sys.argv[1:])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if degrees(options) != world:
        raise ValueError(f"the degrees multiply to {degrees(options)}, WORLD_SIZE is {world}")
    check_memory(options)
    if rank == 0:
        log_steps(options, world)
    if "--profiling.enable_profiling" not in options:
        return
    folder = Path(options["--job.dump_folder"], options["--profiling.save_traces_folder"])
    folder = folder / f"iteration_{options['--profiling.profile_freq']}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"rank{rank}_trace.json").write_text(json.dumps(trace(options, rank, world)))


main()
