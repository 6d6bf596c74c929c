"""The live client against a Messages API on this machine, through the real SDK."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from ccl_search.llm.budget import DollarBudget
from ccl_search.llm.client import AnthropicClient, ClientOptions
from ccl_search.llm.errors import (
    LlmBudgetError,
    LlmCredentialsError,
    LlmError,
    LlmInterruptedError,
    LlmModelError,
    LlmRequestError,
    LlmTooLongError,
    LlmUnavailableError,
)
from ccl_search.llm.retries import RetryNotice, RetryPolicy
from runs.errors import BadInputError
from runs.ledger import LlmRequest
from tests.ccl_search.llm.clock import ManualClock
from tests.ccl_search.llm.ledger import GOOD, MemoryLedger
from tests.ccl_search.llm.messages_api import KEY, MessagesApi, Reply, error, html, message, overloaded, policy, prose

DAY = date(2026, 11, 30)


def request(**more: Any) -> LlmRequest:
    body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
    values: dict[str, Any] = {
        "run_id": "run-1",
        "iteration": 1,
        "turn": 0,
        "purpose": "propose",
        "model": "claude-opus-5-5",
        "request": body,
        "prompt_hash": "abc",
    }
    return LlmRequest(**(values | more))


Maker = Callable[..., AnthropicClient]


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(ledger: MemoryLedger, clock: ManualClock) -> Iterator[Maker]:
    made: list[AnthropicClient] = []

    def client(api: MessagesApi, **more: Any) -> AnthropicClient:
        values = {"options": ClientOptions(api.url, KEY), "retries": clock.retries(), "today": lambda: DAY} | more
        made.append(AnthropicClient(ledger, **values))
        return made[-1]

    yield client
    for one in made:
        one.close()


def test_a_whole_answer_is_stored_with_tokens_and_cost(make: Maker, ledger: MemoryLedger) -> None:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 2000,
        "cache_read_input_tokens": 10_000,
        "cache_creation_input_tokens": 4000,
        "cache_creation": {"ephemeral_5m_input_tokens": 3000, "ephemeral_1h_input_tokens": 1000},
    }
    with MessagesApi([message([{"type": "text", "text": "Hi"}], "end_turn", usage=usage)]) as api:
        reply = make(api).call(request())
    outcome = ledger.outcomes[reply.call_id]
    assert reply.text == "Hi"
    assert outcome.response == reply.response
    assert (outcome.input_tokens, outcome.output_tokens) == (1000, 2000)
    assert (outcome.cache_read_tokens, outcome.cache_write_tokens) == (10_000, 4000)
    # opus-5-5: 4 in, 20 out, 0.20 read, 5 and 8 written, dollars for a million tokens
    assert outcome.cost_usd == Decimal("0.004") + Decimal("0.04") + Decimal("0.002") + Decimal("0.015") + Decimal(
        "0.008"
    )
    assert outcome.price_id == "claude-opus-5-5@start"
    assert [(a.number, a.http_status, a.request_id) for a in ledger.attempts[reply.call_id]] == [
        (1, 200, "req_message")
    ]


def test_the_request_is_stored_before_it_is_sent(make: Maker, ledger: MemoryLedger) -> None:
    seen: list[int] = []

    def answer(_: dict[str, Any]) -> Reply:
        seen.append(len(ledger.requests))
        return prose()

    with MessagesApi([answer]) as api:
        make(api).call(request())
        assert ledger.requests[0].request == api.bodies[0]
    assert seen == [1]


def test_an_unknown_price_stays_unknown(make: Maker, ledger: MemoryLedger) -> None:
    body = request().request | {"model": "claude-next-9"}
    with MessagesApi([prose()]) as api:
        reply = make(api).call(request(model="claude-next-9", request=body))
    assert reply.outcome.cost_usd is None
    assert reply.outcome.price_id is None
    assert reply.outcome.output_tokens == 340


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": "many", "output_tokens": 3},
        {"input_tokens": 10**30, "output_tokens": 3},
        {"input_tokens": -5, "output_tokens": 3},
        {"input_tokens": True, "output_tokens": 3},
        {"input_tokens": 5, "output_tokens": 3, "cache_creation_input_tokens": [1]},
        None,
        [],
    ],
)
def test_counts_that_cannot_be_leave_the_cost_unknown_and_the_answer_whole(
    make: Maker, ledger: MemoryLedger, usage: Any
) -> None:
    with MessagesApi([message([{"type": "text", "text": "hello"}], "end_turn", usage=usage)]) as api:
        reply = make(api).call(request())

    assert reply.text == "hello"
    assert (reply.outcome.cost_usd, reply.outcome.input_tokens, reply.outcome.output_tokens) == (None, None, None)


def test_an_answer_of_strange_parts_is_stored_as_text_and_read_as_far_as_it_goes(make: Maker) -> None:
    strange = message(["words", {"type": "text", "text": "hello"}, 3], ["end"], stop_details={"category": {"a": 1}})  # type: ignore[list-item, arg-type]
    with MessagesApi([strange]) as api:
        reply = make(api).call(request())

    assert reply.text == "hello"
    assert reply.tool_uses() == []
    assert (reply.outcome.stop_reason, reply.outcome.stop_category) == ("['end']", "{'a': 1}")


def test_overload_is_tried_again_and_every_attempt_recorded(
    make: Maker, ledger: MemoryLedger, clock: ManualClock
) -> None:
    told: list[RetryNotice] = []
    with MessagesApi([overloaded(), overloaded(), policy(GOOD)]) as api:
        reply = make(api, on_wait=told.append).call(request())
        assert [h["x-stainless-retry-count"] for h in api.headers] == ["0", "0", "0"]
    rows = ledger.attempts[reply.call_id]
    assert [(row.number, row.http_status, row.error_type) for row in rows] == [
        (1, 529, "overloaded_error"),
        (2, 529, "overloaded_error"),
        (3, 200, None),
    ]
    assert len(ledger.requests) == 1
    assert [notice.seconds for notice in told] == clock.sleeps
    assert [notice.attempt for notice in told] == [1, 2]
    assert all(2 <= seconds <= 60 for seconds in clock.sleeps)
    assert "529 overloaded_error" in told[0].reason


@pytest.mark.parametrize(
    "reply",
    [
        error(408, "timeout_error"),
        error(409, "conflict_error"),
        error(429, "rate_limit_error"),
        error(500, "api_error"),
        error(503, "api_error"),
        error(504, "timeout_error"),
        html(500),
        html(502),
        html(200),
        Reply(None, 200, text='{"type": "mess'),
        Reply(None, 200, text="[]"),
        Reply(None, 200, text='{"type": "message", "stop_reason": "end_turn", "content": "\\ud800"}'),
        Reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        message([{"type": "tool_use", "id": "t", "name": "submit_policy", "input": {"code": "x"}}], None),
    ],
    ids=lambda reply: f"{reply.status}-{(reply.text or str(reply.body))[:30]}",
)
def test_what_may_pass_is_tried_again(make: Maker, ledger: MemoryLedger, clock: ManualClock, reply: Reply) -> None:
    with MessagesApi([reply, policy(GOOD)]) as api:
        answer = make(api).call(request())
    assert answer.stop_reason == "tool_use"
    assert len(clock.sleeps) == 1
    first = ledger.attempts[answer.call_id][0]
    assert first.http_status == reply.status
    assert first.error_type


@pytest.mark.parametrize(
    ("status", "family", "code"),
    [
        (400, LlmRequestError, 1),
        (401, LlmCredentialsError, 2),
        (402, LlmRequestError, 1),
        (403, LlmCredentialsError, 2),
        (404, LlmModelError, 2),
        (413, LlmTooLongError, 1),
        (422, LlmRequestError, 1),
    ],
)
def test_what_cannot_pass_is_sent_once(
    make: Maker, ledger: MemoryLedger, clock: ManualClock, status: int, family: type[LlmError], code: int
) -> None:
    with MessagesApi([error(status, "some_error", "the reason why")]) as api:
        with pytest.raises(family) as caught:
            make(api).call(request())
        assert len(api.bodies) == 1
    assert clock.sleeps == []
    assert caught.value.exit_code == code
    assert caught.value.hint
    assert "the reason why" in caught.value.message
    assert ledger.outcomes[1].error == f"{status} some_error: the reason why"
    assert ledger.outcomes[1].cost_usd is None


def test_an_error_of_status_200_that_is_no_overload_is_not_tried_again(make: Maker, clock: ManualClock) -> None:
    reply = Reply({"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}})
    with MessagesApi([reply]) as api, pytest.raises(LlmError, match="invalid_request_error"):
        make(api).call(request())
    assert clock.sleeps == []


def test_retry_after_is_obeyed_up_to_its_cap_and_the_time_ends_it(
    make: Maker, ledger: MemoryLedger, clock: ManualClock
) -> None:
    forever = error(429, "rate_limit_error", "slow down", {"retry-after": "3600"})
    with MessagesApi(default=forever) as api:
        with pytest.raises(LlmUnavailableError) as caught:
            make(api).call(request())
        assert len(api.bodies) == 8
    assert clock.sleeps == [120.0] * 7  # an eighth wait would end after 900 s
    assert "429" in caught.value.message
    assert len(ledger.attempts[1]) == 8
    assert ledger.outcomes[1].response is None


def test_a_short_retry_after_does_not_shorten_the_wait(make: Maker, clock: ManualClock) -> None:
    with MessagesApi([error(429, "rate_limit_error", "no", {"retry-after": "0"}), prose()]) as api:
        make(api).call(request())
    assert clock.sleeps[0] >= 2


def test_a_retry_after_longer_than_the_jitter_is_waited_for(make: Maker, clock: ManualClock) -> None:
    with MessagesApi([error(429, "rate_limit_error", "no", {"retry-after": "90"}), prose()]) as api:
        make(api).call(request())
    assert clock.sleeps == [90.0]


def test_a_slow_answer_runs_into_the_timeout(make: Maker, ledger: MemoryLedger) -> None:
    slow = Reply(prose().body, delay_s=5)
    with MessagesApi([slow], default=policy(GOOD)) as api:  # on a busy machine the quick answer may be late as well
        reply = make(api, options=ClientOptions(api.url, KEY, timeout_s=0.3)).call(request())
    assert reply.stop_reason == "tool_use"
    first = ledger.attempts[reply.call_id][0]
    assert (first.http_status, first.error_type) == (None, "connection_timeout")


def test_nobody_listening_is_an_unavailable_api(ledger: MemoryLedger, clock: ManualClock) -> None:
    with MessagesApi() as api:
        url = api.url
    client = AnthropicClient(ledger, options=ClientOptions(url, KEY), retries=clock.retries(total_s=10))
    with pytest.raises(LlmUnavailableError) as caught:
        client.call(request())
    client.close()
    assert caught.value.hint
    assert ledger.attempts[1][0].error_type == "connection_error"


def test_a_wait_ends_when_the_search_is_stopped(make: Maker, ledger: MemoryLedger) -> None:
    cancelled = threading.Event()
    told: list[RetryNotice] = []

    def stop(notice: RetryNotice) -> None:
        told.append(notice)
        cancelled.set()

    with MessagesApi([overloaded(), prose()]) as api:
        client = make(api, retries=RetryPolicy(cancelled=cancelled), on_wait=stop)
        with pytest.raises(LlmInterruptedError):
            client.call(request())
        assert len(api.bodies) == 1
    assert len(told) == 1
    assert "LlmInterruptedError" in (ledger.outcomes[1].error or "")


def test_ctrl_c_leaves_a_closed_row(make: Maker, ledger: MemoryLedger) -> None:
    def interrupt(_: RetryNotice) -> None:
        raise KeyboardInterrupt

    budget = DollarBudget()
    with MessagesApi([overloaded()]) as api, pytest.raises(KeyboardInterrupt):
        make(api, on_wait=interrupt, budget=budget).call(request())
    assert "KeyboardInterrupt" in (ledger.outcomes[1].error or "")
    assert budget.spent > 0


def test_without_a_key_nothing_is_stored_and_the_hint_names_it(ledger: MemoryLedger) -> None:
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        os.environ.pop(name, None)
    client = AnthropicClient(ledger, options=ClientOptions("http://127.0.0.1:9"))
    with pytest.raises(LlmCredentialsError) as caught:
        client.call(request())
    assert "ANTHROPIC_API_KEY" in caught.value.hint
    assert caught.value.exit_code == 2
    assert ledger.requests == []


def test_the_key_is_sent_as_a_header_and_kept_nowhere(
    make: Maker, ledger: MemoryLedger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    echo = error(401, "authentication_error", f"key {KEY} is not valid")
    told: list[RetryNotice] = []
    with MessagesApi([error(500, "api_error", f"proxy saw Bearer {KEY}"), echo]) as api:
        client = make(api, on_wait=told.append)
        with pytest.raises(LlmCredentialsError) as caught:
            client.call(request())
        assert [h["authorization"] for h in api.headers] == [f"Bearer {KEY}"] * 2
        assert KEY not in repr(api.bodies)
    shown = "".join(traceback.format_exception(caught.value))
    for text in (ledger.everything(), shown, repr(told), repr(client.__dict__), caplog.text):
        assert KEY not in text
    assert caught.value.__context__ is None


def test_a_key_of_unusual_shape_is_kept_out_too(ledger: MemoryLedger, clock: ManualClock) -> None:
    with MessagesApi([error(401, "authentication_error", "got plainword")]) as api:
        client = AnthropicClient(ledger, options=ClientOptions(api.url, "plainword"), retries=clock.retries())
        with pytest.raises(LlmCredentialsError) as caught:
            client.call(request())
        client.close()
    assert "plainword" not in caught.value.message + ledger.everything()


class TestBudget:
    def test_a_call_that_could_exceed_the_limit_is_not_made(self, make: Maker, ledger: MemoryLedger) -> None:
        with MessagesApi([prose()]) as api:
            # 100 output tokens at $20 a million are $0.002, before any input
            with pytest.raises(LlmBudgetError) as caught:
                make(api, budget=DollarBudget(Decimal("0.002"))).call(request())
            assert api.bodies == []
        assert ledger.requests == []
        assert caught.value.exit_code == 4

    def test_the_true_cost_replaces_the_reservation(self, make: Maker) -> None:
        budget = DollarBudget(Decimal(1), spent=Decimal("0.5"))
        with MessagesApi([prose()]) as api:
            make(api, budget=budget).call(request())
        assert budget.spent == Decimal("0.5") + (1200 * Decimal(4) + 340 * Decimal(20)) / 1_000_000

    def test_a_refused_request_costs_nothing(self, make: Maker) -> None:
        budget = DollarBudget(Decimal(1))
        with MessagesApi([error(400, "invalid_request_error")]) as api, pytest.raises(LlmRequestError):
            make(api, budget=budget).call(request())
        assert budget.spent == 0

    def test_a_call_without_an_answer_counts_with_its_reservation(self, ledger: MemoryLedger) -> None:
        clock = ManualClock()
        budget = DollarBudget(Decimal(1))
        with MessagesApi([Reply(prose().body, delay_s=5)]) as api:
            options = ClientOptions(api.url, KEY, timeout_s=0.3)
            retries = clock.retries(total_s=1)
            client = AnthropicClient(ledger, options=options, retries=retries, budget=budget)
            with pytest.raises(LlmUnavailableError):
                client.call(request())
            client.close()
        assert budget.spent > Decimal("0.002")

    def test_a_limit_needs_a_price(self, make: Maker) -> None:
        body = request().request | {"model": "claude-next-9"}
        with MessagesApi([prose()]) as api:
            with pytest.raises(BadInputError, match="price"):
                make(api, budget=DollarBudget(Decimal(5))).call(request(model="claude-next-9", request=body))
            assert api.bodies == []


class TestResume:
    def test_an_answer_already_paid_for_is_not_bought_again(self, make: Maker, ledger: MemoryLedger) -> None:
        with MessagesApi([policy(GOOD)]) as api:
            first = make(api).call(request())
            again = make(api).call(request())
            assert len(api.bodies) == 1
        assert again == first

    def test_another_body_at_the_same_place_is_sent(self, make: Maker) -> None:
        with MessagesApi([policy(GOOD), policy(GOOD)]) as api:
            make(api).call(request())
            make(api).call(request(request=request().request | {"max_tokens": 101}))
            assert len(api.bodies) == 2

    @pytest.mark.parametrize("stop", ["refusal", "max_tokens"])
    def test_refusals_and_cut_answers_are_asked_again(self, make: Maker, stop: str) -> None:
        with MessagesApi([message([], stop), policy(GOOD)]) as api:
            make(api).call(request())
            assert make(api).call(request()).stop_reason == "tool_use"

    def test_a_request_its_process_did_not_see_answered_is_closed_and_sent_again(
        self, make: Maker, ledger: MemoryLedger
    ) -> None:
        lost = ledger.begin(request())
        with MessagesApi([policy(GOOD)]) as api:
            reply = make(api).call(request())
        assert reply.call_id != lost
        assert "possibly billed" in (ledger.outcomes[lost].error or "")


def test_the_sdk_is_not_imported_before_a_call() -> None:
    code = (
        "import sys; import ccl_search.proposers.claude as c; import tests.ccl_search.llm.ledger as t;"
        "p = c.ClaudeProposer(t.MemoryLedger()); print('anthropic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
