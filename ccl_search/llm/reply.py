"""The answer of an LLM call, and the contract of what gives it: the live client or a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from runs.ledger import LlmOutcome, LlmRequest


@dataclass(frozen=True)
class LlmReply:
    """A whole answer: `response` is the body as the API sent it, `call_id` its ledger row."""

    call_id: int
    response: dict[str, Any]
    outcome: LlmOutcome

    @property
    def stop_reason(self) -> str:
        """Why the model stopped; unknown reasons come through as they are."""
        return str(self.response.get("stop_reason"))

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks, to be sent back unmodified in a later turn; what is no block is left out."""
        blocks = self.response.get("content")
        return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []

    @property
    def text(self) -> str:
        """All text blocks joined."""
        return "".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    def tool_uses(self) -> list[dict[str, Any]]:
        """Every tool call in the answer, in order."""
        return [block for block in self.content if block.get("type") == "tool_use"]


class LlmClient(Protocol):
    """Answers requests, live or from the ledger."""

    def call(self, request: LlmRequest) -> LlmReply:
        """The answer to `request`.

        Raises:
            LlmError: there is none (see `ccl_search.llm.errors` for the families).
        """
        ...

    def close(self) -> None:
        """Free connections."""
        ...
