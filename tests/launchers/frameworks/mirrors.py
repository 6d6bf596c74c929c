"""What the programs themselves accept, written from their argument files: an unknown word ends a test like a job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

_SECTIONS_01 = {
    "job": "config_file dump_folder description",
    "profiling": "save_traces_folder profile_freq",
    "metrics": "log_freq save_tb_folder",
    "model": "name flavor tokenizer_path",
    "training": "dataset dataset_path local_batch_size global_batch_size seq_len steps mixed_precision_param",
    "parallelism": "data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward "
    "tensor_parallel_degree pipeline_parallel_degree pipeline_parallel_schedule pipeline_parallel_microbatch_size "
    "pipeline_parallel_layers_per_stage context_parallel_degree context_parallel_rotate_method",
    "activation_checkpoint": "mode selective_ac_option",
}
_SWITCHES_01 = "profiling.enable_profiling metrics.disable_color_printing training.compile training.enable_cpu_offload"
_SECTIONS_02 = {
    **_SECTIONS_01,
    "profiling": "save_traces_folder profile_freq profiler_active profiler_warmup",
    "model": "name flavor hf_assets_path",
    "parallelism": _SECTIONS_01["parallelism"] + " expert_parallel_degree expert_tensor_parallel_degree",
}
_SWITCHES_02 = "profiling.enable_profiling metrics.disable_color_printing compile.enable training.enable_cpu_offload"
_SECTIONS_NEW = {
    "": "module config dump_folder hf_assets_path",
    "dataloader": "dataset dataset_path",
    "metrics": "log_freq",
    "training": "local_batch_size global_batch_size seq_len steps mixed_precision_param",
    "parallelism": _SECTIONS_02["parallelism"],
    "activation_checkpoint": "mode",
}
_SWITCHES_NEW = "metrics.disable_color_printing compile.enable compile.no-enable training.enable_cpu_offload"
_PROFILER = "save_traces_folder profile_freq profiler_active profiler_warmup"
_CHOICES = {
    "--parallelism.fsdp_reshard_after_forward": ("default", "always", "never"),
    "--activation_checkpoint.mode": ("none", "selective", "full"),
    "--training.mixed_precision_param": ("bfloat16", "float32"),
    "--parallelism.pipeline_parallel_schedule": ("1F1B", "Interleaved1F1B", "GPipe"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AssertionError(message)


def torchtitan(version: str) -> argparse.ArgumentParser:
    """The arguments of `torchtitan.train` in a release or on a day."""
    if version == "0.1.0":
        return _titan(_SECTIONS_01, _SWITCHES_01)
    if version.startswith("0.2"):
        return _titan(_SECTIONS_02, _SWITCHES_02)
    section = "profiling" if version < "2026-04-17" else "profiler"
    return _titan({**_SECTIONS_NEW, section: _PROFILER}, f"{_SWITCHES_NEW} {section}.enable_profiling")


def megatron() -> argparse.ArgumentParser:
    """The arguments of `pretrain_gpt.py` (0.12) that a dense or MLA-MoE model may need."""
    parser = _Parser(allow_abbrev=False)
    for name in _MEGATRON_INTEGERS.split():
        parser.add_argument(f"--{name}", type=int)
    for name in _MEGATRON_TEXTS.split():
        parser.add_argument(f"--{name}")
    for name in _MEGATRON_SWITCHES.split():
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--recompute-granularity", choices=("full", "selective"))
    parser.add_argument("--recompute-method", choices=("uniform", "block"))
    parser.add_argument("--moe-token-dispatcher-type", choices=("allgather", "alltoall", "flex"))
    parser.add_argument("--profile-ranks", nargs="+", type=int)
    return parser


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The words as the program would take them."""
    return parser.parse_args(list(words))


def _titan(sections: dict[str, str], switches: str) -> argparse.ArgumentParser:
    parser = _Parser(allow_abbrev=False)
    for section, names in sections.items():
        for name in names.split():
            flag = f"--{section}.{name}" if section else f"--{name}"
            number = name.endswith(("degree", "size", "steps", "freq", "seq_len", "active", "warmup"))
            parser.add_argument(flag, type=int if number else str, choices=_CHOICES.get(flag))
    for switch in switches.split():
        parser.add_argument(f"--{switch}", action="store_true")
    return parser


_MEGATRON_INTEGERS = (
    "num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups q-lora-rank kv-lora-rank "
    "qk-head-dim qk-pos-emb-head-dim v-head-dim vocab-size num-experts moe-router-topk moe-ffn-hidden-size "
    "moe-shared-expert-intermediate-size seq-length max-position-embeddings micro-batch-size global-batch-size "
    "train-iters tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size "
    "expert-model-parallel-size num-layers-per-virtual-pipeline-stage decoder-first-pipeline-num-layers "
    "decoder-last-pipeline-num-layers recompute-num-layers profile-step-start profile-step-end eval-iters "
    "eval-interval log-interval distributed-timeout-minutes"
)
_MEGATRON_TEXTS = (
    "tokenizer-type moe-layer-freq position-embedding-type normalization attention-dropout hidden-dropout lr min-lr "
    "lr-decay-style split tensorboard-dir"
)
_MEGATRON_SWITCHES = (
    "group-query-attention multi-latent-attention untie-embeddings-and-output-weights moe-grouped-gemm mock-data bf16 "
    "sequence-parallel use-distributed-optimizer overlap-grad-reduce overlap-param-gather recompute-activations "
    "use-mcore-models swiglu disable-bias-linear no-load-optim no-load-rng no-gradient-accumulation-fusion profile "
    "use-pytorch-profiler"
)
