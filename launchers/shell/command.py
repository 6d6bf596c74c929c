"""`Command`: what a framework adapter wants started, before any target has turned it into a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from runs.errors import BadInputError


class Slot(StrEnum):
    """Values only known where the job runs. Put one (or a text that holds one) into `argv` or `env`.

    The script replaces it by the environment variable of the same name, quoted. `NODE_RANK` counts the nodes of the
    job from 0, `RANK` the processes that the launcher starts (`LOCAL_RANK` those on one node), `XPUS_PER_NODE` is the
    number of devices a node gives to the job, `TRACE_DIR` the folder where traces are looked for, `JOB_DIR` the
    trial's folder.
    """

    NODE_RANK = "@CCL_NODE_RANK@"
    NUM_NODES = "@CCL_NUM_NODES@"
    XPUS_PER_NODE = "@CCL_XPUS_PER_NODE@"
    RANK = "@CCL_RANK@"
    LOCAL_RANK = "@CCL_LOCAL_RANK@"
    WORLD_SIZE = "@CCL_WORLD_SIZE@"
    MASTER_ADDR = "@CCL_MASTER_ADDR@"
    MASTER_PORT = "@CCL_MASTER_PORT@"
    TRACE_DIR = "@CCL_TRACE_DIR@"
    JOB_DIR = "@CCL_JOB_DIR@"

    @property
    def variable(self) -> str:
        """The environment variable that holds the value inside the job."""
        return self.value.strip("@")


@dataclass(frozen=True)
class Command:
    """One program, started on every node (`per_node`, e.g. torchrun) or once for every device.

    `argv` and `env` are plain text apart from `Slot`s; quoting is the script's business. `trace_globs` are patterns
    relative to the trace folder, `trace_count` how many files they must match in all (None: at least one), `files`
    are written into the trial's folder before the start (path relative to it, content). `nodes` times
    `xpus_per_node` is the world size (see `shape`). `framework_version` is the version or era the flags are for,
    `notes` what the user should know about the choice, `steps` what the program is told to warm up and to record
    (`warmup_steps`, `recorded_steps`, `decode_steps`; empty where only the program knows).
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    trace_globs: tuple[str, ...] = ()
    trace_count: int | None = None
    per_node: bool = True
    nodes: int = 1
    xpus_per_node: int = 1
    working_dir: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    framework_version: str = ""
    notes: tuple[str, ...] = ()
    steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Devices that the command uses."""
        return self.nodes * self.xpus_per_node

    @property
    def tasks_per_node(self) -> int:
        """Processes that the launcher starts on each node."""
        return 1 if self.per_node else self.xpus_per_node


def shape(world_size: int, xpus_per_node: int) -> tuple[int, int]:
    """(nodes, devices used on each) for `world_size` devices: as few nodes as hold equal shares.

    12 devices on nodes of 4 are (3, 4); 6 are (2, 3); 2 are (1, 2).

    Raises:
        BadInputError: a size is below one.
    """
    if world_size < 1 or xpus_per_node < 1:
        raise BadInputError(
            f"{world_size} devices on nodes of {xpus_per_node} cannot be laid out", "give positive numbers"
        )
    nodes = -(-world_size // xpus_per_node)
    while world_size % nodes:
        nodes += 1
    return nodes, world_size // nodes
