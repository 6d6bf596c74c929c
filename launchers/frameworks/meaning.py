"""What knobs mean, whatever the framework: from a config to the fields of a `ParallelPlan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from runs.errors import BadInputError
from runs.plan import ExpertPlacement, ParallelPlan, PipelineSchedule, Recompute
from runs.workload import Workload

_DEGREES = ("tp", "pp", "cp", "ep")
_COPIED = (
    "collective_algorithm", "collective_protocol", "communication_library", "all2all_backend", "tp_algorithm",
    "ep_algorithm", "topology", "network_mode", "rank_mapping",
)  # fmt: skip
_FLAGS = ("compile", "cuda_graph", "offload")
_FRAMEWORK_CHOOSES = "auto"


def degree(config: Mapping[str, Any], key: str, default: int = 1) -> int:
    """The parallel degree (or another positive count) called `key`.

    Raises:
        BadInputError: it is no positive integer.
    """
    value = config.get(key, default)
    if type(value) is not int or value < 1:
        raise BadInputError(f"{key}={value!r} is no positive whole number", f"give {key} as 1, 2, 4, ...")
    return value


def data_parallel(config: Mapping[str, Any]) -> int:
    """The whole data-parallel degree: `dp`, or `dp_replicate * dp_shard` where a config has no `dp`."""
    if "dp" in config:
        return degree(config, "dp")
    return degree(config, "dp_replicate") * degree(config, "dp_shard")


def shard_degree(config: Mapping[str, Any], default: int) -> int:
    """Ranks over which data-parallel state is sharded: `dp_shard`, which divides the data-parallel degree."""
    dp = data_parallel(config)
    shard = degree(config, "dp_shard", default)
    if dp % shard:
        raise BadInputError(f"dp_shard={shard} does not divide dp={dp}", "choose a dp_shard that divides dp")
    return shard


def micro_batches(workload: Workload, dp: int, micro_batch_size: int) -> int:
    """Micro-batches per step and data-parallel rank: global batch / (dp * micro-batch size).

    Raises:
        BadInputError: they do not multiply to the workload's global batch, which is never replaced by another.
    """
    count, rest = divmod(workload.batch_size, dp * micro_batch_size)
    if rest or not count:
        raise BadInputError(
            f"dp={dp} ranks with micro-batches of {micro_batch_size} cannot realise the global batch of "
            f"{workload.batch_size} sequences",
            f"dp * micro_batch_size must divide {workload.batch_size}",
        )
    return count


def recompute(config: Mapping[str, Any]) -> Recompute:
    """The recomputation policy (`activation_checkpointing`); none unless set."""
    value = config.get("activation_checkpointing", "none")
    if value not in get_args(Recompute):
        hint = "use none, selective or full; recorded booleans are translated at import"
        raise BadInputError(f"activation_checkpointing={value!r} has no meaning", hint)
    chosen: Recompute = value
    return chosen


def schedule(config: Mapping[str, Any]) -> PipelineSchedule:
    """The pipeline schedule; 1F1B unless set."""
    value = config.get("pipeline_schedule", "1f1b")
    if value not in get_args(PipelineSchedule):
        raise BadInputError(f"pipeline_schedule={value!r} has no meaning", "use 1f1b, interleaved or gpipe")
    chosen: PipelineSchedule = value
    return chosen


def borrowed_experts(config: Mapping[str, Any]) -> ExpertPlacement:
    """Where expert groups that borrow tensor-parallel ranks stand; without expert parallelism tp splits the experts."""
    return "inside_dp_tp" if degree(config, "ep") > 1 else "inside_dp"


def communication(config: Mapping[str, Any]) -> dict[str, Any]:
    """Plan fields that a config sets as they are; `auto` leaves the choice to the framework (None)."""
    copied = {key: config[key] for key in _COPIED if config.get(key, _FRAMEWORK_CHOOSES) != _FRAMEWORK_CHOOSES}
    return copied | {key: bool(config[key]) for key in _FLAGS if key in config}


def training_plan(framework: str, config: Mapping[str, Any], workload: Workload, **fields: Any) -> ParallelPlan:
    """The plan of a training config; `fields` are what the framework decides and override the generic meaning.

    Raises:
        BadInputError: as the functions above.
    """
    dp = data_parallel(config)
    size = degree(config, "micro_batch_size")
    generic: dict[str, Any] = {
        **{name: degree(config, name) for name in _DEGREES},
        "dp_replicate": dp,
        "dp_shard": 1,
        "micro_batch_size": size,
        "num_microbatches": micro_batches(workload, dp, size),
        "pipeline_schedule": schedule(config),
        "virtual_stages": 2 if schedule(config) == "interleaved" else 1,
        "recompute": recompute(config),
        **communication(config),
    }
    return ParallelPlan(framework=framework, **{**generic, **fields})


def serving_plan(framework: str, config: Mapping[str, Any], workload: Workload, **fields: Any) -> ParallelPlan:
    """The plan of an inference config: the batch is served in waves of `max_num_seqs` sequences a replica.

    Without `max_num_seqs` (or with a larger one than a replica has work for) one wave holds a replica's share.

    Raises:
        BadInputError: as `training_plan`.
    """
    dp = data_parallel(config)
    share = max(1, workload.batch_size // dp)
    wave = min(degree(config, "max_num_seqs", share), share)
    generic: dict[str, Any] = {
        **{name: degree(config, name) for name in _DEGREES},
        "dp_replicate": dp,
        "micro_batch_size": wave,
        "num_microbatches": micro_batches(workload, dp, wave),
        "max_num_seqs": config.get("max_num_seqs"),
        "max_num_batched_tokens": config.get("max_num_batched_tokens"),
        **communication(config),
    }
    return ParallelPlan(framework=framework, **{**generic, **fields})
