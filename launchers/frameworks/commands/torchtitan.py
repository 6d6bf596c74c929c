"""TorchTitan: arguments of `torchtitan.train` under torchrun, or, in later eras, a generated config function."""

from __future__ import annotations

import keyword
from typing import Any

from launchers.frameworks.commands.request import Request, finish, torchrun
from launchers.frameworks.commands.words import fact_words, knob_words
from launchers.shell.command import Command, Slot
from runs.errors import BadInputError

MODULE, FUNCTION = "ccl_torchtitan", "ccl_search"
_DATASET = "c4_test"
_DEFAULTS = {"zero_stage": 3, "activation_checkpointing": "none", "compile": False, "pipeline_schedule": "1f1b"}


def build(made: Request) -> Command:
    """The command of a TorchTitan config.

    Raises:
        BadInputError: the era cannot be told a knob, or the model is not one of its own.
    """
    traces = made.plan.world_size * made.era.traces_per_rank
    config = _told(made)
    if made.settings.path is None and made.settings.tokenizer is None:
        made.notes.append("tokenizer and data set are those of a checkout: set `path`, or `tokenizer` and a data set")
    if made.era.form == "python":
        source = _module(made, config)
        argv = torchrun(made, f"{Slot.JOB_DIR}/{MODULE}.py", "--module", MODULE, "--config", FUNCTION)
        return finish(made, argv, {}, traces, {f"{MODULE}.py": source})
    facts = {**_facts(made), "dump_folder": str(Slot.TRACE_DIR)}
    words = [*fact_words(made.era, facts), *knob_words(made.era, config), *made.era.constant]
    return finish(made, torchrun(made, *made.era.start, *words), {}, traces)


def _told(made: Request) -> dict[str, Any]:
    """The knobs to tell: with the defaults of the plan, so that no default of the framework's own slips in."""
    plan = made.plan
    degrees = {"tp": plan.tp, "cp": plan.cp, "pp": plan.pp, "ep": plan.ep}
    told = {**degrees, **_DEFAULTS, **made.knobs}
    if plan.dp_shard * plan.cp == 1:
        told.pop("zero_stage", None)
    if plan.pp == 1:
        told.pop("pipeline_schedule", None)
    if "cuda_graph" in made.era.knobs:
        told.setdefault("cuda_graph", False)
    return told


def _facts(made: Request) -> dict[str, Any]:
    plan, workload, settings = made.plan, made.workload, made.settings
    profile = made.era.more["profile"]
    pipelined = plan.pp > 1
    model, flavor = _model(made)
    return {
        "config_file": settings.config_file,
        "model": model,
        "flavor": flavor,
        "tokenizer": settings.tokenizer,
        "dataset": settings.dataset or _DATASET,
        "dataset_path": settings.dataset_path,
        "local_batch": plan.micro_batch_size * (plan.num_microbatches if pipelined else 1),
        "global_batch": workload.batch_size,
        "seq_len": workload.seq_len,
        "steps": profile["freq"] * profile["cycles"],
        "precision": workload.precision,
        "dp_replicate": plan.dp_replicate,
        "dp_shard": plan.dp_shard,
        "pipeline_micro_batch": plan.micro_batch_size if pipelined else None,
        "profile_freq": profile["freq"],
        "profiler_warmup": profile.get("warmup"),
        "profiler_active": profile.get("active"),
    }


def _token_facts(made: Request) -> dict[str, Any]:
    """The batch in tokens; the same facts are left out where an era counts sequences."""
    plan, workload = made.plan, made.workload
    counted = {
        "micro_batch_tokens": plan.micro_batch_size * workload.seq_len,
        "step_tokens": workload.batch_size * workload.seq_len,
        "context_length": workload.seq_len,
        "pipeline_micro_batches": plan.num_microbatches if plan.pp > 1 else None,
    }
    return counted if "step_tokens" in made.era.facts else {}


def _model(made: Request) -> tuple[str, str]:
    """Name and size of the model, of the target or of the table.

    Raises:
        BadInputError: neither knows the model, or the table's model has another number of layers.
    """
    settings, architecture = made.settings, made.workload.model
    if settings.model and settings.flavor:
        return settings.model, settings.flavor
    entry = made.era.models.get(architecture.model_family)
    if entry is None:
        raise BadInputError(
            f"torchtitan ({made.era.name}) has no model {architecture.model_family}",
            f"known: {', '.join(made.era.models)}; or set `model` and `flavor` in the target file",
        )
    if entry["layers"] != architecture.num_layers:
        raise BadInputError(
            f"torchtitan's {entry['flavor']} has {entry['layers']} layers, the workload {architecture.num_layers}",
            "set `model` and `flavor` in the target file to a model of that shape",
        )
    return settings.model or entry["model"], settings.flavor or entry["flavor"]


def _module(made: Request, config: dict[str, Any]) -> str:
    """The Python file of the trial: its config function, and how it is started where it lies."""
    facts = {**_facts(made), **_token_facts(made)}
    model, flavor = facts.pop("model"), facts.pop("flavor")
    if "step_tokens" in facts:
        facts = {key: value for key, value in facts.items() if key not in _COUNTED_IN_SEQUENCES}
    literals = {key: _literal(key, value) for key, value in facts.items() if value is not None}
    lines = [*made.era.more.get("before", ()), *fact_words(made.era, literals)]
    lines.append('config.dump_folder = os.environ["CCL_TRACE_DIR"]')
    lines += [*knob_words(made.era, config), *made.era.constant]
    body = "\n".join(f"    {line}" for line in lines)
    text = _FILE.replace("BASE_MODULE", _python_name(model, dots=True))
    text = text.replace("BASE_FUNCTION", _python_name(flavor)).replace("FUNCTION", FUNCTION)
    return text.replace("    BODY", body)


_COUNTED_IN_SEQUENCES = ("local_batch", "global_batch", "seq_len", "pipeline_micro_batch")


def _literal(key: str, value: Any) -> Any:
    """Texts as Python literals, apart from those that the table of the era spells itself."""
    return repr(value) if isinstance(value, str) and key != "precision" else value


def _python_name(name: str, dots: bool = False) -> str:
    """`name`, which must be a Python name as it goes into a program.

    Raises:
        BadInputError: it is none.
    """
    parts = name.split(".") if dots else [name]
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        hint = "set `model` to a module and `flavor` to a function in it"
        raise BadInputError(f"torchtitan: {name!r} is no Python name", hint)
    return name


_FILE = '''"""The config of one trial, written by ccl-search."""

import os
import sys


def FUNCTION():
    """The trainer's config."""
    from BASE_MODULE import BASE_FUNCTION
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: F401

    config = BASE_FUNCTION()
    BODY
    return config


if __name__ == "__main__":
    import runpy

    sys.path.append(os.getcwd())
    runpy.run_module("torchtitan.train", run_name="__main__", alter_sys=True)
'''
