"""Records that no profiler should write, and some do: numbers out of range, steps without length, ranks without work.

None of them may end the whole computation, and none may become a good-looking value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metrics import compute
from metrics.facts import CardFacts
from metrics.traces.load import load
from runs.metric import MetricValue
from tests.metrics.build import ALLREDUCE, Kineto, Xla, collective, global_pid, nsys

MS = 1_000_000
FACTS = CardFacts(
    phase="training", batch_size=4, seq_len=128, num_params=10**9, num_params_embedding=10**7, num_layers=4,
    num_heads=8, head_dim=64, device="h100", peak_bf16_flops=1e15, total_xpus=2, pp=2,
)  # fmt: skip


def rank(number: int = 0, world: int = 1) -> Kineto:
    """Four steps of 10 ms with 5 ms of compute and 4 ms of communication, 3 ms of it exposed."""
    trace = Kineto(rank=number, world=world)
    for step in range(4):
        time = step * 10 * MS
        trace.step(step, time, 10 * MS)
        trace.kernel("gemm", time + MS, 5 * MS, launch=time + 1000)
        trace.kernel(ALLREDUCE, time + 5 * MS, 4 * MS, launch=time + 2000, **collective("allreduce", 100, 100, 2))
    return trace


def values(folder: Path) -> dict[str, MetricValue]:
    """All values; no bundled tool may have failed."""
    found = compute(folder, facts=FACTS, detail=True)
    assert not [value.reason for value in found.values() if "the tool failed" in (value.reason or "")]
    return found


def _copy(trace: Kineto, size: int) -> None:
    trace.copy("Memcpy HtoD (Pinned -> Device)", MS, MS, size, launch=1)


HUGE: dict[str, Callable[[Kineto], object]] = {
    "bytes beyond 64 bits": lambda trace: _copy(trace, 2**70),
    "unsigned 64-bit bytes": lambda trace: _copy(trace, 2**63 + 5),
    "elements": lambda trace: trace.kernel(ALLREDUCE, MS, 10, launch=5, **collective("allreduce", 2**62, 2**62, 2)),
    "a stream of -1 as unsigned": lambda trace: trace.kernel("x", MS, 10, launch=5, stream=2**64 - 1),
    "a correlation id": lambda trace: trace.kernel("x", MS, 10, launch=5, correlation=2**63),
    "allocated memory": lambda trace: trace.memory(MS, 2**70),
    "negative memory": lambda trace: trace.memory(MS, -5),
}


@pytest.mark.parametrize("what", HUGE)
def test_numbers_out_of_range_cost_only_themselves(tmp_path: Path, what: str) -> None:
    trace = rank()
    HUGE[what](trace)
    trace.write(tmp_path / "rank0.json")
    found = values(tmp_path)

    assert found["avg_step_time"].value == 0.01
    assert found["total_communication_time"].value == pytest.approx(0.003)
    assert found["average_memory_bandwidth"].value is None and found["peak_memory_gb"].value is None


@pytest.mark.parametrize("rule", ["sound", "paper"])
def test_steps_without_length_are_no_steps(tmp_path: Path, rule: str) -> None:
    trace = rank()
    for event in trace.events:
        event["dur"] = 0 if event["name"].startswith("ProfilerStep") else event["dur"]
    trace.write(tmp_path / "rank0.json")
    found = compute(tmp_path, facts=FACTS, rule=rule)  # type: ignore[arg-type]

    for name in ("avg_step_time", "mfu", "tokens_per_s", "step_time_cv", "step_idle_time", "bubble_fraction"):
        assert found[name].value is None and "the tool failed" not in (found[name].reason or ""), name
    assert found["mfu"].warnings == ("rank0.json: 4 event(s) ignored: a step or iteration without length",)


def test_one_step_without_length_leaves_the_others(tmp_path: Path) -> None:
    trace = rank()
    trace.step(9, 50 * MS, 0)
    trace.write(tmp_path / "rank0.json")

    assert values(tmp_path)["avg_step_time"].value == 0.01


def test_a_module_without_length_does_not_cost_the_steps_of_a_tpu(tmp_path: Path) -> None:
    profile = Xla()
    for step in range(4):
        profile.module(0, "jit_train", step * 10 * MS, 8 * MS)
        profile.op(0, "convolution fusion", step * 10 * MS, 5 * MS, model_flops=str(2**80))
    profile.module(0, "jit_tiny", 45 * MS, 0)
    profile.write(tmp_path / "t.trace.json")
    found = values(tmp_path)

    assert found["avg_step_time"].value == pytest.approx(0.008)
    assert found["mfu"].reason == "no op inside the steps carries model_flops"


@pytest.mark.parametrize(("lacking", "what"), [("kernel", "no device events"), ("user_annotation", "no steps")])
def test_a_rank_that_lacks_what_the_others_have_is_named(tmp_path: Path, lacking: str, what: str) -> None:
    rank(0, 2).write(tmp_path / "rank0.json")
    bare = rank(1, 2)
    bare.events = [event for event in bare.events if event["cat"] != lacking]
    bare.write(tmp_path / "rank1.json")

    assert load(tmp_path).warnings == [f"rank 1: {what} recorded; values that need them are those of the other ranks"]


def test_a_kernel_of_nsight_that_ends_before_it_starts_is_left_out(tmp_path: Path) -> None:
    pid = global_pid(17)
    rows = [
        (0, 3000, 0, 7, 1, pid, 1, 1, 8, 1, 1), (9000, 5000, 0, 7, 2, pid, 2, 2, 8, 1, 1),
        (4000, None, 0, 7, 3, pid, 2, 2, 8, 1, 1), (5000, 6000, 0, 7, 4, pid, 2, 2, 8, 1, 1),
    ]  # fmt: skip
    nsys(tmp_path / "a.sqlite", {"StringIds": [(1, "long"), (2, "short")], "CUPTI_ACTIVITY_KIND_KERNEL": rows})
    found = values(tmp_path)["dominant_kernel_concentration"]

    assert found.value == pytest.approx(75) and found.detail is not None and found.detail["name"] == "long"
    assert found.warnings == ("a.sqlite: 2 event(s) ignored: its time is missing or negative",)


def test_link_samples_of_two_exports_with_the_same_process_both_count(tmp_path: Path) -> None:
    """Two nodes: the same process id and device, other samples."""
    pid = global_pid(17)
    for number, value in enumerate((10, 30)):
        nsys(tmp_path / f"node{number}.sqlite", {
            "StringIds": [(1, "ncclDevKernel_SendRecv(x)")],
            "CUPTI_ACTIVITY_KIND_KERNEL": [(0, 3000, 0, 7, 1, pid, 1, 1, 8, 1, 1)],
            "GPU_METRICS": [(1000, 256, 5, value)],
            "TARGET_INFO_GPU_METRICS": [(256, 1, "t", 5, "NVLink TX Throughput [%]")],
        })  # fmt: skip
    found = values(tmp_path)["bw_peertopeer"]

    assert found.value == pytest.approx(20) and (found.detail or {})["samples"] == 2
