"""Command lines of the serving engines, written by hand from what each release's argument files say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runs import catalogue
from runs.errors import BadInputError
from tests.launchers.frameworks.commands import command, flags

ONE_NODE = {"tp": 4, "pp": 1, "dp": 1, "max_num_seqs": 64, "max_num_batched_tokens": 8192, "cuda_graph": False}
VLLM = {
    "": ["bench", "latency"],
    "--model": ["Qwen/Qwen3-4B"], "--load-format": ["dummy"], "--dtype": ["bfloat16"], "--batch-size": ["128"],
    "--input-len": ["1024"], "--output-len": ["129"], "--max-model-len": ["1153"], "--num-iters-warmup": ["3"],
    "--tensor-parallel-size": ["4"], "--pipeline-parallel-size": ["1"], "--max-num-seqs": ["64"],
    "--max-num-batched-tokens": ["8192"], "--enforce-eager": [], "--profile": [], "--disable-detokenize": [],
    "--seed": ["0"],
}  # fmt: skip
PROFILER = {
    "--profiler-config.profiler": ["torch"],
    "--profiler-config.torch_profiler_dir": ["@CCL_TRACE_DIR@"],
    "--profiler-config.torch_profiler_with_stack": ["false"],
}
BY_VARIABLE = {
    "VLLM_TORCH_PROFILER_DIR": "@CCL_TRACE_DIR@",
    "VLLM_TORCH_PROFILER_WITH_STACK": "0",
    "VLLM_RPC_TIMEOUT": "1800000",
}


@pytest.mark.parametrize(
    ("version", "more", "variables"),
    [
        ("0.10.1", {}, BY_VARIABLE),
        ("0.12.0", {}, BY_VARIABLE),
        ("0.13.0", PROFILER, {"VLLM_RPC_TIMEOUT": "1800000"}),
        ("0.14.1", PROFILER, {"VLLM_RPC_TIMEOUT": "1800000"}),
        ("0.19.0", PROFILER, {"VLLM_RPC_TIMEOUT": "1800000"}),
    ],
)
def test_vllm_on_one_node(version: str, more: dict[str, list[str]], variables: dict[str, str]) -> None:
    made = command("vllm", ONE_NODE, version, "wl1")

    assert made.argv[:3] == ("python3", "-m", "vllm.entrypoints.cli.main")
    assert flags(made.argv, "vllm.entrypoints.cli.main") == {**VLLM, **more}
    assert made.env == variables
    assert (made.nodes, made.xpus_per_node, made.trace_globs, made.trace_count) == (1, 4, ("**/*.pt.trace.json*",), 4)
    unmarked = [note for note in made.notes if "prefill and which decode" in note]
    assert len(unmarked) == (version < "0.14")
    assert made.notes == (*unmarked, "requests generate 129 tokens, so that 128 decode steps are recorded")


def test_vllms_replicas_share_the_batch_under_torchrun() -> None:
    config = {"tp": 2, "pp": 1, "dp": 4, "ep": 8, "max_num_seqs": 32, "all2all_backend": "allgather_reducescatter"}
    made = command("vllm", config, "0.19.0", "wl3")
    told = flags(made.argv, "vllm.entrypoints.cli.main")

    assert made.argv[:3] == ("torchrun", "--nnodes=2", "--nproc-per-node=4")
    assert (told["--data-parallel-size"], told["--tensor-parallel-size"]) == (["4"], ["2"])
    assert told["--batch-size"] == ["32"]
    assert told["--distributed-executor-backend"] == ["external_launcher"] and told["--enable-expert-parallel"] == []
    assert told["--all2all-backend"] == ["allgather_reducescatter"] and made.trace_count == 8


def test_vllms_backend_of_experts_was_a_variable() -> None:
    config = {"tp": 4, "dp": 1, "ep": 4, "all2all_backend": "pplx"}

    assert command("vllm", config, "0.10.1", "wl3").env["VLLM_ALL2ALL_BACKEND"] == "pplx"
    assert "--all2all-backend" in command("vllm", config, "0.12.0", "wl3").argv
    with pytest.raises(BadInputError, match="all2all_backend='pplx'"):
        command("vllm", config, "0.19.0", "wl3")


def test_vllm_on_a_tpu_host_is_one_process_with_all_replicas() -> None:
    made = command("vllm", {"tp": 4, "dp": 2, "max_num_seqs": 64}, "0.19.0", "wl1", "tpu-v6e-8")
    assert made.env["TF_PROFILER_TRACE_VIEWER_MAX_EVENTS"] == "4000000"
    told = flags(made.argv, "vllm.entrypoints.cli.main")

    assert made.argv[0] == "python3" and told["--data-parallel-size"] == ["2"] and told["--batch-size"] == ["128"]
    assert (made.trace_globs, made.trace_count) == (("**/*.trace.json.gz",), 1)
    with pytest.raises(BadInputError, match="several TPU hosts"):
        command("vllm", {"tp": 8, "dp": 2, "max_num_seqs": 64}, "0.19.0", "wl1", "tpu-v6e-16")


SGLANG = {
    "": [],
    "--model-path": ["Qwen/Qwen3-4B"], "--load-format": ["dummy"], "--dtype": ["bfloat16"], "--tp-size": ["4"],
    "--pp-size": ["1"], "--max-running-requests": ["64"], "--chunked-prefill-size": ["8192"],
    "--disable-cuda-graph": [], "--skip-tokenizer-init": [], "--disable-radix-cache": [], "--random-seed": ["0"],
    "--batch-size": ["128"], "--input-len": ["1024"], "--output-len": ["129"], "--warmup-batches": ["3"],
    "--trace-files": ["4"], "--finished": ["@CCL_TRACE_DIR@/finished"],
}  # fmt: skip


@pytest.mark.parametrize("version", ["0.4.10", "0.5.10.post1", "0.5.23"])
def test_sglang_on_one_node(version: str) -> None:
    made = command("sglang", ONE_NODE, version, "wl1")

    assert made.argv[:2] == ("python3", "@CCL_JOB_DIR@/ccl_sglang.py") and list(made.files) == ["ccl_sglang.py"]
    assert flags(made.argv, "@CCL_JOB_DIR@/ccl_sglang.py") == SGLANG
    assert made.env["SGLANG_TORCH_PROFILER_DIR"] == "@CCL_TRACE_DIR@/node-@CCL_NODE_RANK@"
    assert (made.trace_globs, made.trace_count) == (("**/*.trace.json.gz",), 4)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ({"tp": 2, "dp": 2}, {"--dp-size": ["2"], "--batch-size": ["128"], "--nnodes": None}),
        ({"tp": 2, "dp": 4}, {"--dp-size": ["2"], "--batch-size": ["64"], "--nnodes": None}),
        ({"tp": 4, "dp": 4}, {"--dp-size": None, "--batch-size": ["32"], "--nnodes": None}),
        (
            {"tp": 8, "dp": 1},
            {"--nnodes": ["2"], "--node-rank": ["@CCL_NODE_RANK@"], "--batch-size": ["128"], "--job-node": None,
             "--dist-init-addr": ["@CCL_MASTER_ADDR@:@CCL_MASTER_PORT@"]},
        ),
        (
            {"tp": 8, "dp": 2},
            {"--nnodes": ["2"], "--job-node": ["@CCL_NODE_RANK@"], "--batch-size": ["64"], "--dist-init-addr": None},
        ),
    ],
)  # fmt: skip
def test_sglangs_replicas_on_nodes_of_four(degrees: dict[str, int], expected: dict[str, list[str] | None]) -> None:
    made = command("sglang", {**degrees, "max_num_seqs": 32}, "0.5.10.post1", "wl1")
    told = flags(made.argv, "@CCL_JOB_DIR@/ccl_sglang.py")

    assert {name: told.get(name) for name in expected} == expected
    assert made.trace_count == degrees["tp"] * degrees["dp"]


def test_sglangs_experts_were_switched_on() -> None:
    config = {"tp": 4, "dp": 1, "ep": 4, "max_num_seqs": 32, "all2all_backend": "deepep"}
    old = flags(command("sglang", config, "0.4.10", "wl3").argv, "@CCL_JOB_DIR@/ccl_sglang.py")
    new = flags(command("sglang", config, "0.5.10", "wl3").argv, "@CCL_JOB_DIR@/ccl_sglang.py")

    assert old["--enable-ep-moe"] == [] == old["--enable-deepep-moe"] and old["--ep-size"] == ["4"]
    assert new["--moe-a2a-backend"] == ["deepep"] and new["--ep-size"] == ["4"] and "--enable-ep-moe" not in new


def test_a_workload_without_decode_keeps_its_single_token() -> None:
    made = command("vllm", {"tp": 4, "dp": 1}, "0.19.0", "moe-prefill-glm-5", model="/models/glm")
    told = flags(made.argv, "vllm.entrypoints.cli.main")

    assert (told["--output-len"], told["--max-model-len"], made.notes) == (["1"], ["4097"], ())
    assert made.steps == {"warmup_steps": 3, "decode_steps": 0}
    assert command("sglang", ONE_NODE, "0.5.10", "wl1").steps == {"warmup_steps": 3, "decode_steps": 128}


@pytest.mark.parametrize("framework", ["vllm", "sglang"])
def test_models_weights_and_tokenizers_come_from_the_target(framework: str) -> None:
    version = {"vllm": "0.19.0", "sglang": "0.5.10"}[framework]
    made = command(
        framework, {"tp": 1, "dp": 1}, version, "wl1", model="/m", tokenizer="/t", weights="auto", extra=["--x", "1"]
    )

    assert {"/m", "/t", "auto"} <= set(made.argv) and made.argv[-2:] == ("--x", "1") and "dummy" not in made.argv


def test_the_hubs_model_is_taken_only_for_its_own_shape() -> None:
    what = catalogue.workload("wl1")
    carded = replace(what, model=replace(what.model, source="card: num_layers, hidden_size"))
    other = replace(carded, model=replace(carded.model, num_layers=12))

    assert "Qwen/Qwen3-4B" in command("vllm", ONE_NODE, "0.19.0", carded).argv
    with pytest.raises(BadInputError, match="nothing says where qwen3-4b is"):
        command("vllm", ONE_NODE, "0.19.0", other)
    assert "/m" in command("vllm", ONE_NODE, "0.19.0", other, model="/m").argv


@pytest.mark.parametrize(("framework", "version"), [("vllm", "0.19.0"), ("sglang", "0.5.10")])
def test_a_chosen_collective_is_not_passed_by_by_the_engines_own(framework: str, version: str) -> None:
    chosen = command(framework, {**ONE_NODE, "collective_algorithm": "tree"}, version, "wl1")
    left = command(framework, {**ONE_NODE, "collective_algorithm": "auto"}, version, "wl1")

    assert "--disable-custom-all-reduce" in chosen.argv and chosen.env["NCCL_ALGO"] == "Tree"
    assert "--disable-custom-all-reduce" not in left.argv and "NCCL_ALGO" not in left.env
