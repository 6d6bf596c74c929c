"""What both serving engines share: the model's name, the lengths of a request, and how replicas lie on nodes."""

from __future__ import annotations

from typing import Any

from launchers.frameworks.commands.request import DECODE_STEPS, Request
from launchers.frameworks.commands.settings import hub_name
from runs import catalogue
from runs.errors import BadInputError
from runs.workload import ModelArchitecture

WARMUP_BATCHES = 3
_RANDOM_WEIGHTS = "dummy"
_SHAPE = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "intermediate_size", "num_experts")


def model_facts(made: Request) -> dict[str, Any]:
    """Model, tokenizer, weights and precision.

    Raises:
        BadInputError: neither the target nor the bundled model says where the model's files are.
    """
    model = made.settings.model or known_model(made.workload.model)
    if model is None:
        raise BadInputError(
            f"{made.era.framework}: nothing says where {made.workload.model.model_family} is",
            "set `model` in the framework's section of the target file: a folder or a name on the Hugging Face hub",
        )
    return {
        "model": model,
        "tokenizer": made.settings.tokenizer,
        "weights": made.settings.weights or _RANDOM_WEIGHTS,
        "precision": made.workload.precision,
    }


def known_model(model: ModelArchitecture) -> str | None:
    """The hub's name of `model`: of its own page, else of the bundled model of its family if the shapes are equal."""
    own = hub_name(model.source)
    if own is not None or model.model_family not in catalogue.model_names():
        return own
    bundled = catalogue.model(model.model_family)
    same = all(getattr(model, name) == getattr(bundled, name) for name in _SHAPE)
    return hub_name(bundled.source) if same else None


def lengths(made: Request) -> tuple[int, int]:
    """(input, output) tokens of a request. A run that decodes does so for at least 128 steps, as the protocol asks.

    The first output token is the prefill's, so that 128 steps take 129 tokens.

    Raises:
        BadInputError: the workload has no input left.
    """
    workload = made.workload
    asked = workload.output_len or 1
    given = workload.input_len if workload.input_len is not None else workload.seq_len - asked
    if given < 1:
        raise BadInputError(f"{workload.name}: a request has no input", "give the workload input_len and output_len")
    output = max(asked, DECODE_STEPS + 1) if asked > 1 else 1
    if output != asked:
        made.notes.append(f"requests generate {output} tokens, so that {DECODE_STEPS} decode steps are recorded")
    return given, output


def steps(made: Request) -> dict[str, int]:
    """Batches that warm the engine up, and decode steps of the recorded one."""
    asked = made.workload.output_len or 1
    return {"warmup_steps": WARMUP_BATCHES, "decode_steps": max(asked - 1, DECODE_STEPS) if asked > 1 else 0}


def replica_share(made: Request, parts: int) -> int:
    """Sequences of each of `parts` equal groups of replicas."""
    return made.workload.batch_size // parts
