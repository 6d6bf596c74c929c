"""Trace files: read back by an independent reader they give the simulator's own figures; the schema is Kineto's."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from backends.calibration import Calibration
from backends.dry_run import dry_run
from backends.timeline import SimulationResult
from backends.trace import encode_trace, write_traces
from runs import catalogue
from runs.plan import ParallelPlan
from runs.workload import Workload
from tests.backends.doubles import FSDP_STATE, SERVING_STATE, perlmutter, read_trace, training_plan
from tests.timing import cpu_seconds

LLAMA = replace(catalogue.model("llama-3.1-8b"), num_layers=8)  # fewer layers: smaller files, the same kernels
LITE = replace(catalogue.model("deepseek-v2-lite"), num_layers=8)
DENSE = Workload("dense", LLAMA, "training", 4, 512)
MOE = Workload("moe", LITE, "training", 8, 512)
SERVE = Workload("serve", LLAMA, "inference", 16, 1152, input_len=1024, output_len=128)
SERVE_MOE = replace(SERVE, model=replace(catalogue.model("deepseek-moe-16b"), num_layers=8))

TRAINING: dict[str, tuple[Workload, dict[str, Any]]] = {
    "fsdp tp pp": (DENSE, {"tp": 4, "pp": 2, "dp_shard": 2, "sequence_parallel": True, "state_bytes": FSDP_STATE}),
    "one device a stage": (DENSE, {"pp": 8, "recompute": "full"}),
    "one device": (DENSE, {}),
    "contending": (DENSE, {"tp": 2, "cp": 2, "dp_shard": 2, "zero_stage": 2}),
    "interleaved offload": (DENSE, {"tp": 4, "pp": 4, "pipeline_schedule": "interleaved", "offload": True}),
    "experts": (MOE, {"tp": 2, "pp": 2, "dp_replicate": 4, "ep": 4, "sequence_parallel": True}),
    "graphs": (DENSE, {"tp": 8, "dp_replicate": 2, "cuda_graph": True, "recompute": "selective"}),
}
SERVING: dict[str, tuple[Workload, dict[str, Any]]] = {
    "tp": (SERVE, {"tp": 4, "dp_replicate": 4, "cuda_graph": True}),
    "pp": (SERVE, {"tp": 2, "pp": 4, "max_num_seqs": 8}),
    "one": (SERVE, {}),
    "offload": (SERVE, {"offload": True, "max_num_seqs": 2}),
    "experts": (SERVE_MOE, {"tp": 4, "dp_replicate": 4, "ep": 16, "expert_placement": "inside_dp_tp"}),
}


@cache
def train(name: str) -> SimulationResult:
    workload, fields = TRAINING[name]
    return dry_run(workload, perlmutter(), training_plan(workload, **fields))


@cache
def serve(name: str) -> SimulationResult:
    workload, fields = SERVING[name]
    return dry_run(workload, perlmutter(), ParallelPlan("vllm", state_bytes=SERVING_STATE, **fields))


def assert_same_figures(result: SimulationResult, folder: Path, compress: bool = False) -> None:
    info = write_traces(result, folder, compress)
    assert len(info.files) == len(result.timelines)
    for path, timeline in zip(info.files, result.timelines, strict=True):
        read, figures = read_trace(path), timeline.figures
        assert read.wall == pytest.approx(figures.wall_s, rel=1e-3)
        assert read.compute == pytest.approx(figures.compute_s, rel=1e-3)
        assert read.comm == pytest.approx(figures.comm_s, rel=1e-3, abs=1e-9)
        assert read.exposed == pytest.approx(figures.exposed_s, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("name", TRAINING)
def test_training_figures_survive_the_file(name: str, tmp_path: Path) -> None:
    assert_same_figures(train(name), tmp_path)


@pytest.mark.parametrize("name", SERVING)
def test_serving_figures_survive_the_file(name: str, tmp_path: Path) -> None:
    assert_same_figures(serve(name), tmp_path)


@pytest.mark.parametrize("detail", ["block", "pass"])
def test_folded_figures_survive_the_file(detail: Any, tmp_path: Path) -> None:
    workload, fields = TRAINING["contending"]
    assert_same_figures(dry_run(workload, perlmutter(), training_plan(workload, **fields), detail=detail), tmp_path)


def test_calibrated_overhead_survives_the_file(tmp_path: Path) -> None:
    fitted = Calibration("fit", step_overhead_s=0.004)
    plan = training_plan(DENSE, tp=4)
    assert_same_figures(dry_run(DENSE, perlmutter(), plan, fitted), tmp_path / "training")
    serving = ParallelPlan("vllm", tp=4, state_bytes=SERVING_STATE)
    assert_same_figures(dry_run(SERVE, perlmutter(), serving, fitted), tmp_path / "serving")


def test_compressed_files_hold_the_same(tmp_path: Path) -> None:
    result = train("experts")
    assert_same_figures(result, tmp_path, compress=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0_trace.json.gz", "rank8_trace.json.gz"]


def test_five_steps_are_recorded_after_five_that_are_not(tmp_path: Path) -> None:
    info = write_traces(train("experts"), tmp_path)
    assert info.as_dict() == {"warmup_steps": 5, "recorded_steps": 5, "decode_steps": 0}
    read = read_trace(info.files[0])
    assert [e["name"] for e in read.steps] == [f"ProfilerStep#{n}" for n in range(5, 10)]
    assert read.data["simulated"]["warmup_steps"] == 5


def test_serving_spans_say_what_they_did(tmp_path: Path) -> None:
    result = serve("pp")
    info = write_traces(result, tmp_path)
    names = [e["name"] for e in read_trace(info.files[-1]).steps]
    assert info.decode_steps == 128
    prefill = [re.fullmatch(r"execute_context_(\d+)\((\d+)\)_generation_0\(0\)", n) for n in names]
    assert sum(int(m[2]) for m in prefill if m) == 8 * 1024
    assert names.count("execute_context_0(0)_generation_8(8)") == 128


def test_time_to_first_token_and_decode_step_from_the_spans(tmp_path: Path) -> None:
    result = serve("tp")
    read = read_trace(write_traces(result, tmp_path).files[0])
    prefill = [e for e in read.steps if e["name"].endswith("generation_0(0)")]
    decode = [e for e in read.steps if e not in prefill]
    assert result.ttft_s == pytest.approx((prefill[-1]["ts"] + prefill[-1]["dur"]) * 1e-6, rel=1e-3)
    assert result.tpot_s == pytest.approx(sum(e["dur"] for e in decode) / len(decode) * 1e-6, rel=1e-3)


def test_metadata_names_rank_world_and_represented_ranks(tmp_path: Path) -> None:
    info = write_traces(train("experts"), tmp_path)
    ranks: list[int] = []
    for path in info.files:
        data = json.loads(path.read_text())
        ranks += data["represents"]
        assert data["distributedInfo"]["rank"] == data["represents"][0]
        assert data["distributedInfo"]["world_size"] == 16
        assert data["deviceProperties"][0]["numSms"] == 108
        assert data["baseTimeNanoseconds"] > 0
        assert re.search(r'"rank":\s+(\d+)', path.read_text()[:2000])  # how HolisticTraceAnalysis finds a file's rank
    assert sorted(ranks) == list(range(16))


def test_every_device_event_has_its_launch_in_its_step(tmp_path: Path) -> None:
    events = json.loads(write_traces(train("interleaved offload"), tmp_path).files[0].read_text())["traceEvents"]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy")]
    assert {e["cat"] for e in device} == {"kernel", "gpu_memcpy"}
    for event in device:
        assert launches[event["args"]["correlation"]]["ts"] <= event["ts"]
        assert event["args"]["stream"] == event["tid"]
    assert len(launches) == len({e["args"]["correlation"] for e in device})


def test_kernels_of_a_stream_do_not_overlap(tmp_path: Path) -> None:
    for path in write_traces(train("fsdp tp pp"), tmp_path).files:
        streams: dict[int, list[tuple[int, int]]] = {}
        for kernel in read_trace(path).kernels:
            start = round(kernel["ts"] * 1000)
            streams.setdefault(kernel["tid"], []).append((start, start + round(kernel["dur"] * 1000)))
        assert len(streams) >= 3
        for intervals in streams.values():
            intervals.sort()
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(intervals))


def test_collectives_say_sizes_groups_and_sequence(tmp_path: Path) -> None:
    info = write_traces(train("experts"), tmp_path)
    kernels = [k for k in read_trace(info.files[1]).kernels if "Collective name" in k["args"]]
    dispatch = next(k for k in kernels if k["args"]["operation"] == "dispatch_all_to_all")
    assert dispatch["name"].startswith("ncclDevKernel_SendRecv")
    # one sequence of 512 tokens, half of them on each tensor-parallel rank, six experts a token
    assert dispatch["args"]["In msg nelems"] == dispatch["args"]["Out msg nelems"] == 256 * 6 * 2048
    assert dispatch["args"]["Group size"] == 4
    assert json.loads(dispatch["args"]["Process Group Ranks"]) == [8, 10, 12, 14]
    gather = next(k for k in kernels if k["args"]["Collective name"] == "_allgather_base")
    assert gather["args"]["Out msg nelems"] == gather["args"]["Group size"] * gather["args"]["In msg nelems"]
    numbers: dict[str, list[int]] = {}
    for kernel in kernels:
        numbers.setdefault(kernel["args"]["Process Group Name"], []).append(kernel["args"]["Seq"])
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in numbers.values())


def test_ranks_of_a_message_name_the_same_group_and_number(tmp_path: Path) -> None:
    files = write_traces(train("one device a stage"), tmp_path).files
    seen = []
    for path in files[:2]:
        kernels = [k for k in read_trace(path).kernels if k["args"].get("operation") == "send_forward"]
        seen.append({(k["args"]["Process Group Name"], k["args"]["Seq"]) for k in kernels
                     if json.loads(k["args"]["Process Group Ranks"]) == [0, 1]})  # fmt: skip
    assert seen[0] == seen[1] != set()


def test_one_side_sends_and_the_other_receives(tmp_path: Path) -> None:
    names = []
    for path in write_traces(train("one device a stage"), tmp_path).files[:2]:
        kernels = [k["args"] for k in read_trace(path).kernels if k["args"].get("operation") == "send_forward"]
        names.append({k["Collective name"] for k in kernels if json.loads(k["Process Group Ranks"]) == [0, 1]})
    assert names == [{"send"}, {"recv"}]


def test_effective_bandwidth_from_the_arguments_is_below_the_link_speed(tmp_path: Path) -> None:
    kernels = read_trace(write_traces(train("experts"), tmp_path).files[0]).kernels
    for kernel in kernels:
        args = kernel["args"]
        if args.get("Collective name") == "_allgather_base" and args["Process Group Description"] == "tensor":
            n = args["Group size"]
            sent = (n - 1) / n * args["Out msg nelems"] * 2
            assert sent / (kernel["dur"] * 1e-6) <= 300e9


def test_bubbles_are_annotated_and_add_up(tmp_path: Path) -> None:
    result = train("one device a stage")
    for path, timeline in zip(write_traces(result, tmp_path).files, result.timelines, strict=True):
        events = json.loads(path.read_text())["traceEvents"]
        found = [e for e in events if e["name"] == "bubble"]
        assert {e["cat"] for e in found} == {"gpu_user_annotation"}
        assert sum(e["dur"] for e in found) * 1e-6 / 5 == pytest.approx(timeline.figures.bubble_s, rel=1e-3)


def test_bubbles_of_serving_lie_in_their_iteration(tmp_path: Path) -> None:
    result = serve("pp")
    for path, timeline in zip(write_traces(result, tmp_path).files, result.timelines, strict=True):
        read = read_trace(path)
        found = [e for e in read.data["traceEvents"] if e["name"] == "bubble"]
        assert sum(e["dur"] for e in found) * 1e-6 == pytest.approx(sum(s.bubble_s for s in timeline.steps), rel=1e-3)


def test_no_event_lasts_less_than_nothing(tmp_path: Path) -> None:
    for result in (serve("pp"), train("interleaved offload")):
        for path in write_traces(result, tmp_path / result.graph.workload.name).files:
            assert min(e["dur"] for e in json.loads(path.read_text())["traceEvents"] if "dur" in e) >= 0


def test_passes_and_memory_are_marked(tmp_path: Path) -> None:
    result = train("one device a stage")
    events = json.loads(write_traces(result, tmp_path).files[0].read_text())["traceEvents"]
    passes = {e["args"]["pass"] for e in events if e.get("cat") == "gpu_user_annotation" and "pass" in e["args"]}
    assert passes == {"forward", "backward", "optimizer"}
    assert {e["args"].get("microbatch") for e in events if e.get("cat") == "gpu_user_annotation"} >= set(range(4))
    memory = [e for e in events if e["name"] == "[memory]"]
    assert result.memory
    peak = result.memory.total_bytes - result.memory.parts["framework"]
    assert max(e["args"]["Total Allocated"] for e in memory) == int(peak)
    assert {e["ph"] for e in memory} == {"i"}


def test_equal_simulations_write_equal_bytes() -> None:
    first, second = train("experts"), train.__wrapped__("experts")
    assert encode_trace(first, first.timelines[1]) == encode_trace(second, second.timelines[1])


def test_a_training_step_is_written_quickly(tmp_path: Path) -> None:
    workload = catalogue.workload("wl4")
    plan = training_plan(workload, tp=4, pp=2, dp_shard=2, sequence_parallel=True, state_bytes=FSDP_STATE)
    result = dry_run(workload, perlmutter(), plan)
    turns = itertools.count()
    seconds = cpu_seconds(lambda: write_traces(result, tmp_path / str(next(turns))))
    info = write_traces(result, tmp_path / "once")
    assert seconds < 0.6  # 0.09 s on an idle core; CI cores are shared
    assert sum(path.stat().st_size for path in info.files) < 20e6
