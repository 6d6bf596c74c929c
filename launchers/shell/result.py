"""The result file: the end marker that a job's script writes itself, by renaming, whatever ends it short of SIGKILL."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """What the script knew at its end. `stage` is `setup` or `run`, times are seconds since the epoch.

    `reason` is empty, `signal` (the script was told to end) or `time_limit` (its own clock ended it).
    """

    exit_code: int
    stage: str
    reason: str
    started: float
    ended: float
    restarts: int
    nodes: str
    host: str

    @property
    def seconds(self) -> float:
        """Wall time of the script."""
        return max(0.0, self.ended - self.started)


def parse_result(text: str | None) -> Result | None:
    """The content of a result file; None where there is none or it is no result (a file cut short is none)."""
    try:
        data = json.loads(text or "")
        return Result(
            int(data["exit_code"]),
            str(data["stage"]),
            str(data["reason"]),
            float(data["started"]),
            float(data["ended"]),
            int(data["restarts"]),
            str(data["nodes"]),
            str(data["host"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
