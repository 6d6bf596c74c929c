"""What is known of one attempt, in a file of its folder: a new process goes on from there."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from runs.trial import FailureClass

STATE_FILE = "tpu.json"


class Phase(StrEnum):
    """How far an attempt is. `REFUSED`: the target cannot be used; the job never ran."""

    PROVISIONING = "provisioning"
    CONNECTING = "connecting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    REFUSED = "refused"


@dataclass
class AttemptState:
    """One attempt: its slice (`slice_key` in the ledger; empty for an existing slice), workers, and how it ended.

    `commands` are the ssh command lines of the workers, `master` the first one's inside address, `on` the workers
    that were started. `silent` maps workers to the time since when they do not answer, `failing` is when the first
    worker failed, `failure` and `reason` are the launcher's own verdict (a preempted slice, a silent worker),
    `failures` the slices that were not to be had. Times: seconds since the epoch.
    """

    phase: Phase
    slice_name: str
    zone: str
    slice_key: str = ""
    zones_tried: int = 0
    asked: float = 0.0
    ready: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    looked: float = 0.0
    answered: float = 0.0
    commands: list[list[str]] = field(default_factory=list)
    master: str = ""
    accelerator_type: str = ""
    on: list[int] = field(default_factory=list)
    silent: dict[str, float] = field(default_factory=dict)
    failing: float = 0.0
    failure: str = ""
    reason: str = ""
    failures: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)

    def end(self, now: float, failure: FailureClass | None = None, reason: str = "") -> None:
        """The attempt has ended; without a failure the workers' results decide."""
        self.phase, self.ended = Phase.ENDED, now
        self.failure, self.reason = failure.value if failure else "", reason


def save(folder: Path, state: AttemptState) -> None:
    """Put the state in place by renaming.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{STATE_FILE}.tmp"
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(asdict(state), stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(folder / STATE_FILE)


def load(folder: Path) -> AttemptState | None:
    """The state of the attempt in `folder`; None where there is none."""
    try:
        data = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return AttemptState(**{**data, "phase": Phase(data["phase"])})
