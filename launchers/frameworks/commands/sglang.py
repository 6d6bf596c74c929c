"""SGLang: one engine a node under a small driver of ours, which runs the batch and profiles all of it.

The benchmarks that SGLang brings profile one rank, or need a server and a data set; the driver takes the server's own
arguments and calls the engine's public interface.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from launchers.frameworks.commands.request import Request, finish
from launchers.frameworks.commands.serving import WARMUP_BATCHES, lengths, model_facts, replica_share, steps
from launchers.frameworks.commands.words import fact_words, knob_words
from launchers.shell.command import Command, Slot
from runs.errors import BadInputError

DRIVER = "ccl_sglang.py"


def build(made: Request) -> Command:
    """The command of an SGLang config.

    Replicas that fit on a node are served by that node's engine; a replica of several nodes is one engine over them.

    Raises:
        BadInputError: the era cannot be told a knob, the model's files are unknown, or replicas do not fit the nodes.
    """
    words = [*fact_words(made.era, _facts(made)), *knob_words(made.era, made.knobs), *made.era.constant]
    argv = [made.settings.python, *made.era.start, *words]
    return finish(made, argv, {}, made.plan.world_size, {DRIVER: driver()}, steps=steps(made))


def driver() -> str:
    """The program that every SGLang trial brings along."""
    file = resources.files("launchers.frameworks").joinpath("drivers", "sglang_batch.py.txt")
    return file.read_text(encoding="utf-8")


def _facts(made: Request) -> dict[str, Any]:
    given, output = lengths(made)
    return {
        **model_facts(made),
        "expert_parallel": made.plan.ep > 1,
        "library_only": made.chooses_collectives,
        **_placement(made),
        "input_len": given,
        "output_len": output,
        "warmup": WARMUP_BATCHES,
        "trace_files": made.shape[1],
        "finished": f"{Slot.TRACE_DIR}/finished",
    }


def _placement(made: Request) -> dict[str, Any]:
    """Replicas of a node, or nodes of a replica, and the sequences that an engine is given.

    Raises:
        BadInputError: replicas neither fit a node nor take whole nodes.
    """
    nodes, used = made.shape
    size, dp = made.plan.tp * made.plan.pp, made.plan.dp
    if used % size == 0:
        replicas = used // size
        return {"replicas": replicas if replicas > 1 else None, "batch_size": replica_share(made, nodes)}
    if size % used:
        raise BadInputError(
            f"sglang: replicas of {size} devices neither fit nodes of {used} nor fill them",
            "choose tp * pp that divides, or is a multiple of, the devices of a node",
        )
    several = {"nodes": size // used, "batch_size": replica_share(made, dp)}
    if dp > 1:
        return {**several, "job_node": str(Slot.NODE_RANK)}
    meeting = f"{Slot.MASTER_ADDR}:{Slot.MASTER_PORT}"
    return {**several, "node_rank": str(Slot.NODE_RANK), "first_node": meeting}
