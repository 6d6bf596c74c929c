"""MaxText: one JAX process a host, its mesh from the degrees, synthetic data, profiles of every host."""

from __future__ import annotations

import math
from typing import Any

from launchers.frameworks.commands.request import PROFILED_STEPS, WARMUP_STEPS, Request, finish
from launchers.frameworks.commands.words import fact_words, knob_words
from launchers.frameworks.maxtext import pipelined_layers
from launchers.shell.command import Command, Slot
from runs.errors import BadInputError

_SPREAD = ("pipeline", "data", "fsdp", "expert", "context", "tensor", "tensor_sequence")
_CHIP_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}


def build(made: Request) -> Command:
    """The command of a MaxText config.

    Raises:
        BadInputError: the era cannot be told a knob, MaxText has no such model or cannot split it, or a TPU slice
            cannot be used in that part.
    """
    nodes, _ = made.shape
    facts = {**_facts(made), **_batch(made), **_mesh(made), **_stages(made)}
    told = {"activation_checkpointing": "none", **made.knobs}
    words = [*fact_words(made.era, facts), *knob_words(made.era, told), *made.era.constant]
    start = list(made.era.start)
    if made.settings.config_file:
        start = [*start[:2], made.settings.config_file]
    elif made.settings.path is None and len(start) > 2:
        made.notes.append(f"{start[2]} is looked for in the trial's folder: set `path` to the checkout")
    return finish(made, [made.settings.python, *start, *words], _env(made), nodes * made.era.traces_per_rank)


def _facts(made: Request) -> dict[str, Any]:
    nodes, _ = made.shape
    several = made.environment.device.xpu_type == "GPU" and nodes > 1
    return {
        "output": str(Slot.TRACE_DIR),
        "model": _model(made),
        "hardware": made.environment.device.xpu_type.lower(),
        "tokenizer": made.settings.tokenizer,
        "precision": made.workload.precision,
        "seq_len": made.workload.seq_len,
        "steps": WARMUP_STEPS + PROFILED_STEPS + 1,
        "skipped": WARMUP_STEPS,
        "profiled": PROFILED_STEPS,
        "num_slices": nodes if several else None,
    }


def _model(made: Request) -> str:
    if made.settings.model:
        return made.settings.model
    architecture = made.workload.model
    entry = made.era.models.get(architecture.model_family)
    if entry is None or entry["layers"] != architecture.num_layers:
        raise BadInputError(
            f"maxtext has no model {architecture.model_family} of {architecture.num_layers} layers",
            f"known: {', '.join(made.era.models)}; or set `model` in the target file",
        )
    return str(entry["model"])


def _batch(made: Request) -> dict[str, Any]:
    """How the global batch is put: devices times per-device batch times accumulation steps.

    A pipeline takes a whole step at once and splits it itself; otherwise micro-batches are accumulated.
    """
    plan, world = made.plan, made.plan.world_size
    at_once = plan.dp * plan.micro_batch_size * (plan.num_microbatches if plan.pp > 1 else 1)
    return {
        "per_device_batch": per_device(at_once, world),
        "accumulation": 1 if plan.pp > 1 else plan.num_microbatches,
        "pipeline_micro_batches": plan.num_microbatches if plan.pp > 1 else None,
    }


def per_device(sequences: int, devices: int) -> float:
    """`sequences` / `devices` as a float whose product with the devices, cut to a whole number, is `sequences`."""
    share = sequences / devices
    return share if int(devices * share) == sequences else math.nextafter(share, math.inf)


def _mesh(made: Request) -> dict[str, Any]:
    """The axes of the mesh: all within a slice on TPUs, spread over the nodes, outermost first, on GPUs."""
    plan, (nodes, _) = made.plan, made.shape
    if plan.dp_shard % plan.ep:
        raise BadInputError(f"ep={plan.ep} does not divide dp_shard={plan.dp_shard}", "choose an ep that does")
    inside = {
        "pipeline": plan.pp,
        "data": plan.dp_replicate,
        "fsdp": plan.dp_shard // plan.ep,
        "expert": plan.ep,
        "context": plan.cp,
        "tensor": 1 if plan.sequence_parallel else plan.tp,
        "tensor_sequence": plan.tp if plan.sequence_parallel else 1,
    }
    if made.environment.device.xpu_type == "TPU" or nodes == 1:
        return {**inside, "dcn_data": 1}
    left, between = nodes, {}
    for axis in _SPREAD:
        between[axis] = math.gcd(inside[axis], left)
        left //= between[axis]
    if left > 1:
        raise BadInputError(f"maxtext: the degrees cannot be spread over {nodes} nodes", "choose degrees that divide")
    axes = {axis: inside[axis] // between[axis] for axis in _SPREAD}
    return axes | {f"dcn_{axis}": between[axis] for axis in _SPREAD}


def _stages(made: Request) -> dict[str, Any]:
    plan = made.plan
    if plan.pp == 1:
        return {}
    layers = pipelined_layers(made.workload.model)
    per_turn, rest = divmod(layers, plan.pp * plan.virtual_stages)
    if rest:
        raise BadInputError(
            f"maxtext's pipeline cannot split {layers} layers into {plan.pp} stages of {plan.virtual_stages} turns",
            "dense layers before the experts stay outside the pipeline: choose a pp that divides the others",
        )
    return {"layers_per_stage": per_turn, "pipeline_repeats": plan.virtual_stages}


def _env(made: Request) -> dict[str, str]:
    nodes, used = made.shape
    if made.environment.device.xpu_type == "TPU":
        return _part_of_slice(made, used)
    found: dict[str, str] = {}
    if used < made.environment.xpus_per_node:
        found["JAX_CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in range(used))
    if nodes > 1:
        found |= {"JAX_COORDINATOR_IP": str(Slot.MASTER_ADDR), "JAX_COORDINATOR_PORT": str(Slot.MASTER_PORT)}
        found |= {"NNODES": str(nodes), "NODE_RANK": str(Slot.NODE_RANK)}
    return found


def _part_of_slice(made: Request, used: int) -> dict[str, str]:
    """Variables that give a process some chips of one host; a slice of several hosts is used whole.

    Raises:
        BadInputError: that part of a slice cannot be used.
    """
    world, total = made.plan.world_size, made.environment.total_xpus
    if world == total:
        return {}
    if world > made.environment.xpus_per_node or used not in _CHIP_BOUNDS or total > made.environment.xpus_per_node:
        raise BadInputError(
            f"{world} chips of a slice of {total} cannot be used", "use the whole slice, or 1, 2 or 4 chips of one host"
        )
    return {
        "TPU_VISIBLE_CHIPS": ",".join(str(index) for index in range(used)),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _CHIP_BOUNDS[used],
        "TPU_PROCESS_BOUNDS": "1,1,1",
    }
