"""Jobs for launcher tests."""

from __future__ import annotations

import sys
from pathlib import Path

from launchers.base import Job
from launchers.shell.command import Command
from runs import catalogue
from runs.plan import ParallelPlan

WRITE_TRACE = 'printf "{}" > "$CCL_TRACE_DIR/rank$CCL_RANK.json"'
TORCH_OOM = """
import os, sys, time
if os.environ["CCL_RANK"] != os.environ.get("OOM_RANK", "0"):
    time.sleep(300)
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
def forward(): raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 39.50 GiB")
forward()
"""


def bash(text: str, **fields: object) -> Command:
    """A command that runs a shell text."""
    return Command(("bash", "-c", text), **fields)  # type: ignore[arg-type]


def python(text: str, **fields: object) -> Command:
    """A command that runs a Python text with this interpreter."""
    return Command((sys.executable, "-S", "-c", text), **fields)  # type: ignore[arg-type]


def succeeding(nodes: int = 1, **fields: object) -> Command:
    """Every process writes a trace file."""
    command = bash(WRITE_TRACE, nodes=nodes, **fields)
    return bash(
        WRITE_TRACE, nodes=nodes, trace_globs=("rank*.json",), trace_count=nodes * command.tasks_per_node, **fields
    )


def job(
    directory: Path,
    command: Command | None,
    *,
    run_id: str = "run",
    trial: int = 1,
    attempt: int = 1,
    time_limit_s: float = 120.0,
) -> Job:
    """A job with the smallest possible rest."""
    world = command.world_size if command is not None else 1
    return Job(
        run_id=run_id,
        trial=trial,
        attempt=attempt,
        directory=directory,
        workload=catalogue.workload(catalogue.workload_names()[0]),
        environment=catalogue.environment("perlmutter-a100-16"),
        config={"tp": world},
        plan=ParallelPlan("command", tp=world),
        script="",
        time_limit_s=time_limit_s,
        command=command,
    )
