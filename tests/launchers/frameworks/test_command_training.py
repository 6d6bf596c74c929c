"""Command lines of the training frameworks, written by hand from what each release's argument files say."""

from __future__ import annotations

from typing import Any

import pytest

from runs import catalogue
from runs.errors import BadInputError
from tests.launchers.frameworks.commands import command, flags, training

BATCH_32 = training(batch_size=32, seq_len=1024)
DENSE = {
    "tp": 2, "pp": 2, "dp": 4, "dp_shard": 4, "cp": 1, "zero_stage": 2, "micro_batch_size": 2,
    "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": True,
}  # fmt: skip
ON_FOUR_NODES = (
    "torchrun", "--nnodes=4", "--nproc-per-node=4", "--node-rank=@CCL_NODE_RANK@", "--master-addr=@CCL_MASTER_ADDR@",
    "--master-port=@CCL_MASTER_PORT@",
)  # fmt: skip

SHARED = {
    "--training.local_batch_size": ["8"],  # 32 sequences / dp 4, split into micro-batches of 2 by the pipeline
    "--training.global_batch_size": ["32"],
    "--training.seq_len": ["1024"],
    "--training.mixed_precision_param": ["bfloat16"],
    "--parallelism.data_parallel_replicate_degree": ["1"],
    "--parallelism.data_parallel_shard_degree": ["4"],
    "--parallelism.tensor_parallel_degree": ["2"],
    "--parallelism.context_parallel_degree": ["1"],
    "--parallelism.pipeline_parallel_degree": ["2"],
    "--parallelism.pipeline_parallel_microbatch_size": ["2"],
    "--parallelism.pipeline_parallel_schedule": ["1F1B"],
    "--parallelism.fsdp_reshard_after_forward": ["never"],
    "--activation_checkpoint.mode": ["full"],
    "--metrics.log_freq": ["1"],
    "--metrics.disable_color_printing": [],
    "": [],
}
TOML = {
    **SHARED,
    "--model.name": ["llama3"],
    "--model.flavor": ["8B"],
    "--job.dump_folder": ["@CCL_TRACE_DIR@"],
    "--training.dataset": ["c4_test"],
    "--profiling.enable_profiling": [],
    "--profiling.save_traces_folder": ["profile_traces"],
}
FIVE_OF_TEN = {
    "--training.steps": ["10"],
    "--profiling.profile_freq": ["10"],
    "--profiling.profiler_warmup": ["3"],
    "--profiling.profiler_active": ["5"],
    "--parallelism.expert_parallel_degree": ["1"],
    "--compile.enable": [],
}
MODULE = {
    **SHARED,
    "--module": ["llama3"],
    "--config": ["llama3_8b"],
    "--dump_folder": ["@CCL_TRACE_DIR@"],
    "--dataloader.dataset": ["c4_test"],
}
TORCHTITAN: dict[str, dict[str, list[str]]] = {
    "0.1.0": {
        **TOML,
        "--training.compile": [],
        "--training.steps": ["30"],
        "--profiling.profile_freq": ["6"],
    },
    "0.2.0": {**TOML, **FIVE_OF_TEN},
    "0.2.2": {**TOML, **FIVE_OF_TEN},
    "2026-03-01": {
        **MODULE,
        **FIVE_OF_TEN,
        "--profiling.enable_profiling": [],
        "--profiling.save_traces_folder": ["profile_traces"],
    },
    "2026-05-01": {
        **MODULE,
        "--training.steps": ["10"],
        "--profiler.enable_profiling": [],
        "--profiler.save_traces_folder": ["profile_traces"],
        "--profiler.profile_freq": ["10"],
        "--profiler.profiler_warmup": ["3"],
        "--profiler.profiler_active": ["5"],
        "--parallelism.expert_parallel_degree": ["1"],
        "--compile.enable": [],
    },
}


@pytest.mark.parametrize("version", TORCHTITAN)
def test_torchtitan_with_flags(version: str) -> None:
    made = command("torchtitan", DENSE, version, BATCH_32)

    assert made.argv[:8] == (*ON_FOUR_NODES, "-m", "torchtitan.train")
    assert flags(made.argv, "torchtitan.train") == TORCHTITAN[version]
    assert (made.nodes, made.xpus_per_node, made.per_node, made.working_dir) == (4, 4, True, "/opt/checkout")
    assert made.trace_globs == ("profile_traces/**/rank*_trace.json*",)
    assert made.trace_count == (80 if version == "0.1.0" else 16)
    assert made.notes == () and made.files == {}
    assert made.steps == {"warmup_steps": 5, "recorded_steps": 5}


@pytest.mark.parametrize(
    ("version", "variable"),
    [("0.1.0", "PYTORCH_CUDA_ALLOC_CONF"), ("0.2.2", "PYTORCH_CUDA_ALLOC_CONF"), ("2026-05-01", "PYTORCH_ALLOC_CONF")],
)
def test_torchtitans_memory_setting_has_two_names(version: str, variable: str) -> None:
    assert command("torchtitan", DENSE, version, BATCH_32).env == {variable: "expandable_segments:True"}


def test_torchtitan_on_one_node_accumulates_without_a_pipeline() -> None:
    config = {"tp": 2, "dp": 2, "dp_shard": 2, "micro_batch_size": 4, "activation_checkpointing": "selective"}
    made = command("torchtitan", config, "0.2.2", BATCH_32, tokenizer="/data/tok", dataset="c4", dataset_path="/d")

    rendezvous = ("torchrun", "--nnodes=1", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    assert made.argv[:5] == rendezvous
    told = flags(made.argv, "torchtitan.train")
    assert told["--training.local_batch_size"] == ["4"] and told["--training.global_batch_size"] == ["32"]
    assert "--parallelism.pipeline_parallel_microbatch_size" not in told and "--compile.enable" not in told
    assert told["--activation_checkpoint.mode"] == ["selective"]
    assert told["--parallelism.fsdp_reshard_after_forward"] == ["always"]
    assert (told["--model.hf_assets_path"], told["--training.dataset"]) == (["/data/tok"], ["c4"])
    assert told["--training.dataset_path"] == ["/d"]


def test_torchtitans_experts_replicas_and_offload() -> None:
    config = {"dp": 8, "dp_shard": 4, "ep": 4, "micro_batch_size": 1, "all2all_backend": "deepep", "offload": True}
    told = flags(command("torchtitan", config, "0.2.1", "wl5").argv, "torchtitan.train")

    assert told["--parallelism.data_parallel_replicate_degree"] == ["2"]
    assert told["--parallelism.data_parallel_shard_degree"] == ["4"]
    assert told["--parallelism.expert_parallel_degree"] == ["4"]
    assert told["--parallelism.expert_parallel_comm_backend"] == ["deepep"]
    assert told["--training.enable_cpu_offload"] == []
    assert (told["--model.name"], told["--model.flavor"]) == (["deepseek_v3"], ["16B"])


def test_torchtitan_interleaves_without_reshard_words_where_nothing_is_sharded() -> None:
    config = {"pp": 4, "dp": 1, "micro_batch_size": 1, "pipeline_schedule": "interleaved"}
    told = flags(command("torchtitan", config, "0.2.2", training(batch_size=8)).argv, "torchtitan.train")

    assert told["--parallelism.pipeline_parallel_schedule"] == ["Interleaved1F1B"]
    assert told["--training.local_batch_size"] == ["8"]
    assert "--parallelism.fsdp_reshard_after_forward" not in told


MEGATRON = {
    "--num-layers": ["32"], "--hidden-size": ["4096"], "--ffn-hidden-size": ["14336"], "--num-attention-heads": ["32"],
    "--kv-channels": ["128"], "--group-query-attention": [], "--num-query-groups": ["8"], "--mock-data": [],
    "--tokenizer-type": ["NullTokenizer"], "--vocab-size": ["128255"],
    "--untie-embeddings-and-output-weights": [], "--seq-length": ["1024"], "--max-position-embeddings": ["1024"],
    "--micro-batch-size": ["2"], "--global-batch-size": ["32"], "--bf16": [], "--train-iters": ["12"],
    "--tensor-model-parallel-size": ["2"], "--pipeline-model-parallel-size": ["2"], "--context-parallel-size": ["1"],
    "--num-layers-per-virtual-pipeline-stage": ["8"], "--sequence-parallel": [], "--use-distributed-optimizer": [],
    "--overlap-grad-reduce": [], "--overlap-param-gather": [], "--recompute-granularity": ["full"],
    "--recompute-method": ["uniform"], "--recompute-num-layers": ["1"], "--profile": [], "--use-pytorch-profiler": [],
    "--profile-step-start": ["5"], "--profile-step-end": ["10"], "--profile-ranks": [str(rank) for rank in range(16)],
    "--tensorboard-dir": ["@CCL_TRACE_DIR@/tensorboard"], "--use-mcore-models": [],
    "--position-embedding-type": ["rope"], "--normalization": ["RMSNorm"], "--swiglu": [], "--disable-bias-linear": [],
    "--attention-dropout": ["0.0"], "--hidden-dropout": ["0.0"], "--lr": ["1e-4"], "--min-lr": ["1e-5"],
    "--lr-decay-style": ["cosine"], "--split": ["99,1,0"], "--eval-iters": ["0"], "--eval-interval": ["1000"],
    "--log-interval": ["1"], "--no-load-optim": [], "--no-load-rng": [], "--no-gradient-accumulation-fusion": [],
    "--distributed-timeout-minutes": ["10"], "": [],
}  # fmt: skip
MEGATRON_CONFIG = {
    "tp": 2, "pp": 2, "cp": 1, "dp": 4, "zero_stage": 1, "sequence_parallel": True, "micro_batch_size": 2,
    "pipeline_schedule": "interleaved", "activation_checkpointing": "full", "collective_algorithm": "tree",
}  # fmt: skip


@pytest.mark.parametrize("version", ["core_r0.12.0", "0.16.1", "0.20.0"])
def test_megatron(version: str) -> None:
    made = command("megatron-lm", MEGATRON_CONFIG, version, BATCH_32)

    assert made.argv[:7] == (*ON_FOUR_NODES, "pretrain_gpt.py")
    assert flags(made.argv, "pretrain_gpt.py") == MEGATRON
    assert made.env == {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_ALGO": "Tree"}
    assert made.trace_globs == ("**/*.pt.trace.json*", "torch_profile/rank-*.json*") and made.trace_count == 16


def test_megatrons_latent_attention_and_experts() -> None:
    config = {"tp": 2, "pp": 3, "dp": 2, "ep": 2, "sequence_parallel": True, "micro_batch_size": 4}
    told = flags(command("megatron-lm", config, "0.12.0", "wl5").argv, "pretrain_gpt.py")

    expected = {
        "--multi-latent-attention": [], "--kv-lora-rank": ["512"], "--qk-head-dim": ["128"],
        "--qk-pos-emb-head-dim": ["64"], "--v-head-dim": ["128"], "--num-experts": ["64"], "--moe-router-topk": ["6"],
        "--moe-ffn-hidden-size": ["1408"], "--moe-shared-expert-intermediate-size": ["2816"],
        "--moe-layer-freq": ["([0]*1+[1]*26)"], "--moe-grouped-gemm": [], "--moe-token-dispatcher-type": ["alltoall"],
        "--expert-model-parallel-size": ["2"], "--global-batch-size": ["8"], "--overlap-grad-reduce": [],
    }  # fmt: skip
    assert {name: told.get(name) for name in expected} == expected
    absent = ("--q-lora-rank", "--kv-channels", "--group-query-attention", "--recompute-activations",
              "--use-distributed-optimizer", "--overlap-param-gather", "--num-layers-per-virtual-pipeline-stage",
              "--decoder-first-pipeline-num-layers")  # fmt: skip
    assert not [name for name in absent if name in told]


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.12.0", {"--enable-cuda-graph": []}), ("0.15.0", {"--cuda-graph-impl": ["local"]})],
)
def test_megatrons_knobs_outside_its_own_space(version: str, words: dict[str, list[str]]) -> None:
    config = {
        "dp": 4, "micro_batch_size": 1, "cuda_graph": True, "offload": True, "all2all_backend": "flex", "zero_stage": 1,
    }  # fmt: skip
    told = flags(command("megatron-lm", config, version, "wl5").argv, "pretrain_gpt.py")

    expected = {
        **words,
        "--optimizer-cpu-offload": [],
        "--optimizer-offload-fraction": ["1.0"],
        "--use-precision-aware-optimizer": [],
        "--moe-token-dispatcher-type": ["flex"],
    }
    assert {name: told.get(name) for name in expected} == expected
    with pytest.raises(BadInputError, match="zero_stage 0"):
        command("megatron-lm", {**config, "zero_stage": 0}, version, "wl5")


def test_megatron_with_data_and_tokenizer_of_the_target() -> None:
    config = {"dp": 4, "micro_batch_size": 1, "activation_checkpointing": "selective"}
    made = command("megatron-lm", config, "0.12.0", tokenizer="/tok", dataset_path="/data/c4_text")
    told = flags(made.argv, "pretrain_gpt.py")

    assert (told["--data-path"], told["--tokenizer-model"]) == (["/data/c4_text"], ["/tok"])
    assert told["--tokenizer-type"] == ["HuggingFaceTokenizer"] and told["--recompute-activations"] == []
    assert not {"--mock-data", "--vocab-size", "--recompute-granularity"} & set(told)


MAXTEXT_CONFIG = {
    "tp": 2, "cp": 1, "pp": 1, "dp": 4, "dp_shard": 2, "sequence_parallel": False, "micro_batch_size": 2,
    "pipeline_schedule": "gpipe", "activation_checkpointing": "selective",
}  # fmt: skip
MAXTEXT = {
    "base_output_directory=@CCL_TRACE_DIR@", "run_name=ccl", "model_name=llama3.1-8b", "hardware=tpu", "dtype=bfloat16",
    "per_device_batch_size=1.0",  # 4 ranks * 2 sequences on 8 chips
    "gradient_accumulation_steps=4", "max_target_length=1024", "steps=11", "dataset_type=synthetic",
    "enable_checkpointing=false", "reuse_example_batch=1", "profiler=xplane", "upload_all_profiler_results=true",
    "skip_first_n_steps_for_profiler=5", "profiler_steps=5", "log_period=100", "remat_policy=save_qkv_proj",
    "ici_data_parallelism=2", "ici_fsdp_parallelism=2", "ici_tensor_parallelism=2", "ici_tensor_sequence_parallelism=1",
    "ici_context_parallelism=1", "ici_expert_parallelism=1", "ici_pipeline_parallelism=1", "dcn_data_parallelism=1",
}  # fmt: skip


XLA_EVENTS = {"TF_PROFILER_TRACE_VIEWER_MAX_EVENTS": "4000000"}


@pytest.mark.parametrize(
    ("version", "start"),
    [
        ("2025-06-01", ("python3", "-m", "MaxText.train", "MaxText/configs/base.yml")),
        ("2026-01-15", ("python3", "-m", "MaxText.train", "src/MaxText/configs/base.yml")),
        ("2026-02-10", ("python3", "-m", "MaxText.train", "src/maxtext/configs/base.yml")),
        ("2026-08-01", ("python3", "-m", "maxtext.trainers.pre_train.train")),
        ("0.2.5", ("python3", "-m", "maxtext.trainers.pre_train.train")),
    ],
)
def test_maxtext_on_a_tpu_host(version: str, start: tuple[str, ...]) -> None:
    made = command("maxtext", MAXTEXT_CONFIG, version, BATCH_32, "tpu-v6e-8")

    assert made.argv[: len(start)] == start
    assert set(made.argv[len(start) :]) == MAXTEXT and len(made.argv) == len(start) + len(MAXTEXT)
    assert (made.nodes, made.xpus_per_node, made.per_node, made.env) == (1, 8, True, XLA_EVENTS)
    assert (made.trace_globs, made.trace_count) == (("**/*.trace.json.gz",), 1)


def test_checkouts_that_are_needed_are_asked_for() -> None:
    config = {"dp": 4, "micro_batch_size": 1}

    assert "set `path`" in command("maxtext", config, "2026-01-15", path=None).notes[0]
    assert "set `path`" in command("megatron-lm", config, "0.12.0", path=None).notes[0]
    assert "set `path`" in command("torchtitan", config, "0.2.2", path=None).notes[0]
    assert command("maxtext", config, "2026-08-01", path=None).notes == ()
    assert command("torchtitan", config, "0.2.2", path=None, tokenizer="/tok").notes == ()
    own = command("maxtext", config, "2026-08-01", path=None, config_file="/my/base.yml")
    assert own.argv[:4] == ("python3", "-m", "maxtext.trainers.pre_train.train", "/my/base.yml")


def words_of(made: Any) -> dict[str, str]:
    return dict(word.split("=", 1) for word in made.argv if "=" in word)


def test_maxtext_spreads_its_mesh_over_nodes_of_gpus() -> None:
    config = {**MAXTEXT_CONFIG, "dp": 8, "dp_shard": 8}
    made = command("maxtext", config, "2026-08-01", BATCH_32, "h100-16")
    told = words_of(made)

    assert (told["ici_fsdp_parallelism"], told["dcn_fsdp_parallelism"], told["num_slices"]) == ("4", "2", "2")
    assert (told["ici_tensor_parallelism"], told["dcn_tensor_parallelism"]) == ("2", "1")
    assert (told["hardware"], made.nodes, made.trace_count) == ("gpu", 2, 2)
    assert made.env == XLA_EVENTS | {
        "JAX_COORDINATOR_IP": "@CCL_MASTER_ADDR@",
        "JAX_COORDINATOR_PORT": "@CCL_MASTER_PORT@",
        "NNODES": "2",
        "NODE_RANK": "@CCL_NODE_RANK@",
    }


def test_maxtexts_circular_pipeline_takes_the_whole_step_at_once() -> None:
    config = {**MAXTEXT_CONFIG, "tp": 1, "pp": 4, "dp": 2, "dp_shard": 2, "pipeline_schedule": "interleaved"}
    told = words_of(command("maxtext", config, "2026-08-01", BATCH_32, "tpu-v6e-8"))

    assert (told["ici_pipeline_parallelism"], told["num_pipeline_microbatches"]) == ("4", "8")
    assert (told["per_device_batch_size"], told["gradient_accumulation_steps"]) == ("4.0", "1")
    assert (told["num_pipeline_repeats"], told["num_layers_per_pipeline_stage"]) == ("2", "4")


def test_maxtexts_pipeline_has_the_layers_behind_the_dense_ones() -> None:
    config = {"tp": 1, "pp": 2, "dp": 4, "dp_shard": 4, "ep": 1, "micro_batch_size": 1}
    told = words_of(command("maxtext", config, "2026-08-01", catalogue.workload("wl6"), "tpu-v6e-8"))

    assert (told["num_pipeline_repeats"], told["num_layers_per_pipeline_stage"]) == ("1", "13")


def test_maxtext_on_a_part_of_a_host() -> None:
    four = command("maxtext", {**MAXTEXT_CONFIG, "dp": 2}, "2026-08-01", BATCH_32, "tpu-v6e-8")
    gpus = command("maxtext", {**MAXTEXT_CONFIG, "dp": 2}, "2026-08-01", BATCH_32, "h100-8")

    assert four.env["TPU_VISIBLE_CHIPS"] == "0,1,2,3" and four.env["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "2,2,1"
    assert gpus.env == XLA_EVENTS | {"JAX_CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    with pytest.raises(BadInputError, match="8 chips of a slice of 16"):
        command("maxtext", MAXTEXT_CONFIG, "2026-08-01", BATCH_32, "tpu-v6e-16")
