"""How fast traces become metric values, beside the parsers and tools a user would otherwise take.

    python benchmarks/metrics_speed.py --megabytes 50 --peers
    python benchmarks/metrics_speed.py --megabytes 1000 --ranks 1

Generates Kineto traces in the layout and event mix of real ones (about 6 % kernels, 55 % Python frames, arguments on
host events), runs every case in a process of its own, and prints wall and CPU time, speed and peak memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HEADER = """{{
  "schemaVersion": 1,
  "deviceProperties": [
    {{
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85029158912, "numSms": 132
    }}
  ],
  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000,
  "traceEvents": ["""
_EVENT = """
  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts:.3f}, "dur": {dur:.3f},
    "args": {{
      {args}
    }}
  }},"""
_FLOW = """
  {{
    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},"""
_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{n}x128_32x5_tn_align8>(Params)"
_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
_COLLECTIVE = (
    '"Collective name": "allreduce", "In msg nelems": 6637568, "Out msg nelems": 6637568, "Group size": 8, '
    '"dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
    '"Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
)
_OPERATOR_ARGS = (
    '"External id": {id},"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["c10::BFloat16", '
    '"c10::BFloat16", ""], "Input Strides": [[4096, 1], [1, 4096], []], '
    '"Input Dims": [[8192, 4096], [4096, 4096], []], '
    '"Ev Idx": {id}'
)
_FRAME_ARGS = '"Python parent id": {parent}, "Python id": {id}, "Ev Idx": {parent}'
_KERNEL_ARGS = (
    '"External id": {id}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, "correlation": {id}, '
    '"registers per thread": 96, "shared memory": 87568, "blocks per SM": {blocks}, "warps per SM": 8.2, '
    '"grid": [512, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 35{more}'
)
_OPERATIONS = 11  # kernels of a layer


def _operation(number: int, at: float, comm: bool) -> str:
    """One operator: its Python frames, its ATen call, its launch, its kernel and the flow arrows between them."""
    frames = "".join(
        _EVENT.format(
            cat="python_function", name=f"torch/nn/modules/module.py({1500 + i}): _wrapped_call_impl", pid=77, tid=77,
            ts=at + i * 0.5, dur=90 - i, args=_FRAME_ARGS.format(parent=number, id=number * 9 + i),
        )
        for i in range(9)
    )  # fmt: skip
    operators = "".join(
        _EVENT.format(cat="cpu_op", name=name, pid=77, tid=77, ts=at + 5 + i, dur=30 - i,
                      args=_OPERATOR_ARGS.format(id=number))
        for i, name in enumerate(("aten::linear", "aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0"))
    )  # fmt: skip
    launch = _EVENT.format(
        cat="cuda_runtime", name="cudaLaunchKernel", pid=77, tid=77, ts=at + 9, dur=4.2,
        args=f'"External id": {number}, "cbid": 211, "correlation": {number}',
    )  # fmt: skip
    more = f", {_COLLECTIVE}" if comm else ""
    kernel = _EVENT.format(
        cat="kernel", name=_REDUCE if comm else _GEMM.format(n=64 + number % 40), pid=0, tid=20 if comm else 7,
        ts=at + 400, dur=120.125 if comm else 85.5,
        args=_KERNEL_ARGS.format(id=number, stream=20 if comm else 7, blocks=0.12 if comm else 3.9, more=more),
    )  # fmt: skip
    flows = _FLOW.format(ph="s", id=number, pid=77, tid=77, ts=at + 9) + _FLOW.format(
        ph="f", id=number, pid=0, tid=7, ts=at + 400
    )
    return frames + operators + launch + kernel + flows


def generate(path: Path, megabytes: float, rank: int, ranks: int, steps: int = 10) -> int:
    """Write one rank's trace of about `megabytes`; the number of events."""
    per_operation = len(_operation(10**6, 4458676416788.066, False)) + 60
    operations = max(_OPERATIONS, int(megabytes * 1e6 / per_operation / steps))
    number, events = 1, 0
    with path.open("w", encoding="ascii") as out:
        out.write(_HEADER.format(rank=rank, ranks=ranks))
        for step in range(steps):
            begin = 4458676416788.066 + step * operations * 95
            for _ in range(operations):
                out.write(_operation(number, begin + (number % operations) * 94.9, number % _OPERATIONS == 0))
                number, events = number + 1, events + 16
            last = step == steps - 1
            text = _EVENT.format(cat="user_annotation", name=f"ProfilerStep#{step}", pid=77, tid=77, ts=begin,
                                 dur=operations * 95, args=f'"External id": {step}')  # fmt: skip
            out.write(text.rstrip(",") if last else text)
        out.write('\n  ],\n  "traceName": "generated"\n}')
    return events + steps


def timed(work: Callable[[], int]) -> dict[str, Any]:
    """Wall and CPU seconds (of child processes too) of a piece of work, imports left out, and what it counted."""
    before, start = os.times(), time.perf_counter()
    count = work()
    seconds, after = time.perf_counter() - start, os.times()
    return {"seconds": seconds, "cpu": sum(after[:4]) - sum(before[:4]), "values": count}


def _files(folder: str) -> list[Path]:
    return sorted(Path(folder).iterdir())


def _metrics(folder: str, cache: str | None) -> dict[str, Any]:
    """Import, then compute every metric; the seconds of the computation alone."""
    import metrics.traces.load  # noqa: F401
    from metrics import compute, registry
    from metrics.facts import CardFacts

    for name in registry.BUNDLED:
        registry.tool(name)
    return timed(lambda: sum(v.value is not None for v in compute(folder, facts=CardFacts(), cache=cache).values()))


def _msgspec(folder: str, _: str | None) -> dict[str, Any]:
    """The bound of the issue: every event as a Struct whose arguments stay raw."""
    import msgspec

    event = msgspec.defstruct(
        "Event",
        [("ph", str, ""), ("cat", str, ""), ("name", str, ""), ("ts", float, 0.0), ("dur", float, 0.0),
         ("pid", Any, None), ("tid", Any, None), ("args", msgspec.Raw, msgspec.Raw(b""))],
    )  # fmt: skip
    file = msgspec.defstruct("File", [("traceEvents", list[event])])  # type: ignore[valid-type]
    return timed(lambda: sum(len(msgspec.json.decode(p.read_bytes(), type=file).traceEvents) for p in _files(folder)))


def _json(folder: str, _: str | None) -> dict[str, Any]:
    return timed(lambda: sum(len(json.loads(p.read_bytes())["traceEvents"]) for p in _files(folder)))


def _orjson(folder: str, _: str | None) -> dict[str, Any]:
    import orjson

    return timed(lambda: sum(len(orjson.loads(p.read_bytes())["traceEvents"]) for p in _files(folder)))


def _hta(folder: str, _: str | None) -> dict[str, Any]:
    from hta.trace_analysis import TraceAnalysis

    def overlap() -> int:
        analysis = TraceAnalysis(trace_dir=str(Path(folder).resolve()))
        return len(analysis.get_comm_comp_overlap(visualize=False))

    return timed(overlap)


CASES = {"metrics": _metrics, "msgspec": _msgspec, "json": _json, "orjson": _orjson, "hta": _hta}


def _child(case: str, folder: str, cache: str | None) -> None:
    """Run one case and print its figures as JSON."""
    found = CASES[case](folder, cache)
    usage = resource.getrusage
    peak = max(usage(resource.RUSAGE_SELF).ru_maxrss, usage(resource.RUSAGE_CHILDREN).ru_maxrss)
    print(json.dumps(found | {"peak_mb": peak / 1024}))


def measure(case: str, folder: Path, cache: Path | None = None) -> dict[str, Any] | None:
    """Figures of one case in a fresh process; None when it fails."""
    command = [sys.executable, __file__, "--child", case, str(folder)] + ([str(cache)] if cache else [])
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": root})
    if done.returncode:
        print(f"{case}: failed: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _row(label: str, megabytes: float, found: dict[str, Any] | None) -> None:
    if found is not None:
        times = f"{found['seconds']:8.2f} s {found['cpu']:8.2f} s"
        rates = f"{megabytes / found['seconds']:8.0f} MB/s {found['peak_mb']:8.0f} MB"
        print(f"{label:42s} {times} {rates}  {found['values']}")


def run(megabytes: float, ranks: int, peers: bool) -> None:
    """Generate, measure, print."""
    with tempfile.TemporaryDirectory(prefix="metrics-speed-") as temporary:
        folder, cache = Path(temporary, "trace"), Path(temporary, "cache")
        folder.mkdir()
        events = sum(generate(folder / f"rank{r}_trace.json", megabytes, r, ranks) for r in range(ranks))
        size = sum(p.stat().st_size for p in folder.iterdir()) / 1e6
        print(
            f"{size:.0f} MB, {events} events, {ranks} rank(s); "
            f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs"
        )
        print(f"{'case':42s} {'wall':>10s} {'CPU':>10s} {'speed':>13s} {'peak':>11s}  values or events")
        _row("all metrics, nothing kept", size, measure("metrics", folder))
        _row("all metrics, cold, filling the cache", size, measure("metrics", folder, cache))
        _row("all metrics, from the cache", size, measure("metrics", folder, cache))
        _row("msgspec Struct, args raw (parsing only)", size, measure("msgspec", folder))
        for case in ("orjson", "json", "hta") if peers else ():
            if importlib.util.find_spec(case) is not None:
                _row(f"{case} (peer)", size, measure(case, folder))


def main() -> None:
    """Parse the command line and run."""
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=50, help="size of one rank's trace")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--peers", action="store_true", help="also measure orjson, json and HTA where installed")
    options = parser.parse_args()
    run(options.megabytes, options.ranks, options.peers)


if __name__ == "__main__":
    main()
