"""The contract of the LLM ledger: every request is on disk before it is sent, every attempt and answer after."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol


@dataclass(frozen=True)
class LlmRequest:
    """One request to an LLM: `request` is the exact body; (run, iteration, turn, purpose) finds it again."""

    run_id: str
    iteration: int
    turn: int
    purpose: str
    model: str
    request: dict[str, Any]
    prompt_hash: str


@dataclass(frozen=True)
class LlmAttempt:
    """One HTTP attempt at a request; `http_status` is None when no answer came."""

    number: int
    seconds: float
    http_status: int | None = None
    request_id: str | None = None
    error_type: str | None = None
    error_message: str | None = None


@dataclass(frozen=True)
class LlmOutcome:
    """How a request ended. `response` is the full body or None; tokens by kind; `cost_usd` None means unknown."""

    response: dict[str, Any] | None
    stop_reason: str | None = None
    stop_category: str | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    price_id: str | None = None
    cost_usd: Decimal | None = None
    error: str | None = None


@dataclass(frozen=True)
class StoredCall:
    """A ledger row read back, for replay and resume."""

    id: int
    request: LlmRequest
    request_sha256: str
    outcome: LlmOutcome | None


class LlmLedger(Protocol):
    """Where LLM calls are recorded. No key may reach it: bodies only, never headers."""

    def begin(self, request: LlmRequest) -> int:
        """Commit the request; its id."""
        ...

    def attempt(self, call_id: int, attempt: LlmAttempt) -> None:
        """Record one HTTP attempt."""
        ...

    def finish(self, call_id: int, outcome: LlmOutcome) -> None:
        """Record how the request ended."""
        ...

    def find(self, run_id: str, iteration: int, turn: int, purpose: str) -> StoredCall | None:
        """The newest row of that place in the run."""
        ...
