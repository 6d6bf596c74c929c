"""The LLM ledger on the store: `runs.ledger.LlmLedger` over the tables `llm_calls` and `llm_attempts`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import Session, col, select

from runs.digests import text_sha256
from runs.errors import BadInputError
from runs.ledger import LlmAttempt, LlmOutcome, LlmRequest, StoredCall
from runs.store.encoding import canonical, dump, redact, refuse_secrets
from runs.store.errors import StoreError
from runs.store.part import Part, now, run_row
from runs.store.rows import llm_outcome, llm_request
from runs.store.tables import LlmAttemptRow, LlmCallRow


class SqlLedger(Part):
    """Requests are committed before they are sent, attempts and answers when they come."""

    def begin(self, request: LlmRequest) -> int:
        """Commit the request as canonical JSON with its SHA-256; the call's id.

        Raises:
            BadInputError: it holds a credential, or the run does not exist.
            StoreError: it is not JSON data, or a transaction is open, so that nothing would be committed yet.
        """
        if self._database.in_transaction:
            raise StoreError("a request cannot be committed inside an open transaction", "begin the call outside it")
        with self._database.transaction() as session:
            return self._add(session, request)

    def _add(self, session: Session, request: LlmRequest) -> int:
        refuse_secrets(request.request, "request")
        text = canonical(request.request, "request")
        run_row(session, request.run_id)
        row = LlmCallRow(
            run_id=request.run_id,
            iteration=request.iteration,
            turn=request.turn,
            purpose=request.purpose,
            model=request.model,
            request_sha256=text_sha256(text),
            request=text,
            prompt_hash=request.prompt_hash,
            created=now(),
        )
        session.add(row)
        session.flush()
        return _key(row)

    def adopt(self, request: LlmRequest, outcome: LlmOutcome | None, attempts: Sequence[LlmAttempt] = ()) -> int:
        """Store a call that another store recorded, whole and at once; also inside an open transaction. Its id.

        Raises:
            BadInputError: it holds a credential, or the run does not exist.
            StoreError: it is not JSON data.
        """
        with self._database.transaction() as session:
            call_id = self._add(session, request)
            for attempt in attempts:
                self.attempt(call_id, attempt)
            if outcome is not None:
                self.finish(call_id, outcome)
            return call_id

    def attempt(self, call_id: int, attempt: LlmAttempt) -> None:
        """Record one HTTP attempt; credentials in its error text are blotted out."""
        with self._database.transaction() as session:
            _call(session, call_id)
            session.add(
                LlmAttemptRow(
                    call_id=call_id,
                    number=attempt.number,
                    recorded=now(),
                    seconds=attempt.seconds,
                    http_status=attempt.http_status,
                    request_id=attempt.request_id,
                    error_type=attempt.error_type,
                    error_message=None if attempt.error_message is None else redact(attempt.error_message),
                )
            )

    def finish(self, call_id: int, outcome: LlmOutcome) -> None:
        """Record how the request ended, once.

        Raises:
            StoreError: that was recorded already.
        """
        with self._database.transaction() as session:
            row = _call(session, call_id)
            if row.finished is not None:
                raise StoreError(f"LLM call {call_id} has ended already", "begin a new call for a new request")
            row.response = None if outcome.response is None else dump(outcome.response, "response")
            row.stop_reason, row.stop_category = outcome.stop_reason, outcome.stop_category
            row.input_tokens, row.output_tokens = outcome.input_tokens, outcome.output_tokens
            row.cache_read_tokens, row.cache_write_tokens = outcome.cache_read_tokens, outcome.cache_write_tokens
            row.price_id = outcome.price_id
            row.cost_usd = None if outcome.cost_usd is None else format(outcome.cost_usd, "f")
            row.error = None if outcome.error is None else redact(outcome.error)
            row.finished = now()

    def find(self, run_id: str, iteration: int, turn: int, purpose: str) -> StoredCall | None:
        """The newest call of that place in the run."""
        statement = (
            select(LlmCallRow)
            .where(
                LlmCallRow.run_id == run_id,
                LlmCallRow.iteration == iteration,
                LlmCallRow.turn == turn,
                LlmCallRow.purpose == purpose,
            )
            .order_by(col(LlmCallRow.id).desc())
        )
        with self._database.reading() as session:
            row = session.exec(statement).first()
        if row is None:
            return None
        return StoredCall(_key(row), llm_request(row), row.request_sha256, llm_outcome(row))


def _call(session: Session, call_id: int) -> LlmCallRow:
    row = session.get(LlmCallRow, call_id)
    if row is None:
        raise BadInputError(f"there is no LLM call {call_id}", "give an id that `begin` returned")
    return row


def _key(row: LlmCallRow) -> int:
    assert row.id is not None
    return row.id
