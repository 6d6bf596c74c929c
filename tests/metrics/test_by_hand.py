"""Metrics of small generated traces against values worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from metrics import compute
from metrics.facts import CardFacts
from runs import catalogue
from runs.metric import MetricValue
from runs.plan import ParallelPlan
from tests.metrics.build import ALLREDUCE, SENDRECV, Kineto, collective

US = 1_000
MS = 1_000_000
TRAINING = CardFacts(
    phase="training", batch_size=8, seq_len=1000, num_params=1_200_000, num_params_embedding=200_000, num_layers=2,
    num_heads=4, head_dim=50, peak_bf16_flops=1e15, total_xpus=4, pp=2,
)  # fmt: skip


def value(found: dict[str, MetricValue], name: str) -> float:
    assert found[name].value is not None, (name, found[name].reason)
    return found[name].value or 0.0


def training(folder: Path, lag: int = 0, kinds: tuple[str, ...] = ("allreduce",)) -> Path:
    """Two ranks, three steps of 1 ms. In a step: compute 100-400 us, communication 300-600 us, a copy 650-700 us, all
    of it `lag` later than the step that launched it."""
    for rank in range(2):
        trace = Kineto(rank=rank, world=2)
        for number in range(3):
            at = number * MS
            trace.step(number, at, MS)
            gpu = at + lag
            trace.kernel("gemm", gpu + 100 * US, 300 * US, launch=at + 10 * US, **{"blocks per SM": 2.0})
            for kind in kinds:
                trace.kernel(SENDRECV, gpu + 300 * US, 300 * US, launch=at + 20 * US, stream=20,
                             **_args(kind), **{"blocks per SM": 0.1})  # fmt: skip
            trace.copy("Memcpy HtoD (Pageable -> Device)", gpu + 650 * US, 50 * US, 1_000_000, launch=at + 30 * US)
        trace.write(folder / f"rank{rank}_trace.json")
    return folder


def _args(kind: str) -> dict[str, Any]:
    inside, outside = {
        "allreduce": (3000, 3000), "_allgather_base": (1500, 3000), "reduce_scatter_tensor_coalesced": (3000, 1500),
        "all_to_allv": (3000, 3000), "send": (3000, 3000),
    }[kind]  # fmt: skip
    return collective(kind, inside, outside, 2, "Float")


def test_one_training_step(tmp_path: Path) -> None:
    found = compute(training(tmp_path), facts=TRAINING)
    assert value(found, "avg_step_time") == pytest.approx(1e-3)
    assert value(found, "communication_fraction") == pytest.approx(100 * 300 / 500)
    assert value(found, "total_communication_time") == pytest.approx(200e-6)
    assert value(found, "compute_comm_overlap") == pytest.approx(100 / 3)
    assert value(found, "step_compute_time") == pytest.approx(200e-6)
    assert value(found, "step_exposed_comm_time") == pytest.approx(200e-6)
    assert value(found, "step_overlapped_comm_time") == pytest.approx(100e-6)
    assert value(found, "step_memory_time") == pytest.approx(50e-6)
    assert value(found, "step_idle_time") == pytest.approx(450e-6)
    assert value(found, "average_memory_bandwidth") == pytest.approx(1e6 / 50e-6 / 1e9)
    # copies are never covered: 3 x 50 us over the span from 100 us to 2700 us
    assert value(found, "memory_transfer_overhead") == pytest.approx(100 * 150 / 2600)
    assert value(found, "dominant_kernel_concentration") == pytest.approx(50)
    # equal kernel times: coverage min(1, 2.0) and 0.1
    assert value(found, "mean_sm_coverage") == pytest.approx(55)
    assert value(found, "compute_bound_fraction") == pytest.approx(100)
    assert value(found, "memory_bound_fraction") == 0
    assert value(found, "load_imbalance_ratio") == 1
    assert value(found, "straggler") == 0
    assert value(found, "moe_fraction") == 0
    assert value(found, "tokens_per_s") == pytest.approx(8 * 1000 / 1e-3)
    assert value(found, "tokens_per_s_per_xpu") == pytest.approx(8 * 1000 / 1e-3 / 4)
    assert value(found, "num_xpus") == 4
    # (6·1e6 + 12·2·50·4·1000) FLOP a token, 8000 tokens in 1 ms, on 4 devices of 1e15
    assert value(found, "mfu") == pytest.approx(100 * (6e6 + 4.8e6) * 8000 / 1e-3 / 4e15)
    assert found["ttft"].reason == "training trace or no serving span"
    assert found["scale_up_bw_utility"].reason == "unsupported: needs what-if"


def test_a_gpu_behind_its_host(tmp_path: Path) -> None:
    """Work that runs 0.5 ms late: the sound rule sees the step as it is, the window cuts through two of them."""
    sound = compute(training(tmp_path, lag=500 * US))
    assert value(sound, "communication_fraction") == pytest.approx(60)
    assert value(sound, "step_idle_time") == pytest.approx(450e-6)
    paper = compute(tmp_path, rule="paper")
    # in the window 1.0-2.0 ms: the end of step 0's communication (1.0-1.1), its copy, then step 1 from 1.6 on
    assert value(paper, "communication_fraction") == pytest.approx(100 * (100 + 200) / (100 + 400))
    assert value(paper, "total_communication_time") == pytest.approx(200e-6)
    assert value(paper, "step_compute_time") == pytest.approx(200e-6)
    parts = ("compute", "exposed_comm", "overlapped_comm", "memory", "idle")
    assert sum(value(paper, f"step_{part}_time") for part in parts) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("kind", "metric", "factor", "traffic"),
    [
        ("allreduce", "bw_allreduce", 1.0, "traffic_allreduce_gb"),
        ("_allgather_base", "bw_allgather", 0.5, "traffic_allgather_gb"),
        ("reduce_scatter_tensor_coalesced", "bw_reducescatter", 0.5, "traffic_reducescatter_gb"),
        ("all_to_allv", "bw_alltoall", 0.5, "traffic_alltoall_gb"),
        ("send", None, 0.0, "traffic_p2p_gb"),
    ],
)
def test_sizes_of_collectives(tmp_path: Path, kind: str, metric: str | None, factor: float, traffic: str) -> None:
    """3000 float32 elements in a group of two, 300 us: (N-1)/N or 2(N-1)/N of 12 kB, the OUTPUT of an all-gather."""
    found = compute(training(tmp_path, kinds=(kind,)))
    for name in ("bw_allreduce", "bw_allgather", "bw_reducescatter", "bw_alltoall"):
        if name == metric:
            assert value(found, name) == pytest.approx(factor * 12_000 / 300e-6 / 1e9)
        else:
            assert found[name].value is None
    for name in ("allreduce", "allgather", "reducescatter", "alltoall", "p2p"):
        volume = value(found, f"traffic_{name}_gb")
        assert volume == pytest.approx(12_000 / 1e9 if f"traffic_{name}_gb" == traffic else 0.0)


def test_sixteen_ranks(tmp_path: Path) -> None:
    """Rank r computes 100 (r+1) us, and its all-reduce takes 300 - 10 r us: the last to come waits least."""
    for rank in range(16):
        trace = Kineto(rank=rank, world=16)
        trace.step(0, 0, 4 * MS)
        trace.kernel("gemm", 0, 100 * US * (rank + 1), launch=0)
        args = collective("allreduce", 10, 10, 16, ranks="[0, 1, ..., 15]")
        for number in (1, 0):  # recorded out of order; the sequence number tells them apart
            trace.kernel(ALLREDUCE, 2 * MS + number * MS, 300 * US - rank * 10 * US * (1 + number), launch=10,
                         **args, Seq=number)  # fmt: skip
        trace.write(tmp_path / "deep" / f"rank{rank}.json.gz")
    found = compute(tmp_path, detail=True)
    assert value(found, "load_imbalance_ratio") == pytest.approx(16)
    assert value(found, "straggler") == pytest.approx(((300 - 150) / 300 + (300 - 0) / 300) / 2)
    detail = found["straggler"].detail or {}
    assert detail["matched_by"] == "process group and sequence number"
    assert detail["collectives"] == 2
    assert value(found, "num_xpus") == 16
    assert len((found["avg_step_time"].detail or {})["per_rank"]) == 16
    assert not found["mfu"].warnings


def test_disjoint_groups_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    for rank in range(4):
        trace = Kineto(rank=rank, world=4)
        trace.step(0, 0, MS)
        pair = [0, 1] if rank < 2 else [2, 3]
        args = collective("allreduce", 10, 10, 2, group="tp", ranks=pair)
        trace.kernel(ALLREDUCE, 0, (100 if rank < 2 else 900) * US, launch=0, **args)
        trace.write(tmp_path / f"rank{rank}.json")
    found = compute(tmp_path, metrics=["straggler"])["straggler"]
    assert found.value == 0
    assert found.detail == {"collectives": 2, "matched_by": "order within the process group"}


def test_represented_ranks_weigh(tmp_path: Path) -> None:
    """A class of three ranks with steps of 1 ms and one rank with 5 ms: mean 2 ms."""
    for rank, members, length in ((0, [0, 1, 2], 1), (3, [3], 5)):
        trace = Kineto(rank=rank, world=4, represents=members)
        trace.step(0, 0, length * MS)
        trace.kernel("gemm", 0, 100 * US * length, launch=0)
        trace.write(tmp_path / f"rank{rank}.json")
    found = compute(tmp_path)
    assert value(found, "avg_step_time") == pytest.approx(2e-3)
    assert value(found, "load_imbalance_ratio") == pytest.approx(5)
    assert value(found, "step_time_p50") == pytest.approx(1e-3)
    assert not found["mfu"].warnings


def test_one_class_of_identical_ranks_is_balanced(tmp_path: Path) -> None:
    trace = Kineto(rank=0, world=8, represents=list(range(8)))
    trace.step(0, 0, MS)
    trace.kernel("gemm", 0, 100 * US, launch=0)
    trace.kernel(ALLREDUCE, 100 * US, 100 * US, launch=1, **collective("allreduce", 10, 10, 8))
    trace.write(tmp_path / "rank0.json")
    found = compute(tmp_path)
    assert value(found, "load_imbalance_ratio") == 1
    assert value(found, "straggler") == 0
    assert value(found, "num_xpus") == 8


def serving(folder: Path) -> Path:
    """Two chunks of prefill (20 + 10 ms), three decodes of 4 requests (2, 3, 4 ms), a mixed one, a second prefill (8
    ms)."""
    trace = Kineto(rank=0, world=1)
    at = 0
    for name, length in (
        ("execute_context_4(1024_5)_generation_0(0)", 20), ("execute_context_4(512_5)_generation_0(0)", 10),
        ("execute_context_0(0)_generation_4(4)", 2), ("execute_context_0(0)_generation_4(4)", 3),
        ("execute_context_0(0)_generation_4(4)", 4), ("execute_context_1(256_1)_generation_4(4)", 7),
        ("execute_context_2(512_1)_generation_0(0)", 8),
    ):  # fmt: skip
        trace.event("user_annotation", name, at, length * MS)
        trace.kernel("gemm", at + MS, length * MS, launch=at + 10)
        at += length * MS + MS
    trace.write(folder / "rank0.json")
    return folder


def test_serving(tmp_path: Path) -> None:
    facts = CardFacts(phase="inference", num_params=1_000_000, num_params_embedding=0, num_layers=1, num_heads=1,
                      head_dim=10, input_len=384, peak_bf16_flops=1e12, dp=2)  # fmt: skip
    found = compute(serving(tmp_path), facts=facts)
    assert value(found, "ttft") == pytest.approx(0.030)
    assert value(found, "tpot") == pytest.approx(0.003)
    assert value(found, "tpot_p95") == pytest.approx(0.0039)
    assert value(found, "tpot_p99") == pytest.approx(0.00398)
    assert value(found, "ttft_p95") == pytest.approx(0.008 + 0.95 * 0.022)
    # first tokens of 4 + 4 + 2 + 1 requests, 4 x 4 decoded; 54 ms of iterations and 6 ms between them; two replicas
    assert value(found, "tokens_per_s") == pytest.approx(2 * (11 + 16) / 0.060)
    # pure prefill: 2048 tokens in 38 ms, 2·1e6 + 4·1·10·1·384 FLOP each, two replicas on one device of 1e12
    assert value(found, "mfu") == pytest.approx(100 * 2 * 2048 * (2e6 + 15360) / 0.038 / 1e12)
    late = compute(tmp_path, metrics=["tpot", "ttft"], variant="to_gpu_end")
    assert value(late, "tpot") == pytest.approx(0.004)


def test_captures_that_tell_no_latency(tmp_path: Path) -> None:
    trace = Kineto(rank=0, world=1)
    trace.event("user_annotation", "step[DECODE bs=4]", 0, MS)
    trace.kernel("gemm", 0, MS, launch=1)
    trace.write(tmp_path / "a" / "rank0.json")
    found = compute(tmp_path / "a", facts=CardFacts(phase="inference"))
    assert "starts with a decode iteration" in (found["ttft"].reason or "")
    assert "decode-only" in (found["mfu"].reason or "")
    training(tmp_path / "b")
    found = compute(tmp_path / "b", facts=CardFacts(phase="inference"))
    assert found["tpot"].reason == "inference trace without serving spans that tell prefill from decode"


def test_bubbles(tmp_path: Path) -> None:
    trace = Kineto(rank=0, world=1)
    trace.step(0, 0, MS)
    trace.kernel("gemm", 100 * US, 100 * US, launch=0)
    for start, length in ((300, 200), (400, 150), (950, 500)):  # 300-550 and, clipped, 950-1000
        trace.event("gpu_user_annotation", "bubble", start * US, length * US, pid=0, tid=7)
    trace.write(tmp_path / "rank0.json")
    found = compute(tmp_path, metrics=["bubble_fraction"])["bubble_fraction"]
    assert found.value == pytest.approx(30)


def test_bubbles_from_pending_receives(tmp_path: Path) -> None:
    """Gaps in which a receive is pending are bubbles; the gap before the first kernel and a gap without one are not."""
    trace = Kineto(rank=0, world=2)
    trace.step(0, 0, MS)
    trace.kernel("gemm", 0, 200 * US, launch=0)
    trace.kernel(SENDRECV, 250 * US, 150 * US, launch=10, stream=30, **collective("recv", 10, 10, 2))
    trace.kernel("gemm", 400 * US, 200 * US, launch=20)
    trace.kernel("gemm", 700 * US, 300 * US, launch=30)
    trace.write(tmp_path / "rank0.json")
    found = compute(tmp_path, metrics=["bubble_fraction"])["bubble_fraction"]
    assert found.value == pytest.approx(20)
    assert compute(training(tmp_path / "x"), metrics=["bubble_fraction"])["bubble_fraction"].value is None


def test_memory(tmp_path: Path) -> None:
    for rank, peak in ((0, 3_000_000_000), (1, 5_500_000_000)):
        trace = Kineto(rank=rank, world=2)
        trace.step(0, 0, MS)
        trace.memory(10, peak // 2)
        trace.memory(20, peak)
        trace.memory(30, 90_000_000_000, device_type=0)
        trace.write(tmp_path / f"rank{rank}.json")
    assert value(compute(tmp_path), "peak_memory_gb") == 5.5


def test_expert_kernels(tmp_path: Path) -> None:
    trace = Kineto()
    trace.step(0, 0, MS)
    trace.kernel("fused_moe_kernel", 0, 300 * US, launch=1)
    trace.kernel("gemm", 300 * US, 100 * US, launch=2)
    trace.write(tmp_path / "t.json")
    assert value(compute(tmp_path), "moe_fraction") == pytest.approx(75)


def test_spread_of_steps(tmp_path: Path) -> None:
    trace = Kineto()
    for number, length in enumerate((9, 1, 2, 3, 9)):
        trace.step(number, number * 10 * MS, length * MS)
    trace.write(tmp_path / "t.json")
    found = compute(tmp_path)
    assert value(found, "step_time_p50") == pytest.approx(2e-3)
    assert value(found, "step_time_p95") == pytest.approx(2.9e-3)
    assert value(found, "step_time_cv") == pytest.approx(math.sqrt(2 / 3) / 2)
    assert found["communication_fraction"].reason == "no GPU kernel events in the trace"


def test_a_trace_without_steps(tmp_path: Path) -> None:
    trace = Kineto(rank=None, world=None)
    trace.kernel("gemm", 0, 300 * US, launch=1)
    trace.kernel(ALLREDUCE, 200 * US, 200 * US, launch=2)
    trace.write(tmp_path / "t.json")
    found = compute(tmp_path)
    assert value(found, "communication_fraction") == pytest.approx(50)
    assert found["total_communication_time"].reason == "no step spans: a per-step time cannot be given"
    assert (found["total_communication_time"].detail or {})["whole_capture_exposed"] == pytest.approx(100e-6)
    assert found["avg_step_time"].value is None


def test_launches_that_were_not_recorded(tmp_path: Path) -> None:
    """A kernel of the step before belongs to no step; by window and by the variant it does."""
    trace = Kineto()
    trace.step(0, 0, MS)
    trace.kernel(ALLREDUCE, 100 * US, 300 * US)
    trace.kernel("gemm", 500 * US, 300 * US, launch=5)
    trace.write(tmp_path / "t.json")
    assert value(compute(tmp_path), "communication_fraction") == 0
    assert value(compute(tmp_path, rule="paper"), "communication_fraction") == pytest.approx(50)
    variant = compute(tmp_path, metrics=["communication_fraction"], variant="launch_or_window")
    assert value(variant, "communication_fraction") == pytest.approx(50)


def test_facts_from_the_products_own_types() -> None:
    workload, environment = catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16")
    facts = CardFacts.of(workload, environment, ParallelPlan("torchtitan", tp=4, pp=2))
    assert (facts.total_xpus, facts.pp, facts.dp, facts.phase) == (8, 2, 1, "training")
    assert facts.peak_bf16_flops == 312e12
    assert not facts.lacking("num_layers", "num_heads", "head_dim", "batch_size", "seq_len")
