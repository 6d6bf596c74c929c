"""The training graph: traffic volumes from the literature, and where each knob puts its communication."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from backends.graph import ExecutionGraph
from backends.ops import Communication, Compute, Transfer
from backends.training import training_graph
from runs import catalogue
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import Workload
from tests.backends.doubles import FSDP_STATE, training_plan

LLAMA = catalogue.model("llama-3.1-8b")
WORKLOAD = Workload("test", LLAMA, "training", 16, 1024)
PARAMS = 8_030_261_248 - 4096  # the final norm is kept by no unit of its own


def graph(workload: Workload = WORKLOAD, **fields: Any) -> ExecutionGraph:
    return training_graph(workload, training_plan(workload, **fields))


def volume(built: ExecutionGraph, rank_class: int = 0) -> dict[tuple[str, str], float]:
    """Bytes by (axis, kind) that one class hands to its collectives."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for task in built.tasks:
        if task.classes[0] == rank_class:
            for segment in task.segments:
                for item in segment.items:
                    if isinstance(item, Communication) and built.groups_of(item, task):
                        total[item.axis, item.kind] += item.nbytes
    return dict(total)


def flops(built: ExecutionGraph) -> float:
    """Matrix and attention FLOPs of all classes, on one rank each."""
    kinds = ("gemm", "grouped_gemm", "attention", "attention_backward")
    items = (item for task in built.tasks for segment in task.segments for item in segment.items)
    return sum(item.flops for item in items if isinstance(item, Compute) and item.kind in kinds)


def test_a_step_costs_six_flops_a_parameter_and_token_plus_attention() -> None:
    tokens = 16 * 1024
    weights = 8_030_261_248 - 128256 * 4096 - 65 * 4096  # the embedding is looked up, norms multiply nothing
    attention = (1 + 2.5) * 4 * tokens * 512 * 32 * 128 * 32
    assert flops(graph()) == pytest.approx(6 * weights * tokens + attention, rel=1e-9)


@pytest.mark.parametrize("fields", [{"tp": 4}, {"pp": 4}, {"dp_shard": 8}, {"tp": 2, "pp": 2, "dp_replicate": 4}])
def test_parallelism_divides_the_work_and_loses_none(fields: dict[str, int]) -> None:
    plan = training_plan(WORKLOAD, **fields)
    assert flops(graph(**fields)) * plan.world_size / plan.pp == pytest.approx(flops(graph()), rel=1e-9)


def test_full_recomputation_costs_one_more_forward() -> None:
    tokens = 16 * 1024
    layers = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    forward = 2 * layers * tokens + 4 * tokens * 512 * 32 * 128 * 32
    assert flops(graph(recompute="full")) - flops(graph()) == pytest.approx(forward, rel=1e-9)


def test_plain_data_parallelism_reduces_each_gradient_once() -> None:
    assert volume(graph(dp_replicate=4))["replicate", "all_reduce"] == 4 * PARAMS


def test_zero_one_scatters_gradients_and_gathers_weights_once() -> None:
    found = volume(graph(dp_shard=4, zero_stage=1))
    assert found["dp", "reduce_scatter"] == 4 * PARAMS
    assert found["dp", "all_gather"] == pytest.approx(2 * PARAMS, rel=1e-5)
    assert ("replicate", "all_reduce") not in found


def test_fsdp_gathers_twice_and_scatters_once_a_microbatch() -> None:
    # Zhao et al. 2023: all-gather before forward and before backward, reduce-scatter after backward
    found = volume(graph(dp_shard=4, zero_stage=3, state_bytes=FSDP_STATE, micro_batch_size=2))
    assert found["dp", "all_gather"] == 2 * (2 * 2 * PARAMS)  # two micro-batches, bf16
    assert found["dp", "reduce_scatter"] == 2 * 4 * PARAMS


def test_kept_weights_are_gathered_once_a_microbatch() -> None:
    kept = volume(graph(dp_shard=4, zero_stage=2, reshard_after_forward=False, micro_batch_size=2))
    assert kept["dp", "all_gather"] == 2 * 2 * PARAMS


def test_replicas_of_shards_reduce_their_shards() -> None:
    found = volume(graph(dp_shard=4, dp_replicate=2, zero_stage=3, state_bytes=FSDP_STATE, micro_batch_size=2))
    assert found["replicate", "all_reduce"] == 4 * PARAMS / 4


def test_tensor_parallel_traffic_of_a_step() -> None:
    # four all-reduces of the hidden states a layer and micro-batch; embedding and head add one each way
    hidden = 2 * 1024 * 4096
    found = volume(graph(tp=4))
    loss = 3 * 4 * 1024
    assert found["tp", "all_reduce"] == 16 * (32 * 4 * hidden + 2 * hidden + loss)


def test_stages_exchange_hidden_states_forward_and_backward() -> None:
    built = graph(pp=4)
    sends = Counter(t.label.split()[1] for t in built.tasks if t.stream.startswith("pp"))
    assert sends == {"forward": 3 * 16, "backward": 3 * 16}
    assert volume(built)["pp", "send_recv"] == 16 * 2 * 1024 * 4096  # stage 0 only sends forward


def test_interleaving_passes_between_all_chunks() -> None:
    built = graph(pp=4, pipeline_schedule="interleaved")
    sends = Counter(t.label.split()[1] for t in built.tasks if t.stream.startswith("pp"))
    assert sends == {"forward": 7 * 16, "backward": 7 * 16}


def test_tied_embeddings_add_their_gradients_over_the_pipeline() -> None:
    qwen = Workload("test", catalogue.model("qwen3-4b"), "training", 16, 1024)
    assert volume(graph(qwen, pp=2))["pp", "all_reduce"] == 4 * 151936 * 2560
    assert ("pp", "all_reduce") not in volume(graph(pp=2))


def test_experts_reduce_over_the_ranks_that_share_them() -> None:
    lite = Workload("test", catalogue.model("deepseek-v2-lite"), "training", 16, 1024)
    found = volume(graph(lite, dp_replicate=8, ep=4))
    assert found["edp", "all_reduce"] == 4 * 26 * 64 * 3 * 2048 * 1408 / 4
    hidden = 2 * 1024 * 6 * 2048
    assert found["ep", "all_to_all"] == 2 * 26 * 4 * hidden  # two micro-batches, four exchanges a layer


def test_gradients_that_are_not_sharded_are_accumulated() -> None:
    names = {i.name for t in graph(dp_replicate=2).tasks for s in t.segments for i in s.items}
    sharded = {i.name for t in graph(dp_shard=2).tasks for s in t.segments for i in s.items}
    assert "accumulate_gradients" in names
    assert "accumulate_gradients" not in sharded


def test_an_offloaded_optimizer_copies_gradients_out_and_weights_in() -> None:
    copies = {
        item.direction: item.nbytes
        for task in graph(offload=True, tp=4).tasks for segment in task.segments for item in segment.items
        if isinstance(item, Transfer)
    }  # fmt: skip
    assert copies["DtoH"] == 2 * copies["HtoD"] == pytest.approx(4 * 8_030_261_248 / 4, rel=1e-3)


def test_unoverlapped_gradients_wait_for_the_whole_backward() -> None:
    def reductions(overlap: bool) -> int:
        return sum(t.stream == "dp" for t in graph(dp_replicate=2, overlap_communication=overlap).tasks)

    assert reductions(False) == 1
    assert reductions(True) == 32 + 2


def test_all_ranks_agree_on_the_gradient_norm() -> None:
    built = graph(pp=2, tp=2)
    norm = next(t for t in built.tasks if t.stream == "world")
    assert norm.classes == (0, 1)
    assert norm.groups == ((0, 1, 2, 3),)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (ParallelPlan("test", num_microbatches=3), "sequences a step"),
        (ParallelPlan("test", tp=3, num_microbatches=16), "attention heads"),
        (ParallelPlan("test", ep=2, num_microbatches=16), "experts"),
        (ParallelPlan("test", cp=3, num_microbatches=16), "tokens"),
    ],
)
def test_impossible_plans_are_refused(plan: ParallelPlan, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        training_graph(WORKLOAD, plan)
