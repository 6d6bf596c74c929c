"""`--replay-llm`: the stored answers of a run in place of the API. It has no way to reach the network."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from ccl_search.llm.canonical import body_diff, same_body
from ccl_search.llm.errors import ReplayError, error_from_text
from ccl_search.llm.reply import LlmReply
from runs.ledger import LlmLedger, LlmOutcome, LlmRequest, StoredCall

PRICE_ID = "replay"


class ReplayClient:
    """Answers each request with what is stored at its place (run, iteration, turn, purpose), refusals and failures too.

    `run_id` names the run whose answers are served when another run replays it; each call is then written to the ledger
    of the replaying run too, at a cost of 0, so that its record is whole and can itself be replayed.
    """

    def __init__(self, ledger: LlmLedger, run_id: str | None = None) -> None:
        self._ledger = ledger
        self._run_id = run_id

    def call(self, request: LlmRequest) -> LlmReply:
        """The stored answer.

        Raises:
            ReplayError: nothing is stored at this place, no outcome is stored, or the stored request is another one
                (the message ends with a diff).
            LlmError: the stored call ended with this error.
        """
        stored = self._stored(request)
        if not same_body(stored.request.request, request.request):
            diff = body_diff(stored.request.request, request.request)
            raise ReplayError(
                f"the request of {_place(request)} is not the one stored:\n{diff}",
                "replay with the same prompts, history and settings as the recorded run, or run without --replay-llm",
            )
        if stored.outcome is None:
            raise ReplayError(f"the stored call of {_place(request)} never ended", "run without --replay-llm")
        call_id, outcome = self._recorded(stored.id, stored.request.run_id, request, stored.outcome)
        if outcome.response is None:
            raise error_from_text(outcome.error or "unknown: no answer is stored")
        return LlmReply(call_id, outcome.response, outcome)

    def close(self) -> None:
        """Nothing is held."""

    def _recorded(self, call_id: int, run_id: str, request: LlmRequest, outcome: LlmOutcome) -> tuple[int, LlmOutcome]:
        if run_id == request.run_id:
            return call_id, outcome
        copied = replace(outcome, price_id=PRICE_ID, cost_usd=Decimal(0))
        own = self._ledger.begin(request)
        self._ledger.finish(own, copied)
        return own, copied

    def _stored(self, request: LlmRequest) -> StoredCall:
        run_id = self._run_id or request.run_id
        stored = self._ledger.find(run_id, request.iteration, request.turn, request.purpose)
        if stored is None:
            raise ReplayError(
                f"run {run_id} holds no LLM call for {_place(request)}",
                "replay only as many iterations as were recorded, or run without --replay-llm",
            )
        return stored


def _place(request: LlmRequest) -> str:
    return f"iteration {request.iteration}, turn {request.turn}, {request.purpose}"
