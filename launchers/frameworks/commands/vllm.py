"""vLLM: the offline latency benchmark with its profiler on, by itself on one node, else under torchrun."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launchers.frameworks.commands.request import Request, finish, torchrun
from launchers.frameworks.commands.serving import WARMUP_BATCHES, lengths, model_facts, replica_share, steps
from launchers.frameworks.commands.words import fact_words, knob_env, knob_words
from launchers.shell.command import Command
from runs.errors import BadInputError

_TPU_TRACES = ("**/*.trace.json.gz",)
_TPU_ENV = {"TF_PROFILER_TRACE_VIEWER_MAX_EVENTS": "4000000"}  # else XLA's profiler leaves out all after a million


def build(made: Request) -> Command:
    """The command of a vLLM config.

    One engine on one node starts its own workers. Several nodes or replicas run one engine a device under torchrun
    (`external_launcher`), each replica with its share of the batch. A TPU host is one process with all its replicas.

    Raises:
        BadInputError: the era cannot be told a knob, the model's files are unknown, or a TPU slice has several hosts.
    """
    nodes, _ = made.shape
    tpu = made.environment.device.xpu_type == "TPU"
    if tpu and nodes > 1:
        raise BadInputError("vllm on several TPU hosts needs a Ray cluster", "choose configs of one host's chips")
    spread = not tpu and (nodes > 1 or made.plan.dp > 1)
    words = [*fact_words(made.era, _facts(made, spread)), *knob_words(made.era, made.knobs), *made.era.constant]
    start = list(made.era.start)
    argv = torchrun(made, *start, *words) if spread else [made.settings.python, *start, *words]
    env = knob_env(made.era, made.knobs) | (_TPU_ENV if tpu else {})
    command = finish(made, argv, env, 1 if tpu else made.plan.world_size, steps=steps(made))
    return replace(command, trace_globs=_TPU_TRACES) if tpu else command


def _facts(made: Request, spread: bool) -> dict[str, Any]:
    given, output = lengths(made)
    return {
        **model_facts(made),
        "data_parallel": made.plan.dp if made.plan.dp > 1 else None,
        "expert_parallel": made.plan.ep > 1,
        "library_only": made.chooses_collectives,
        "executor": "external_launcher" if spread else None,
        "batch_size": replica_share(made, made.plan.dp if spread else 1),
        "input_len": given,
        "output_len": output,
        "max_model_len": given + output,
        "warmup": WARMUP_BATCHES,
    }
