"""The recorded Perlmutter trials as plans: what each run really executed, by the *effective* columns."""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace

from runs import catalogue
from runs.environment import Environment
from runs.plan import ParallelPlan, StateBytes
from runs.workload import Workload
from tests.reference import shared_path


@dataclass(frozen=True)
class RecordedTrial:
    """One distinct plan of one software stack with its measured step times in seconds."""

    stack: str
    workload: Workload
    environment: Environment
    plan: ParallelPlan
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The measured step time, over replicates."""
        return statistics.median(self.seconds)


def recorded_environment(devices: int) -> Environment:
    """The slice as recorded launches used it: `NCCL_SOCKET_IFNAME=hsn0`, one network card for a node's four GPUs."""
    return replace(catalogue.environment(f"perlmutter-a100-{devices}"), nics_per_node=1)


def _plan(row: dict[str, str]) -> ParallelPlan:
    degrees = {name: int(row[name]) for name in ("tp", "pp")}
    dp, ep, size = int(row["dp"]), int(row["ep"] or 1), int(row["micro_batch_size_effective"])
    local = int(row["global_batch_size_effective"]) // dp
    if row["framework"] == "torchtitan" and degrees["pp"] == 1:
        size = local  # the scripts set no global batch, without which the whole local batch is one pass
    rest = local // size
    if row["framework"] == "torchtitan":
        return ParallelPlan(
            "torchtitan", **degrees, dp_shard=dp, micro_batch_size=size, num_microbatches=rest, zero_stage=3,
            sequence_parallel=degrees["tp"] > 1, recompute="selective", compile=row["compile_mode"] == "inductor",
            state_bytes=StateBytes(4, 4, 8, 2),
        )  # fmt: skip
    selective = "recompute" in row["activation_checkpointing_effective"]
    return ParallelPlan(
        "megatron-lm", **degrees, dp_replicate=dp, ep=ep, micro_batch_size=size, num_microbatches=rest,
        recompute="selective" if selective else "none", overlap_communication=False,
        sequence_parallel="deepseek" in row["model"] and degrees["tp"] > 1,
    )  # fmt: skip


def _workload(row: dict[str, str]) -> Workload:
    model = catalogue.model(row["model"])
    if row["framework"] == "megatron-lm":
        model = replace(model, tied_embeddings=model.tied_embeddings or "llama" in row["model"])
    # without FSDP there is no mixed precision in TorchTitan: one data-parallel rank computes in fp32
    precision = "fp32" if row["framework"] == "torchtitan" and row["dp"] == "1" else "bf16"
    return Workload(
        "recorded", model, "training", int(row["global_batch_size_effective"]), int(row["seq_len"]), precision
    )


def recorded_trials() -> list[RecordedTrial]:
    """Distinct plans that succeeded; skips the calling test where the data is absent."""
    rows = list(csv.DictReader(shared_path("data/recorded_trials.csv").open(encoding="utf-8")))
    found: dict[tuple[str, ParallelPlan], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok" and not row["repeat_of"]:
            stack = f"{row['framework']} {row['model']} ({row['framework_variant'][:16]})"
            found[stack, _plan(row)].append(row)
    return [
        RecordedTrial(
            stack, _workload(same[0]), recorded_environment(max(16, int(same[0]["num_gpus"]))), plan,
            tuple(float(row["step_time_s"]) for row in same),
        )
        for (stack, plan), same in found.items()
    ]  # fmt: skip


def stacks_to_rank(trials: list[RecordedTrial], least: int = 12) -> dict[str, list[RecordedTrial]]:
    """Trials by software stack, where a stack has at least `least` distinct plans."""
    by_stack: dict[str, list[RecordedTrial]] = defaultdict(list)
    for trial in trials:
        by_stack[trial.stack].append(trial)
    return {stack: found for stack, found in by_stack.items() if len(found) >= least}


def spearman(a: list[float], b: list[float]) -> float:
    """Rank correlation (Spearman 1904), ties by mean rank."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    mean = (len(a) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(ranks_a, ranks_b, strict=True))
    bottom = math.sqrt(sum((x - mean) ** 2 for x in ranks_a) * sum((y - mean) ** 2 for y in ranks_b))
    return top / bottom


def _ranks(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]
