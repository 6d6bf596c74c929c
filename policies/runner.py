"""The contract of policy runners: a policy's source and its two inputs go in, a plain config comes out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class PolicyErrorKind(StrEnum):
    """What was wrong with a policy, for the proposer to learn from."""

    SYNTAX = "syntax"
    UNSUPPORTED = "unsupported"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    FORBIDDEN = "forbidden"
    CRASHED = "crashed"
    BAD_RESULT = "bad_result"
    NOT_DETERMINISTIC = "not_deterministic"


class PolicyError(Exception):
    """A policy did not yield a config. `traceback` is the policy's own, as text."""

    def __init__(self, kind: PolicyErrorKind, message: str, traceback: str = "") -> None:
        super().__init__(f"{kind.value}: {message}")
        self.kind = kind
        self.message = message
        self.traceback = traceback


@dataclass(frozen=True)
class PolicyLimits:
    """Bounds of one evaluation: seconds, bytes of memory, bytes of printed output, bytes of source."""

    seconds: float = 2.0
    memory_bytes: int = 64 * 2**20
    output_bytes: int = 64 * 2**10
    source_bytes: int = 64 * 2**10


class PolicyRunner(Protocol):
    """Evaluates policies, never in this process.

    `evaluate` runs `generate_config(workload, environment)` twice and returns its result: a plain dict of str to
    int, float, str or bool. It raises `PolicyError` otherwise. `close` ends every worker process.
    """

    name: str

    def evaluate(self, source: str, workload: dict[str, Any], environment: dict[str, Any]) -> dict[str, Any]:
        """The config the policy gives for these inputs."""
        ...

    def close(self) -> None:
        """End every worker process; the runner is not used afterwards."""
        ...
