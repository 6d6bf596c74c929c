"""Whole steps on the real network model: bubbles, monotonicity, symmetry, the effect of every knob, sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backends.calibration import Calibration
from backends.compute import System
from backends.dry_run import dry_run
from backends.flow.simulate import simulate
from backends.timeline import SimulationResult
from backends.training import training_graph
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError, CclSearchError
from runs.plan import ParallelPlan
from runs.workload import Workload
from tests.backends.doubles import FSDP_STATE, SERVING_STATE, FlatNetwork, perlmutter, training_plan

LLAMA = catalogue.model("llama-3.1-8b")
WORKLOAD = Workload("test", LLAMA, "training", 16, 1024)
SERVE = Workload("test", LLAMA, "inference", 32, 1152, input_len=1024, output_len=128)


def step(workload: Workload = WORKLOAD, environment: Environment | None = None, **fields: Any) -> SimulationResult:
    return dry_run(workload, environment or perlmutter(), training_plan(workload, **fields))


def serve(**fields: Any) -> SimulationResult:
    return dry_run(SERVE, perlmutter(), ParallelPlan("vllm", state_bytes=SERVING_STATE, **fields))


def free_network_step(stages: int, microbatches: int, **fields: Any) -> SimulationResult:
    """A step on a network so fast that only the schedule counts; equal stages but for embedding and head."""
    model = replace(LLAMA, num_layers=48, vocab_size=8)
    workload = Workload("test", model, "training", microbatches, 4096)
    plan = training_plan(workload, pp=stages, cuda_graph=True, **fields)
    graph = training_graph(workload, plan)
    return simulate(graph, System.of(perlmutter(), plan), FlatNetwork(bandwidth=1e18))


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (8, 16)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_bubble_is_stages_less_one_over_microbatches(stages: int, microbatches: int, schedule: str) -> None:
    # Narayanan et al. 2021: bubble time over ideal time is (p - 1) / m, for 1F1B and GPipe alike
    result = free_network_step(stages, microbatches, pipeline_schedule=schedule)
    ideal = max(t.figures.compute_s for t in result.timelines)
    optimizer = (result.timelines[0].runs[-1].end - result.timelines[0].runs[-1].start) * 1e-9
    assert result.bubble_s / (ideal - optimizer) == pytest.approx((stages - 1) / microbatches, rel=0.06)


def test_interleaving_divides_the_bubble_by_the_chunks() -> None:
    plain = free_network_step(4, 8)
    chunked = free_network_step(4, 8, pipeline_schedule="interleaved", virtual_stages=3)
    assert chunked.bubble_s == pytest.approx(plain.bubble_s / 3, rel=0.1)


@pytest.mark.parametrize(
    "fields",
    [
        {"tp": 4, "pp": 2, "dp_shard": 2, "zero_stage": 3, "sequence_parallel": True, "state_bytes": FSDP_STATE},
        {"tp": 2, "pp": 8}, {"dp_shard": 16, "zero_stage": 3}, {"tp": 4, "dp_replicate": 4},
        {"tp": 2, "cp": 2, "pp": 2},
    ],
)  # fmt: skip
def test_every_second_is_accounted_for(fields: dict[str, Any]) -> None:
    for timeline in step(**fields).timelines:
        f = timeline.figures
        assert f.wall_s == pytest.approx(f.compute_s + f.exposed_s + f.copy_s + f.bubble_s + f.idle_s, abs=2e-9)
        assert 0 <= f.exposed_s <= f.comm_s
        assert f.comm_s <= f.wall_s
        assert min(f.compute_s, f.bubble_s, f.idle_s) >= 0


@pytest.mark.parametrize("fields", [{"tp": 2, "pp": 4, "max_num_seqs": 8}, {"pp": 2, "cuda_graph": True}, {"tp": 4}])
def test_every_second_of_serving_is_accounted_for(fields: dict[str, Any]) -> None:
    # a message may straddle the end of an iteration: it counts whole where it began
    for timeline in serve(**fields).timelines:
        f = timeline.figures
        assert f.wall_s == pytest.approx(f.compute_s + f.exposed_s + f.copy_s + f.bubble_s + f.idle_s, rel=5e-3)


def test_stages_cover_all_ranks_once_and_end_together() -> None:
    result = step(tp=2, pp=4, dp_replicate=2)
    ranks = [rank for timeline in result.timelines for rank in timeline.represents]
    assert sorted(ranks) == list(range(16))
    assert len({timeline.figures.wall_s for timeline in result.timelines}) == 1


def test_middle_stages_of_equal_depth_work_equally_long() -> None:
    result = step(pp=8, tp=2)
    middle = [t.figures.compute_s for t in result.timelines[1:-1]]
    assert max(middle) == pytest.approx(min(middle), rel=1e-6)


@pytest.mark.parametrize("fields", [{"tp": 8, "pp": 2}, {"dp_shard": 16, "zero_stage": 3}, {"tp": 2, "pp": 8}])
def test_more_bandwidth_is_never_slower(fields: dict[str, Any]) -> None:
    walls = []
    for factor in (0.25, 0.5, 1, 2, 4):
        base = perlmutter()
        assert base.inter_node_gbps and base.intra_node_gbps
        where = replace(
            base, inter_node_gbps=base.inter_node_gbps * factor, intra_node_gbps=base.intra_node_gbps * factor
        )
        walls.append(step(environment=where, **fields).wall_s)
    assert walls == sorted(walls, reverse=True)
    assert walls[-1] < walls[0]


def test_compute_never_beats_the_peak() -> None:
    result = step(tp=4, pp=4)
    flops = 6 * (8_030_261_248 - 128256 * 4096) * 16 * 1024
    assert result.wall_s > flops / (16 * 312e12)


def test_fsdp_traffic_crosses_the_links() -> None:
    # 2 gathers (bf16) and 1 reduce-scatter (fp32) of 16 ranks: each rank sends 15/16 of 8 bytes a parameter
    result = step(dp_shard=16, zero_stage=3, state_bytes=FSDP_STATE)
    sent = sum(n for link, n in result.links.items())
    payload = 16 * 15 / 16 * 8 * 8.03e9
    assert sent >= payload
    assert sent < 5 * payload  # every byte crosses at most a handful of links on its way


def test_prefetch_hides_gathers_behind_computation() -> None:
    wide = replace(WORKLOAD, seq_len=8192)
    fast = step(wide, dp_shard=4, zero_stage=3)
    slow = step(wide, dp_shard=4, zero_stage=3, overlap_communication=False)
    assert fast.exposed_s < 0.5 * slow.exposed_s
    assert fast.wall_s < slow.wall_s


BASE: dict[str, Any] = {"tp": 2, "pp": 2, "dp_replicate": 2}
KNOBS: dict[str, dict[str, Any]] = {
    "tp": {"tp": 4}, "pp": {"pp": 4}, "dp": {"dp_replicate": 4}, "dp_shard": {"dp_replicate": 1, "dp_shard": 2},
    "cp": {"cp": 2}, "micro_batch_size": {"micro_batch_size": 2}, "recompute": {"recompute": "full"},
    "recompute selective": {"recompute": "selective"}, "schedule": {"pipeline_schedule": "interleaved"},
    "sequence_parallel": {"sequence_parallel": True}, "zero_stage": {"zero_stage": 1},
    "collective_algorithm": {"collective_algorithm": "tree"}, "compile": {"compile": True},
    "cuda_graph": {"cuda_graph": True}, "offload": {"offload": True},
}  # fmt: skip


@pytest.mark.parametrize("knob", KNOBS)
def test_every_training_knob_changes_time_or_memory(knob: str) -> None:
    before, after = step(**BASE), step(**{**BASE, **KNOBS[knob]})
    assert before.memory and after.memory
    assert (before.wall_s, before.memory.total_bytes) != (after.wall_s, after.memory.total_bytes)


def test_gpipe_costs_memory() -> None:
    one, all_at_once = step(**BASE), step(**BASE, pipeline_schedule="gpipe")
    assert one.memory and all_at_once.memory
    assert all_at_once.memory.total_bytes > one.memory.total_bytes


def test_expert_parallelism_trades_gradient_traffic_for_dispatch() -> None:
    lite = Workload("test", catalogue.model("deepseek-v2-lite"), "training", 16, 1024)
    alone, spread = step(lite, tp=2, dp_replicate=8), step(lite, tp=2, dp_replicate=8, ep=8)
    assert alone.memory and spread.memory
    assert spread.memory.parts["optimizer"] < 0.3 * alone.memory.parts["optimizer"]
    assert spread.wall_s != alone.wall_s


def test_launch_bound_code_gains_from_compiling_and_graphs() -> None:
    small = Workload("test", LLAMA, "training", 16, 64)
    modes: tuple[dict[str, Any], ...] = (
        {},
        {"cuda_graph": True},
        {"compile": True},
        {"compile": True, "cuda_graph": True},
    )
    eager, graphed, compiled, both = (step(small, tp=4, **mode) for mode in modes)
    assert max(graphed.wall_s, compiled.wall_s) < eager.wall_s
    assert both.wall_s < min(graphed.wall_s, compiled.wall_s)


def test_decode_gains_from_graphs_and_tensor_parallelism() -> None:
    eager, graphed, wide = serve(), serve(cuda_graph=True), serve(cuda_graph=True, tp=4)
    assert eager.tpot_s and graphed.tpot_s and wide.tpot_s
    assert wide.tpot_s < graphed.tpot_s <= eager.tpot_s


def test_decode_is_bound_by_weights_and_cache() -> None:
    result = serve(cuda_graph=True, dp_replicate=16)
    floor = (2 * (8.03e9 - 128256 * 4096) + 2 * 1024 * 2 * 65536) / 1555e9
    assert result.tpot_s is not None
    assert floor < result.tpot_s < 2 * floor


def test_serving_limits_matter() -> None:
    few, many = serve(max_num_seqs=4), serve(max_num_seqs=32)
    assert few.ttft_s and many.ttft_s and few.tpot_s and many.tpot_s
    assert few.ttft_s < many.ttft_s
    assert few.tpot_s <= many.tpot_s
    assert serve(max_num_batched_tokens=512).graph.steps > serve(max_num_batched_tokens=8192).graph.steps


def test_calibrated_overhead_and_efficiency_lengthen_the_step() -> None:
    plan = training_plan(WORKLOAD, tp=4, dp_replicate=4)
    base = dry_run(WORKLOAD, perlmutter(), plan)
    slow = dry_run(WORKLOAD, perlmutter(), plan, Calibration("fit", step_overhead_s=0.5, compute={"gemm": 0.5}))
    assert slow.wall_s > base.wall_s + 0.5
    assert slow.calibration == "fit"
    only = dry_run(WORKLOAD, perlmutter(), plan, Calibration("fit", step_overhead_s=0.5))
    assert only.wall_s == pytest.approx(base.wall_s + 0.5, rel=1e-6)


def test_detail_changes_kernels_not_times() -> None:
    plan = training_plan(WORKLOAD, tp=2, pp=2, dp_replicate=2)
    results = [dry_run(WORKLOAD, perlmutter(), plan, detail=d) for d in ("kernel", "block", "pass")]
    pieces = [sum(len(run.runs) * len(run.runs[0].pieces) for run in r.timelines[0].runs) for r in results]
    assert pieces[0] > pieces[1] > pieces[2]
    for other in results[1:]:
        assert other.wall_s == pytest.approx(results[0].wall_s, rel=1e-3)
        assert other.compute_s == pytest.approx(results[0].compute_s, rel=1e-3)


def test_equal_questions_have_equal_answers() -> None:
    assert step(tp=4, pp=2, dp_shard=2).summary() == step(tp=4, pp=2, dp_shard=2).summary()


def test_summary_is_plain_and_in_nanoseconds() -> None:
    result = step(tp=4)
    found = result.summary()
    assert found["wall_ns"] == round(result.wall_s * 1e9)
    assert {"wall_ns", "compute_ns", "comm_ns", "exposed_ns", "bubble_ns", "memory", "backend", "links"} <= set(found)
    assert (found["backend"], found["calibration"]) == ("flow", "uncalibrated")


def test_too_few_devices_is_an_error() -> None:
    with pytest.raises(BadInputError, match="takes 32 devices"):
        step(tp=16, pp=2)


def test_a_network_that_moves_bytes_in_no_time_is_an_error() -> None:
    plan = training_plan(WORKLOAD, tp=4)
    graph = training_graph(WORKLOAD, plan)
    with pytest.raises(BadInputError, match="in no time"):
        simulate(graph, System.of(perlmutter(), plan), FlatNetwork(bandwidth=float("inf")))


def test_a_step_without_its_communication_is_an_error() -> None:
    plan = training_plan(WORKLOAD, tp=4)
    graph = training_graph(WORKLOAD, plan)
    graph._groups["tp", 0] = ()
    next(task for task in graph.tasks if task.stream == "world").groups = ()
    with pytest.raises(CclSearchError, match="lost its communication"):
        simulate(graph, System.of(perlmutter(), plan), FlatNetwork())
