"""Which layers stand on which pipeline stage, and in which order a stage runs its micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from runs.errors import BadInputError
from runs.plan import ParallelPlan

Phase = Literal["forward", "backward"]


@cache
def split_layers(layers: int, stages: int) -> tuple[tuple[int, int], ...]:
    """First and last-plus-one layer of each of `stages` parts, as even as can be.

    The remainder goes to the parts from the second on, because the first also holds the embedding and the last the
    head (frameworks differ in the detail; the sum of layers is what counts).

    Raises:
        BadInputError: there are fewer layers than stages.
    """
    if stages > layers:
        raise BadInputError(f"{layers} layers cannot fill {stages} pipeline stages", "lower pp or the virtual stages")
    base, rest = divmod(layers, stages)
    first = 1 if stages - 1 > rest else 0
    sizes = [base + (first <= i < first + rest) for i in range(stages)]
    bounds = [sum(sizes[:i]) for i in range(stages + 1)]
    return tuple((bounds[i], bounds[i + 1]) for i in range(stages))


def virtual_stages(plan: ParallelPlan) -> int:
    """Model chunks on one device: above one only for the interleaved schedule (two where the plan leaves it at one)."""
    if plan.pipeline_schedule != "interleaved" or plan.pp == 1:
        return 1
    return max(plan.virtual_stages, 2)


@dataclass(frozen=True)
class Action:
    """One pass of one micro-batch through one model chunk of a stage."""

    phase: Phase
    microbatch: int
    chunk: int = 0


def _one_f_one_b(stage: int, stages: int, microbatches: int) -> list[Action]:
    warmup = min(stages - stage - 1, microbatches)
    order = [Action("forward", i) for i in range(warmup)]
    for i in range(microbatches - warmup):
        order += [Action("forward", warmup + i), Action("backward", i)]
    return order + [Action("backward", i) for i in range(microbatches - warmup, microbatches)]


def _gpipe(microbatches: int) -> list[Action]:
    forward = [Action("forward", i) for i in range(microbatches)]
    return forward + [Action("backward", i) for i in reversed(range(microbatches))]


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> list[Action]:
    """Narayanan et al. 2021, section 2.2: groups of `stages` micro-batches visit the chunks in turn."""
    if microbatches % stages:
        raise BadInputError(
            f"the interleaved schedule needs micro-batches ({microbatches}) in multiples of the stages ({stages})",
            "change micro_batch_size or pp, or use 1f1b",
        )
    total = microbatches * chunks

    def nth(i: int, phase: Phase) -> Action:
        group, inside = divmod(i, stages * chunks)
        chunk, position = divmod(inside, stages)
        return Action(phase, group * stages + position, chunk if phase == "forward" else chunks - 1 - chunk)

    warmup = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    order = [nth(i, "forward") for i in range(warmup)]
    for i in range(total - warmup):
        order += [nth(warmup + i, "forward"), nth(i, "backward")]
    return order + [nth(i, "backward") for i in range(total - warmup, total)]


@cache
def schedule(kind: str, stage: int, stages: int, microbatches: int, chunks: int = 1) -> tuple[Action, ...]:
    """The order in which `stage` runs its passes under `kind` (1f1b, gpipe, interleaved).

    One stage alone is no pipeline: it accumulates gradients, forward and backward in turn, under every name.

    Raises:
        BadInputError: the schedule is unknown or cannot run these micro-batches.
    """
    if kind == "gpipe" and stages > 1:
        return tuple(_gpipe(microbatches))
    if kind == "interleaved" and chunks > 1:
        return tuple(_interleaved(stage, stages, microbatches, chunks))
    if kind in ("1f1b", "interleaved", "gpipe"):
        return tuple(_one_f_one_b(stage, stages, microbatches))
    raise BadInputError(f"unknown pipeline schedule {kind!r}", "use 1f1b, interleaved or gpipe")


@cache
def in_flight(kind: str, stage: int, stages: int, microbatches: int, chunks: int = 1) -> int:
    """Most forward passes of `stage` (chunks count singly) whose backward is still to come."""
    live = peak = 0
    for action in schedule(kind, stage, stages, microbatches, chunks):
        live += 1 if action.phase == "forward" else -1
        peak = max(peak, live)
    return peak
