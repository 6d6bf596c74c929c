"""Megatron-LM: arguments of `pretrain_gpt.py` under torchrun, with mock data and the workload's own model shape."""

from __future__ import annotations

from typing import Any

from launchers.frameworks.commands.request import PROFILED_STEPS, WARMUP_STEPS, Request, finish, torchrun
from launchers.frameworks.commands.sampling import sampled_ranks
from launchers.frameworks.commands.words import fact_words, knob_words
from launchers.shell.command import Command, Slot
from runs.errors import BadInputError
from runs.workload import ModelArchitecture

_CLOSING_STEPS = 2
_DEFAULTS = {"zero_stage": 0, "activation_checkpointing": "none"}


def build(made: Request) -> Command:
    """The command of a Megatron-LM config.

    Raises:
        BadInputError: the era cannot be told a knob, or Megatron-LM cannot build the model or split its layers.
    """
    if made.settings.path is None:
        made.notes.append("pretrain_gpt.py is looked for in the trial's folder: set `path` to the checkout")
    world = made.plan.world_size
    words = [*fact_words(made.era, _facts(made)), *knob_words(made.era, _told(made)), *made.era.constant]
    ranks = sampled_ranks(range(world), made.settings.trace_ranks or world)
    words += ["--profile-ranks", *map(str, ranks)]
    return finish(made, torchrun(made, *made.era.start, *words), {}, len(ranks) * made.era.traces_per_rank)


def _told(made: Request) -> dict[str, Any]:
    told = {**_DEFAULTS, **made.knobs}
    told.setdefault("micro_batch_size", made.plan.micro_batch_size)
    if made.workload.model.moe and told.get("all2all_backend", "auto") == "auto":
        told["all2all_backend"] = "alltoall"
    if told.get("offload") and not made.plan.zero_stage:
        raise BadInputError(
            "megatron-lm offloads only a distributed optimizer: offload with zero_stage 0", "set zero_stage to 1"
        )
    return told


def _facts(made: Request) -> dict[str, Any]:
    plan, workload = made.plan, made.workload
    return {
        **_model(workload.model),
        **_data(made),
        "seq_len": workload.seq_len,
        "max_positions": workload.seq_len,
        "global_batch": workload.batch_size,
        "precision": workload.precision,
        "steps": WARMUP_STEPS + PROFILED_STEPS + _CLOSING_STEPS,
        "overlap_gradients": plan.dp > 1 and plan.overlap_communication,
        "overlap_parameters": plan.zero_stage == 1 and plan.dp > 1 and plan.overlap_communication,
        "profile_start": WARMUP_STEPS,
        "profile_end": WARMUP_STEPS + PROFILED_STEPS,
        "tensorboard": f"{Slot.TRACE_DIR}/tensorboard",
        **_stages(workload.model.num_layers, plan.pp, plan.virtual_stages),
    }


def _data(made: Request) -> dict[str, Any]:
    """Data and tokenizer: the target's, else mock data of the model's vocabulary."""
    tokenizer, data = made.settings.tokenizer, made.settings.dataset_path
    return {
        "mock_data": data is None,
        "dataset_path": data,
        "tokenizer_type": "HuggingFaceTokenizer" if tokenizer else "NullTokenizer",
        "tokenizer": tokenizer,
        "vocab_size": None if tokenizer else made.workload.model.vocab_size - 1,
    }


def _model(model: ModelArchitecture) -> dict[str, Any]:
    """The model's shape as facts; what a model does not have is None."""
    latent = model.attention == "mla"
    shared = model.num_shared_experts * (model.moe_intermediate_size or 0)
    sparse = model.num_layers - model.first_dense_layers
    return {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size or model.moe_intermediate_size,
        "num_attention_heads": model.num_heads,
        "kv_channels": None if latent else model.head_dim,
        "grouped_queries": not latent and model.num_kv_heads < model.num_heads,
        "num_query_groups": model.num_kv_heads if not latent and model.num_kv_heads < model.num_heads else None,
        "latent_attention": latent,
        "q_lora_rank": model.q_lora_rank if latent else None,
        "kv_lora_rank": model.kv_lora_rank if latent else None,
        "qk_head_dim": model.qk_nope_head_dim if latent else None,
        "qk_pos_emb_head_dim": model.qk_rope_head_dim if latent else None,
        "v_head_dim": model.v_head_dim if latent else None,
        "untied": not model.tied_embeddings,
        "num_experts": model.num_experts or None,
        "experts_per_token": model.num_experts_per_tok or None,
        "expert_width": model.moe_intermediate_size if model.moe else None,
        "shared_experts_width": shared or None,
        "expert_layers": f"([0]*{model.first_dense_layers}+[1]*{sparse})" if model.moe else None,
        "grouped_gemm": model.moe,
    }


def _stages(layers: int, pp: int, virtual: int) -> dict[str, Any]:
    """How the layers are split where more than one pipeline stage has them."""
    if virtual > 1:
        return {"layers_per_virtual_stage": layers // (pp * virtual)}
    if pp == 1 or layers % pp == 0:
        return {}
    first, last = uneven_stages(layers, pp)
    return {"first_stage_layers": first, "last_stage_layers": last}


def uneven_stages(layers: int, pp: int) -> tuple[int, int]:
    """Layers of the first and of the last stage where `pp` does not divide the layers.

    All stages between must be equal, none is empty, and the longest stage is as short as that allows; the last stage
    (which has the loss) takes no more layers than the first, if one of the two has to take more.

    Raises:
        BadInputError: there are fewer layers than stages.
    """
    if layers < pp:
        raise BadInputError(f"{layers} layers cannot fill pp={pp} stages", "lower pp")
    middle = pp - 2
    splits = [
        (max(first, last, each if middle else 0), -min(first, last), last > first, first, last)
        for each in range(1, layers // max(middle, 1) + 1)
        for first in range(1, layers - middle * each)
        if (last := layers - middle * each - first) >= 1
    ]
    return min(splits)[3:]
