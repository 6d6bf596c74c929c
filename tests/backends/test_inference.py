"""The serving graph: iterations, batch split, cache reads, pipeline parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from backends.graph import ExecutionGraph
from backends.inference import inference_graph, iterations
from backends.ops import Communication, Transfer
from runs import catalogue
from runs.plan import ParallelPlan
from runs.workload import Workload
from tests.backends.doubles import SERVING_STATE

WORKLOAD = Workload("test", catalogue.model("llama-3.1-8b"), "inference", 32, 1152, input_len=1024, output_len=128)


def plan(**fields: Any) -> ParallelPlan:
    return ParallelPlan("vllm", state_bytes=SERVING_STATE, **fields)


def graph(workload: Workload = WORKLOAD, **fields: Any) -> ExecutionGraph:
    return inference_graph(workload, plan(**fields))


def test_prefill_covers_every_prompt_token_once() -> None:
    steps = [s for s in iterations(WORKLOAD, plan(max_num_batched_tokens=3000)) if s.phase == "prefill"]
    assert sum(s.tokens for s in steps) == 32 * 1024
    assert max(s.tokens for s in steps) <= 3000
    assert sum(s.sampled for s in steps) == 32


def test_chunks_shorter_than_a_prompt_see_what_came_before() -> None:
    steps = [s for s in iterations(WORKLOAD, plan(max_num_batched_tokens=256)) if s.phase == "prefill"]
    assert [s.context for s in steps[:4]] == [128, 384, 640, 896]
    assert [s.sampled for s in steps[:4]] == [0, 0, 0, 1]
    assert len(steps) == 32 * 4


def test_decode_runs_at_least_128_steps_over_a_growing_context() -> None:
    steps = [s for s in iterations(WORKLOAD, plan()) if s.phase == "decode"]
    assert len(steps) == 128
    assert steps[0].context == 1040  # 1025 positions in blocks of 16
    assert steps[-1].context == 1152
    assert len([s for s in iterations(replace(WORKLOAD, output_len=300), plan()) if s.phase == "decode"]) == 300


def test_a_workload_that_generates_nothing_repeats_its_prefill() -> None:
    steps = iterations(replace(WORKLOAD, batch_size=1, output_len=1), plan())
    assert [s.phase for s in steps] == ["prefill"] * 5


def test_replicas_share_the_batch_and_a_limit_makes_waves() -> None:
    assert iterations(WORKLOAD, plan(dp_replicate=4))[-1].sequences == 8
    assert iterations(WORKLOAD, plan(dp_replicate=4, max_num_seqs=2))[-1].sequences == 2


def test_pipeline_stages_work_on_parts_of_the_batch() -> None:
    built = graph(pp=4)
    decodes = Counter(t.classes[0] for t in built.tasks if t.phase == "decode")
    assert decodes == dict.fromkeys(range(4), 128 * 4)
    names = Counter(t.label for t in built.tasks if t.stream == "pp3>0")
    assert set(names) == {"send_tokens"}


def test_first_pass_waits_for_the_tokens_of_the_last_iteration() -> None:
    built = graph(pp=2)
    first = [t for t in built.tasks if t.phase == "decode" and t.classes == (0,)]
    for task in first[2:6]:
        sources = [built.tasks[d] for d in task.deps if built.tasks[d].stream == "pp1>0"]
        assert [s.step for s in sources] == [task.step - 1]


def test_tensor_parallel_decode_exchanges_one_row_a_sequence() -> None:
    built = graph(tp=4)
    last = next(t for t in reversed(built.tasks) if t.phase == "decode")
    sizes = [i.nbytes for s in last.segments[1:2] for i in s.items if isinstance(i, Communication)]
    assert sizes == [2 * 32 * 4096] * 2


def test_logits_are_gathered_for_sampled_tokens_only() -> None:
    built = graph(tp=2, max_num_batched_tokens=2048)
    prefill = built.tasks[0]
    gathers = [i.nbytes for i in prefill.segments[-1].items if isinstance(i, Communication)]
    assert gathers == [2 * 2 * 128256]


def test_offloaded_weights_are_copied_for_every_pass() -> None:
    layer = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)
    built = graph(offload=True)
    copies = [i.nbytes for t in built.tasks for s in t.segments for i in s.items if isinstance(i, Transfer)]
    assert set(copies) == {layer}
    assert len(copies) == 32 * built.steps


def test_dispatch_backends() -> None:
    moe = replace(WORKLOAD, model=catalogue.model("deepseek-moe-16b"))

    def kinds(backend: str | None) -> set[str]:
        built = graph(moe, dp_replicate=4, ep=4, expert_placement="inside_dp_tp", all2all_backend=backend)
        items = (i for t in built.tasks for s in t.segments for i in s.items)
        return {i.kind for i in items if isinstance(i, Communication) and i.axis == "ep"}

    assert kinds("deepep_low_latency") == {"all_to_all"}
    assert kinds("naive") == kinds(None) == {"all_gather", "reduce_scatter"}


@pytest.mark.parametrize("name", ["wl1", "wl2", "wl3", "moe-prefill-v4-flash"])
def test_bundled_workloads_build(name: str) -> None:
    built = graph(catalogue.workload(name), tp=4)
    assert built.steps >= 5
    assert built.has_communication
