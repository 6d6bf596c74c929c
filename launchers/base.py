"""The contract of every launcher: a `Job` goes in, a serialisable handle comes back, an `Execution` is collected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from launchers.shell.command import Command
from runs.environment import Environment
from runs.plan import ParallelPlan
from runs.trial import Execution
from runs.workload import Workload

Handle = dict[str, Any]
"""What identifies a submitted job to a new process: plain JSON data, written by the launcher that reads it."""


class JobState(StrEnum):
    """What a launcher knows of a job. `UNKNOWN` is silence of the system asked, never a verdict."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Job:
    """Everything one attempt at one trial needs. `directory` is the trial's own; traces go to `directory/trace`.

    `command` is what a framework adapter wants started; launchers that start real programs need it.
    """

    run_id: str
    trial: int
    attempt: int
    directory: Path
    workload: Workload
    environment: Environment
    config: dict[str, Any]
    plan: ParallelPlan
    script: str
    time_limit_s: float
    settings: dict[str, Any] = field(default_factory=dict)
    command: Command | None = None

    @property
    def trace_dir(self) -> Path:
        """Where the execution leaves its trace files."""
        return self.directory / "trace"


@runtime_checkable
class Announcing(Protocol):
    """A launcher whose `submit` can take long and says so beforehand, to whoever sets `announce`."""

    announce: Callable[[str], None]


class Launcher(Protocol):
    """Runs jobs on one target.

    `submit` returns as soon as the job is accepted; its handle is stored before anything waits. All methods may
    raise `TargetUnavailableError`. After `cancel` returns, nothing of the job runs any more.
    """

    name: str

    def submit(self, job: Job) -> Handle:
        """Hand the job to the target."""
        ...

    def poll(self, handle: Handle) -> JobState:
        """What the target says about the job now; never blocks for long."""
        ...

    def cancel(self, handle: Handle) -> None:
        """End the job and every process of it; a finished or unknown job is no error."""
        ...

    def collect(self, handle: Handle) -> Execution:
        """What the finished job left, classified."""
        ...
