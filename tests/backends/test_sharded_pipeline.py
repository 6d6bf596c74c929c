"""Sharded state in a pipeline: PyTorch keeps weights gathered after a backward pass and reduces once, at the end.

The expected counts follow from the schedule by hand: a forward pass leaves its weights resharded, a backward pass
gathered, so that a pass gathers unless a backward pass came just before it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from backends.memory import estimate
from backends.training import DATA, training_graph
from runs import catalogue
from runs.plan import ParallelPlan, StateBytes

WORKLOAD = catalogue.workload("wl4")
FSDP = StateBytes(4.0, 4.0, 8.0, 2.0)


def plan(**changes: object) -> ParallelPlan:
    fields = {"dp_shard": 2, "pp": 2, "zero_stage": 3, "state_bytes": FSDP, "tp": 4, "sequence_parallel": True}
    return ParallelPlan("torchtitan", **{**fields, **changes})  # type: ignore[arg-type]


def batches(**changes: object) -> tuple[object, ParallelPlan]:
    from dataclasses import replace

    found = plan(**changes)
    return replace(WORKLOAD, batch_size=found.global_batch), found


def counted(**changes: object) -> Counter[tuple[int, str]]:
    """Gathers and reductions of whole passes, by stage: those of the first unit of each pass."""
    workload, found = batches(**changes)
    graph = training_graph(workload, found)  # type: ignore[arg-type]
    data = [task for task in graph.tasks if task.stream == DATA]
    passes = [(t.classes[0], "gather") for t in data if t.label.startswith("gather") and t.label.endswith(" 0")]
    return Counter([*passes, *((t.classes[0], "reduce") for t in data if t.label.startswith("reduce"))])


def test_a_pipeline_gathers_once_a_microbatch_and_once_more() -> None:
    # stage 0: F F B F B F B B, gathers before F F B B B; stage 1: F B F B F B F B, before F B B B B
    found = counted(num_microbatches=4)
    assert (found[0, "gather"], found[1, "gather"]) == (5, 5)


def test_a_pipeline_reduces_once_a_step() -> None:
    found = counted(num_microbatches=4)
    assert (found[0, "reduce"], found[1, "reduce"]) == (1, 1)


def test_without_a_pipeline_every_pass_gathers_and_every_backward_reduces() -> None:
    found = counted(num_microbatches=4, pp=1)
    units = WORKLOAD.model.num_layers + 2
    assert found[0, "gather"] == 8
    assert found[0, "reduce"] == 4 * units


def test_weights_that_are_not_resharded_are_gathered_once_in_a_pipeline() -> None:
    found = counted(num_microbatches=4, reshard_after_forward=False, zero_stage=2)
    assert (found[0, "gather"], found[1, "gather"]) == (1, 1)


def test_a_compiled_pipeline_gathers_and_reduces_in_every_pass() -> None:
    from dataclasses import replace

    workload, found = batches(num_microbatches=4)
    graph = training_graph(workload, replace(found, framework="maxtext"))  # type: ignore[arg-type]
    labels = [task.label for task in graph.tasks if task.stream == DATA and task.classes == (0,)]
    assert sum(label.startswith("gather") and label.endswith(" 0") for label in labels) == 8
    assert sum(label.startswith("reduce") for label in labels) >= 4


@pytest.mark.parametrize("pp", [2, 4])
def test_the_stage_is_whole_in_memory(pp: int) -> None:
    workload, found = batches(num_microbatches=4, pp=pp, tp=1, sequence_parallel=False)
    environment = catalogue.environment("perlmutter-a100-16")
    parts = estimate(workload, environment, found).parts  # type: ignore[arg-type]
    # bf16 weights and fp32 gradients of the stage, against shards of 4 + 4 bytes over two ranks
    assert parts["gathered"] == pytest.approx((2 + 4) / (4 / 2) * parts["weights"])
