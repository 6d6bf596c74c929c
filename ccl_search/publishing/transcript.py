"""The LLM exchange of a search as a file: one line of JSON for each call, in order; and reading it back."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runs.errors import BadInputError
from runs.ledger import LlmAttempt, LlmOutcome, LlmRequest

if TYPE_CHECKING:
    from runs.store import LlmCallRecord

TRANSCRIPT = "transcript.jsonl.gz"
_MOST_BYTES = 2**30


def written(calls: list[dict[str, Any]]) -> bytes:
    """The bytes of the file."""
    lines = "".join(json.dumps(call, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n" for call in calls)
    return gzip.compress(lines.encode("utf-8", "replace"), 9, mtime=0)


def as_data(call: LlmCallRecord) -> dict[str, Any]:
    """One call as plain data; money is text, to stay exact."""
    outcome = call.outcome
    return {
        "iteration": call.request.iteration,
        "turn": call.request.turn,
        "purpose": call.request.purpose,
        "model": call.request.model,
        "prompt_hash": call.request.prompt_hash,
        "request": call.request.request,
        "outcome": None if outcome is None else _outcome(outcome),
        "attempts": [vars(attempt) for attempt in call.attempts],
        "trial": call.trial,
    }


def _outcome(outcome: LlmOutcome) -> dict[str, Any]:
    cost = outcome.cost_usd
    return {**vars(outcome), "cost_usd": None if cost is None else format(cost, "f")}


def read(path: Path) -> Iterator[tuple[LlmRequest, LlmOutcome | None, tuple[LlmAttempt, ...], int | None]]:
    """The calls of a transcript, with the number of the trial each belongs to; their run is not known yet ("").

    Raises:
        BadInputError: the file is damaged, too large, or a line is no call.
    """
    try:
        with gzip.open(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInputError(f"{path.name} cannot be read: {error}", "get the folder again") from error
    if len(data) > _MOST_BYTES:
        raise BadInputError(f"refused: {path.name} unpacks to more than {_MOST_BYTES} bytes", "nothing was read")
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield _call(json.loads(line))
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            raise BadInputError(f"{path.name}:{number} is no LLM call: {error}", "get the folder again") from error


def _call(data: dict[str, Any]) -> tuple[LlmRequest, LlmOutcome | None, tuple[LlmAttempt, ...], int | None]:
    request = LlmRequest(
        "", data["iteration"], data["turn"], data["purpose"], data["model"], data["request"], data["prompt_hash"]
    )
    if not isinstance(request.request, dict) or type(request.iteration) is not int or type(request.turn) is not int:
        raise ValueError("the request is of the wrong kind")
    told = data["outcome"]
    outcome = None
    if told is not None:
        cost = told["cost_usd"]
        outcome = LlmOutcome(**{**told, "cost_usd": None if cost is None else Decimal(cost)})
    return request, outcome, tuple(LlmAttempt(**attempt) for attempt in data["attempts"]), data["trial"]
