"""The LLM ledger: committed before sending, exact afterwards, and never with a key in it."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runs.errors import BadInputError
from runs.ledger import LlmAttempt, LlmLedger, LlmOutcome, LlmRequest
from runs.store import NewTrial, Store, StoreError
from runs.trial import TrialState
from tests.runs.store import make

BODY = {"model": "m", "messages": [{"role": "user", "content": "é tune"}], "max_tokens": 10}


@pytest.fixture
def run_id(store: Store) -> str:
    return store.create_run(make.new_run())


def request(run_id: str, body: dict[str, Any] | None = None, **place: Any) -> LlmRequest:
    fields = {"iteration": 1, "turn": 0, "purpose": "propose", **place}
    return LlmRequest(run_id, model="m", request=BODY if body is None else body, prompt_hash="ff", **fields)


def test_a_request_is_committed_before_begin_returns(store: Store, run_id: str, home: Path) -> None:
    ledger: LlmLedger = store.ledger
    call = ledger.begin(request(run_id))
    expected = '{"max_tokens":10,"messages":[{"content":"\\u00e9 tune","role":"user"}],"model":"m"}'
    digest = hashlib.sha256(expected.encode()).hexdigest()
    rows = make.raw(home, "SELECT id, request, request_sha256, response, finished FROM llm_calls")
    assert rows == [(call, expected, digest, None, None)]


def test_the_order_of_keys_does_not_change_a_request(store: Store, run_id: str) -> None:
    store.ledger.begin(request(run_id, {"a": 1, "b": {"c": 2, "d": 3}}))
    store.ledger.begin(request(run_id, {"b": {"d": 3, "c": 2}, "a": 1}))
    assert len({call.request_sha256 for call in store.llm_calls(run_id)}) == 1


def test_a_request_inside_a_transaction_is_refused(store: Store, run_id: str) -> None:
    with pytest.raises(StoreError, match="inside an open transaction"), store.transaction():
        store.ledger.begin(request(run_id))
    assert store.llm_calls(run_id) == []


@pytest.mark.parametrize(
    "body",
    [
        {"headers": {"Authorization": "x"}},
        {"x-api-key": "x"},
        {"messages": [{"extra": {"X_API_KEY": "x"}}]},
        {"api_key": "x"},
        {"messages": [{"content": "my key is sk-ant-api03-abcdefgh1234"}]},
    ],
)
def test_credentials_are_refused_and_not_repeated(store: Store, run_id: str, body: dict[str, Any], home: Path) -> None:
    with pytest.raises(BadInputError, match="looks like a credential") as caught:
        store.ledger.begin(request(run_id, body))
    assert "sk-ant" not in caught.value.message
    assert make.raw(home, "SELECT count(*) FROM llm_calls") == [(0,)]


def test_no_nan_enters_a_request(store: Store, run_id: str) -> None:
    with pytest.raises(StoreError, match="request is not plain JSON data"):
        store.ledger.begin(request(run_id, {"temperature": float("nan")}))


def test_attempts_and_the_answer_come_back_exactly(store: Store, run_id: str) -> None:
    call = store.ledger.begin(request(run_id))
    attempts = (
        LlmAttempt(1, 0.5, 529, "req_1", "overloaded_error", "Overloaded"),
        LlmAttempt(2, 2.25, None, None, "connection", "reset"),
        LlmAttempt(3, 4.0, 200, "req_3"),
    )
    for attempt in attempts:
        store.ledger.attempt(call, attempt)
    outcome = LlmOutcome(
        response={"content": [{"type": "tool_use", "input": {"tp": 2}}], "ünï": [None, 1e-9]},
        stop_reason="tool_use",
        input_tokens=1200,
        cache_read_tokens=0,
        cache_write_tokens=300,
        output_tokens=80,
        price_id="m@2026-11",
        cost_usd=Decimal("0.012345678901234567890"),
    )
    store.ledger.finish(call, outcome)
    (stored,) = store.llm_calls(run_id)
    assert stored.request == request(run_id)
    assert stored.attempts == attempts
    assert stored.outcome == outcome
    assert str(stored.outcome.cost_usd) == "0.012345678901234567890"
    with pytest.raises(StoreError, match="has ended already"):
        store.ledger.finish(call, outcome)


def test_a_call_without_an_answer_has_no_outcome_and_one_with_an_error_has(store: Store, run_id: str) -> None:
    store.ledger.begin(request(run_id))
    failed = store.ledger.begin(request(run_id, iteration=2))
    store.ledger.attempt(failed, LlmAttempt(1, 1.0, 401, error_message="bad key sk-ant-api03-abcdefgh1234"))
    store.ledger.finish(failed, LlmOutcome(None, error="authentication failed: Bearer abcdefghijklmnopqrst"))
    open_call, closed = store.llm_calls(run_id)
    assert open_call.outcome is None
    assert closed.outcome == LlmOutcome(None, error="authentication failed: [secret]")
    assert closed.attempts[0].error_message == "bad key [secret]"
    assert [call.id for call in store.llm_calls(run_id, iteration=2)] == [failed]


def test_find_gives_the_newest_call_of_a_place(store: Store, run_id: str) -> None:
    other = store.create_run(make.new_run())
    store.ledger.begin(request(run_id))
    newest = store.ledger.begin(request(run_id))
    for place in ({"turn": 1}, {"iteration": 2}, {"purpose": "repair"}):
        store.ledger.begin(request(run_id, **place))
    store.ledger.begin(request(other))
    found = store.ledger.find(run_id, 1, 0, "propose")
    assert found is not None
    assert (found.id, found.outcome, found.request) == (newest, None, request(run_id))
    assert (
        found.request_sha256
        == hashlib.sha256(json.dumps(BODY, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    )
    assert store.ledger.find(run_id, 9, 0, "propose") is None


def test_calls_are_tied_to_the_trial_they_led_to(store: Store, run_id: str) -> None:
    make.add_success(store, run_id, 1.0)
    calls = (store.ledger.begin(request(run_id)), store.ledger.begin(request(run_id, turn=1)))
    loose = store.ledger.begin(request(run_id, iteration=2))
    number = store.add_trial(run_id, NewTrial(iteration=1, llm_calls=calls))
    assert {call.id: call.trial for call in store.llm_calls(run_id)} == {
        calls[0]: number,
        calls[1]: number,
        loose: None,
    }
    other = store.create_run(make.new_run())
    with pytest.raises(BadInputError, match="has no LLM call"):
        store.add_trial(other, NewTrial(iteration=1, llm_calls=calls))
    assert store.trials(other) == []


def test_unknown_calls_and_runs_are_named(store: Store) -> None:
    with pytest.raises(BadInputError, match="no LLM call 7"):
        store.ledger.finish(7, LlmOutcome(None))
    with pytest.raises(BadInputError, match="no LLM call 7"):
        store.ledger.attempt(7, LlmAttempt(1, 0.0))
    with pytest.raises(BadInputError, match="no run 'x'"):
        store.ledger.begin(request("x"))


def test_totals_add_up_exactly_and_unknown_stays_unknown(store: Store, run_id: str) -> None:
    empty = store.totals(run_id)
    assert (empty.llm_cost_usd, empty.xpu_hours, empty.trials) == (Decimal(0), 0.0, {})
    for cents in ("0.1", "0.2"):
        call = store.ledger.begin(request(run_id))
        store.ledger.finish(call, LlmOutcome({}, input_tokens=5, output_tokens=7, cost_usd=Decimal(cents)))
    assert store.totals(run_id).llm_cost_usd == Decimal("0.3")
    store.ledger.finish(store.ledger.begin(request(run_id)), LlmOutcome({}, input_tokens=5, cost_usd=None))
    store.ledger.begin(request(run_id))  # never answered: perhaps billed
    totals = store.totals(run_id)
    assert (totals.llm_calls, totals.llm_cost_usd, totals.unknown_cost_calls) == (4, None, 2)
    assert totals.known_llm_cost_usd == Decimal("0.3")
    assert (totals.input_tokens, totals.output_tokens) == (15, 14)


def test_hours_are_unknown_only_where_something_was_launched(store: Store, run_id: str) -> None:
    make.add_success(store, run_id, 1.0, xpu_hours=2.0)
    make.add_success(store, run_id, 1.0)  # never launched, so it cost nothing
    assert (store.totals(run_id).xpu_hours, store.totals(run_id).trials) == (2.0, {TrialState.SUCCEEDED: 2})
    number = store.add_trial(run_id, NewTrial(iteration=1))
    store.begin_attempt(run_id, number)
    store.finish_trial(run_id, number, make.success(1.0))
    totals = store.totals(run_id)
    assert (totals.xpu_hours, totals.known_xpu_hours, totals.unknown_hours_trials) == (None, 2.0, 1)
