"""The proposer against a scripted Messages API, through the real SDK: every way an answer can come out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from ccl_search.llm.budget import DollarBudget
from ccl_search.llm.client import AnthropicClient, ClientOptions
from ccl_search.llm.errors import LlmCredentialsError, LlmRequestError, ReplayError
from ccl_search.llm.replay import ReplayClient
from ccl_search.llm.retries import RetryPolicy
from ccl_search.proposers.base import ProposalFailedError, Proposer, ProposerExhaustedError
from ccl_search.proposers.claude import ClaudeProposer, NoPolicyError
from runs.trial import FailureClass
from tests.ccl_search.llm.clock import ManualClock
from tests.ccl_search.llm.ledger import GOOD, MemoryLedger, context, failed, maximised, succeeded
from tests.ccl_search.llm.messages_api import (
    KEY,
    MessagesApi,
    Reply,
    Script,
    error,
    message,
    overloaded,
    policy,
    prose,
    refusal,
)

BROKEN = 'def generate_config(workload, environment):\n    return {"tp": 3, "pp": 1}\n'
AUTO = {"type": "auto", "disable_parallel_tool_use": True}
FORCED = {"type": "tool", "name": "submit_policy", "disable_parallel_tool_use": True}
OLD = "claude-opus-4-6"


class Stage:
    """A proposer, its ledger and the server it talks to."""

    def __init__(self, api: MessagesApi, **more: Any) -> None:
        self.api = api
        self.ledger = MemoryLedger()
        budget = more.pop("budget", None)
        retries = ManualClock().retries()
        client = AnthropicClient(self.ledger, options=ClientOptions(api.url, KEY), retries=retries, budget=budget)
        self.proposer = ClaudeProposer(self.ledger, client=client, **more)

    @property
    def purposes(self) -> list[tuple[int, str]]:
        return [(row.turn, row.purpose) for row in self.ledger.requests]


@contextmanager
def stage(*script: Script, **more: Any) -> Iterator[Stage]:
    with MessagesApi(script) as api:
        made = Stage(api, **more)
        yield made
        made.proposer.close()


def wrong_tp(source: str) -> str | None:
    return "choice_tp: tp=3 (int) is none of 1, 2, 4" if '"tp": 3' in source else None


def test_a_good_policy_is_proposed() -> None:
    with stage(policy(GOOD, "tp inside the node")) as it:
        proposer: Proposer = it.proposer
        proposal = proposer.propose(context())
    assert (proposal.source, proposal.rationale, proposal.llm_calls) == (GOOD, "tp inside the node", (1,))
    assert it.purposes == [(0, "propose")]


def test_the_request_has_one_strict_tool_and_the_whole_state() -> None:
    happened = [
        succeeded(0, {"tp": 1, "pp": 1}, 12.0, mfu=12.0),
        failed(1, {"tp": 2, "pp": 2}, FailureClass.OOM, "rank 0: CUDA out of memory\n" + "z" * 2000),
    ]
    with stage(policy(GOOD)) as it:
        it.proposer.propose(context(happened, objective=maximised(), iteration=2))
        sent = it.api.bodies[0]
        assert it.api.paths == ["/v1/messages"]
    assert sent["model"] == "claude-opus-5-5"
    assert sent["max_tokens"] == 16_000
    assert {"temperature", "top_p", "top_k", "thinking", "stream"}.isdisjoint(sent)
    (tool,) = sent["tools"]
    assert tool["name"] == "submit_policy"
    assert tool["strict"] is True
    schema = tool["input_schema"]
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"]) == {"code", "rationale"}
    assert all(set(field) <= {"type", "description"} for field in schema["properties"].values())
    text = "\n".join(block["text"] for block in sent["messages"][0]["content"])
    assert '"config": {"pp": 2, "tp": 2}' in text
    assert "z" * 2000 in text
    assert "score = mfu." in text
    assert "trial 0, score 12" in text
    assert it.ledger.requests[0].prompt_hash
    assert KEY not in json.dumps(sent) + it.ledger.everything()


@pytest.mark.parametrize(
    ("model", "choice", "thinking"),
    [
        ("claude-opus-5-5", AUTO, None),
        ("claude-sonnet-5-5", AUTO, None),
        ("claude-haiku-5-5", AUTO, None),
        ("claude-fable-5-2", AUTO, None),
        ("claude-mythos-5-1", AUTO, None),
        ("claude-unheard-of-7", AUTO, None),
        ("claude-opus-5-7", AUTO, None),
        ("claude-opus-4-6", FORCED, None),
        ("claude-opus-4-8", FORCED, None),
        ("claude-opus-5", FORCED, {"type": "disabled"}),
        ("claude-sonnet-5", FORCED, {"type": "disabled"}),
        ("claude-sonnet-5-20260801", FORCED, {"type": "disabled"}),
    ],
)
def test_tool_choice_is_what_the_model_can_do(model: str, choice: dict[str, Any], thinking: Any) -> None:
    with stage(policy(GOOD), model=model) as it:
        it.proposer.propose(context())
        sent = it.api.bodies[0]
    assert sent["tool_choice"] == choice
    assert sent.get("thinking") == thinking


def test_highest_effort_does_not_switch_thinking_off() -> None:
    with stage(policy(GOOD), model="claude-opus-5", effort="max") as it:
        it.proposer.propose(context())
        sent = it.api.bodies[0]
    assert (sent["tool_choice"], sent["output_config"]) == (AUTO, {"effort": "max"})
    assert "thinking" not in sent


def test_forcing_can_be_declined() -> None:
    with stage(policy(GOOD), model=OLD, force_tool=False) as it:
        it.proposer.propose(context())
        assert it.api.bodies[0]["tool_choice"] == AUTO


class TestRepair:
    def test_the_exact_error_goes_back_as_a_tool_result(self) -> None:
        first = policy(BROKEN, tool_id="toolu_9", thinking=True)
        with stage(first, policy(GOOD), check=wrong_tp) as it:
            proposal = it.proposer.propose(context())
            before, after = it.api.bodies
        assert proposal.source == GOOD
        assert proposal.llm_calls == (1, 2)
        assert it.purposes == [(0, "propose"), (1, "repair")]
        assert after["messages"][0] == before["messages"][0]
        assert first.body is not None
        assert after["messages"][1] == {"role": "assistant", "content": first.body["content"]}
        (result,) = after["messages"][2]["content"]
        assert (result["type"], result["tool_use_id"], result["is_error"]) == ("tool_result", "toolu_9", True)
        assert "choice_tp: tp=3 (int) is none of 1, 2, 4" in result["content"]

    def test_two_repairs_and_no_more(self) -> None:
        with stage(policy(BROKEN), policy(BROKEN), policy(BROKEN), policy(GOOD), check=wrong_tp) as it:
            with pytest.raises(ProposalFailedError, match="tp=3") as caught:
                it.proposer.propose(context())
            assert len(it.api.bodies) == 3
            assert len(it.api.bodies[2]["messages"]) == 5
        assert isinstance(caught.value, NoPolicyError)
        assert caught.value.source == BROKEN
        assert caught.value.llm_calls == (1, 2, 3)

    @pytest.mark.parametrize(
        ("code", "complaint"),
        [
            ("def generate_config(workload, environment:\n", "syntax: line 1"),
            ("x = 1\n", "defines no function generate_config"),
            ("", "`code` is missing or empty"),
            ("# " + "y" * 70_000, "at most 65536"),
            ("a = '\0'", "syntax"),
        ],
    )
    def test_a_source_that_cannot_be_run_never_reaches_the_check(self, code: str, complaint: str) -> None:
        checked: list[str] = []

        def check(source: str) -> None:
            checked.append(source)

        with stage(policy(code), policy(GOOD), check=check) as it:
            it.proposer.propose(context())
            assert complaint in it.api.bodies[1]["messages"][2]["content"][0]["content"]
        assert checked == [GOOD]

    def test_every_tool_call_gets_its_result(self) -> None:
        uses = [
            {
                "type": "tool_use",
                "id": f"toolu_{n}",
                "name": "submit_policy",
                "input": {"code": BROKEN, "rationale": ""},
            }
            for n in range(2)
        ]
        with stage(message(uses, "tool_use"), policy(GOOD), check=wrong_tp) as it:
            it.proposer.propose(context())
            results = it.api.bodies[1]["messages"][2]["content"]
        assert [result["tool_use_id"] for result in results] == ["toolu_0", "toolu_1"]

    def test_a_tool_that_does_not_exist_is_named(self) -> None:
        use = {"type": "tool_use", "id": "toolu_x", "name": "submit_config", "input": {}}
        with stage(message([use], "tool_use"), policy(GOOD)) as it:
            it.proposer.propose(context())
            assert "no tool 'submit_config'" in it.api.bodies[1]["messages"][2]["content"][0]["content"]


class TestForcedTool:
    def test_a_model_that_does_not_take_it_is_asked_without_and_that_is_remembered(self) -> None:
        with stage(error(400, "invalid_request_error"), policy(GOOD), policy(GOOD), model=OLD) as it:
            it.proposer.propose(context())
            it.proposer.propose(context(iteration=2))
            assert [body["tool_choice"] for body in it.api.bodies] == [FORCED, AUTO, AUTO]
        assert it.purposes == [(0, "propose+forced"), (0, "propose"), (0, "propose")]

    def test_a_request_that_is_wrong_otherwise_is_not_sent_a_third_time(self) -> None:
        wrong = error(400, "invalid_request_error", "messages: too strange")
        with stage(wrong, wrong, model=OLD) as it:
            with pytest.raises(LlmRequestError, match="too strange"):
                it.proposer.propose(context())
            assert len(it.api.bodies) == 2


class TestStopReasons:
    def test_a_refusal_is_recorded_and_the_next_model_asked(self) -> None:
        with stage(refusal(), policy(GOOD), fallback_models=["claude-sonnet-5-5"]) as it:
            proposal = it.proposer.propose(context())
            assert [body["model"] for body in it.api.bodies] == ["claude-opus-5-5", "claude-sonnet-5-5"]
        assert proposal.llm_calls == (1, 2)
        assert it.ledger.outcomes[1].stop_category == "frontier_llm"
        assert it.ledger.requests[1].model == "claude-sonnet-5-5"

    def test_when_every_model_refuses_the_reason_is_told_and_nobody_asked_twice(self) -> None:
        with stage(refusal(), refusal("cyber", "No."), fallback_models=["claude-sonnet-5-5"]) as it:
            with pytest.raises(ProposalFailedError, match=r"claude-sonnet-5-5 refused.*cyber: No\."):
                it.proposer.propose(context())
            assert len(it.api.bodies) == 2

    def test_a_fallback_in_the_middle_starts_anew_with_the_rejected_policy(self) -> None:
        script = (policy(BROKEN, thinking=True), refusal(), policy(GOOD))
        with stage(*script, check=wrong_tp, fallback_models=["claude-sonnet-5-5"]) as it:
            it.proposer.propose(context())
            last = it.api.bodies[2]
        assert "signature" not in json.dumps(last)
        assert {turn["role"] for turn in last["messages"]} == {"user"}
        assert "tp=3 (int) is none of" in last["messages"][1]["content"][0]["text"]
        assert BROKEN in last["messages"][1]["content"][0]["text"]

    def test_an_answer_cut_off_is_discarded_and_asked_for_with_twice_the_room(self) -> None:
        cut = message([{"type": "tool_use", "id": "t", "name": "submit_policy", "input": {}}], "max_tokens")
        with stage(cut, policy(GOOD)) as it:
            it.proposer.propose(context())
            assert [body["max_tokens"] for body in it.api.bodies] == [16_000, 32_000]
            assert it.api.bodies[0]["messages"] == it.api.bodies[1]["messages"]
        assert it.ledger.outcomes[1].stop_reason == "max_tokens"
        assert it.ledger.outcomes[1].cost_usd is not None

    def test_cut_off_twice_fails(self) -> None:
        cut = message([], "max_tokens")
        with stage(cut, cut) as it, pytest.raises(ProposalFailedError, match="cut off at 32000"):
            it.proposer.propose(context())

    def test_a_model_with_no_more_room_is_not_asked_again(self) -> None:
        with stage(message([], "max_tokens"), model="claude-unheard-of-7", max_tokens=64_000) as it:
            with pytest.raises(ProposalFailedError, match="cut off at 32000"):
                it.proposer.propose(context())
            assert len(it.api.bodies) == 1

    def test_prose_is_answered_with_a_reminder(self) -> None:
        with stage(prose(), policy(GOOD)) as it:
            it.proposer.propose(context())
            again = it.api.bodies[1]["messages"]
        assert [turn["role"] for turn in again] == ["user", "assistant", "user"]
        assert "submit_policy" in again[2]["content"][0]["text"]
        assert it.purposes == [(0, "propose"), (1, "reprompt")]

    def test_prose_twice_is_answered_with_structured_output(self) -> None:
        structured = prose(json.dumps({"code": GOOD, "rationale": "as text"}))
        with stage(prose(), prose(), structured) as it:
            proposal = it.proposer.propose(context())
            asked = it.api.bodies[2]
        assert (proposal.source, proposal.rationale) == (GOOD, "as text")
        assert asked["output_config"]["format"]["type"] == "json_schema"
        assert asked["output_config"]["format"]["schema"]["additionalProperties"] is False
        assert "tools" not in asked
        assert "tool_choice" not in asked
        assert it.purposes[2] == (2, "propose+json")

    def test_structured_output_is_repaired_like_a_tool_call(self) -> None:
        wrong, right = (prose(json.dumps({"code": code, "rationale": ""})) for code in (BROKEN, GOOD))
        with stage(prose(), prose(), wrong, right, check=wrong_tp) as it:
            assert it.proposer.propose(context()).source == GOOD
            assert "tp=3 (int)" in it.api.bodies[3]["messages"][2]["content"][0]["text"]

    def test_nothing_but_prose_fails(self) -> None:
        with stage(*[prose()] * 5) as it, pytest.raises(ProposalFailedError, match="no JSON object"):
            it.proposer.propose(context())
        assert len(it.ledger.requests) == 3

    @pytest.mark.parametrize("stop", ["stop_sequence", "something_new"])
    def test_other_reasons_count_as_an_end(self, stop: str) -> None:
        with stage(prose(stop_reason=stop), policy(GOOD)) as it:
            assert it.proposer.propose(context()).source == GOOD
        assert it.ledger.outcomes[1].stop_reason == stop

    def test_a_tool_call_under_an_unknown_reason_is_still_a_tool_call(self) -> None:
        use = {"type": "tool_use", "id": "t", "name": "submit_policy", "input": {"code": GOOD, "rationale": "r"}}
        with stage(message([use], "something_new")) as it:
            assert it.proposer.propose(context()).source == GOOD

    def test_a_pause_is_resumed_once(self) -> None:
        pause = message([{"type": "text", "text": "thinking about it"}], "pause_turn")
        with stage(pause, policy(GOOD)) as it:
            it.proposer.propose(context())
            assert it.api.bodies[1]["messages"][-1]["role"] == "assistant"
        with stage(pause, pause) as it, pytest.raises(ProposalFailedError, match="paused twice"):
            it.proposer.propose(context())

    def test_a_full_context_window_makes_the_history_compact_and_that_is_remembered(self) -> None:
        happened = [failed(n, {"tp": n, "pp": 1}, FailureClass.OOM, "e" * 5000) for n in range(20)]
        full = message([], "model_context_window_exceeded")
        with stage(full, policy(GOOD), policy(GOOD)) as it:
            it.proposer.propose(context(happened))
            it.proposer.propose(context(happened, iteration=2))
            sizes = [len(json.dumps(body)) for body in it.api.bodies]
        assert sizes[0] > 1.5 * sizes[1]
        assert abs(sizes[2] - sizes[1]) < 50
        assert it.purposes == [(0, "propose"), (0, "propose+compact1"), (0, "propose+compact1")]

    def test_a_request_too_large_makes_the_history_compact(self) -> None:
        with stage(error(413, "request_too_large"), policy(GOOD)) as it:
            it.proposer.propose(context())
        assert it.purposes[1] == (0, "propose+compact1")

    def test_a_very_long_request_refused_with_400_is_made_compact(self) -> None:
        happened = [failed(n, {"tp": n, "pp": 1}, FailureClass.OOM, "e" * 8000) for n in range(80)]
        with stage(error(400, "invalid_request_error", "prompt is too long"), policy(GOOD)) as it:
            it.proposer.propose(context(happened))
        assert it.purposes[1] == (0, "propose+compact1")

    def test_a_history_that_never_fits_fails(self) -> None:
        full = message([], "model_context_window_exceeded")
        with stage(full, full, full) as it, pytest.raises(ProposalFailedError, match="does not fit"):
            it.proposer.propose(context())


def test_a_model_that_never_ends_is_stopped() -> None:
    with MessagesApi(default=policy(BROKEN)) as api:
        it = Stage(api, check=wrong_tp)
        with pytest.raises(ProposalFailedError):
            it.proposer.propose(context())
        assert len(api.bodies) == 3


def test_each_proposal_of_an_iteration_has_turns_of_its_own() -> None:
    refused = failed(1, {"tp": 4, "pp": 2}, FailureClass.INVALID_CONFIG, "fits")
    with stage(policy(BROKEN), policy(GOOD), policy(GOOD), check=wrong_tp) as it:
        it.proposer.propose(context([succeeded(0, {"tp": 1, "pp": 1}, -1.0)]))
        it.proposer.propose(context([succeeded(0, {"tp": 1, "pp": 1}, -1.0), refused], refusals=1))
    assert it.purposes == [(0, "propose"), (1, "repair"), (16, "propose")]


def test_a_bad_key_ends_the_search_and_not_the_iteration() -> None:
    with stage(error(401, "authentication_error")) as it, pytest.raises(LlmCredentialsError):
        it.proposer.propose(context())


def test_a_spent_budget_ends_the_search_in_good_order() -> None:
    with stage(policy(GOOD), budget=DollarBudget(Decimal("0.01"))) as it:
        with pytest.raises(ProposerExhaustedError, match="LLM budget"):
            it.proposer.propose(context())
        assert it.api.bodies == []


class TestReplay:
    def recorded(self) -> MemoryLedger:
        script: list[Script] = [
            error(400, "invalid_request_error"),
            overloaded(),
            policy(BROKEN, thinking=True),
            policy(GOOD, "mended"),
            refusal(),
            policy(GOOD, "from the fallback"),
        ]
        with stage(*script, model=OLD, check=wrong_tp, fallback_models=["claude-sonnet-5-5"]) as it:
            assert it.proposer.propose(context()).rationale == "mended"
            assert it.proposer.propose(context(iteration=2)).rationale == "from the fallback"
        return it.ledger

    def replaying(self, ledger: MemoryLedger, **more: Any) -> ClaudeProposer:
        values = {"model": OLD, "check": wrong_tp, "fallback_models": ["claude-sonnet-5-5"]}
        return ClaudeProposer(ledger, **(values | {"client": ReplayClient(ledger, "run-1")} | more))

    def test_a_stored_run_takes_the_same_way_without_a_server(self) -> None:
        ledger = self.recorded()
        rows = len(ledger.requests)
        proposer = self.replaying(ledger)
        first = proposer.propose(context(run_id="run-2"))
        assert (first.source, first.rationale) == (GOOD, "mended")
        assert proposer.propose(context(run_id="run-2", iteration=2)).rationale == "from the fallback"
        again = self.replaying(ledger, client=ReplayClient(ledger)).propose(context(run_id="run-2"))
        assert again == first
        copies = range(rows + 1, 2 * rows + 1)
        assert len(ledger.requests) == copies[-1]
        assert {ledger.requests[call - 1].run_id for call in first.llm_calls} == {"run-2"}
        assert {ledger.outcomes[copy].cost_usd for copy in copies} == {Decimal(0)}
        assert [ledger.outcomes[copy].response for copy in copies] == [
            ledger.outcomes[row].response for row in range(1, rows + 1)
        ]

    def test_replaying_a_run_into_itself_writes_nothing(self) -> None:
        ledger = self.recorded()
        rows = len(ledger.requests)
        assert self.replaying(ledger).propose(context()).llm_calls == (2, 3)
        assert len(ledger.requests) == rows

    def test_a_later_iteration_can_be_replayed_by_itself_or_after_a_resume(self) -> None:
        ledger = self.recorded()
        proposer = self.replaying(ledger)
        proposer.never_force(OLD)
        assert proposer.propose(context(iteration=2)).rationale == "from the fallback"

    def test_another_request_is_shown_as_a_diff(self) -> None:
        changed = context(environment={"gpu_model": "nvidia_h100", "total_gpus": 4, "gpu_memory_gb": 40.0})
        with pytest.raises(ReplayError) as caught:
            self.replaying(self.recorded()).propose(changed)
        shown = caught.value.message.splitlines()
        assert any(line.startswith("-") and "nvidia_a100_40gb" in line for line in shown)
        assert any(line.startswith("+") and "nvidia_h100" in line for line in shown)
        assert len(shown) < 20
        assert caught.value.exit_code == 5

    def test_what_was_not_recorded_is_not_asked_for(self) -> None:
        with pytest.raises(ReplayError, match="iteration 3, turn 0"):
            self.replaying(self.recorded()).propose(context(iteration=3))

    def test_a_stored_failure_fails_again(self) -> None:
        with stage(error(401, "authentication_error", "invalid")) as it, pytest.raises(LlmCredentialsError):
            it.proposer.propose(context())
        with pytest.raises(LlmCredentialsError, match="invalid"):
            ClaudeProposer(it.ledger, client=ReplayClient(it.ledger)).propose(context())

    def test_a_call_that_never_ended_is_not_served(self) -> None:
        ledger = self.recorded()
        del ledger.outcomes[2]
        with pytest.raises(ReplayError, match="never ended"):
            self.replaying(ledger).propose(context())


def test_a_script_can_answer_from_the_request() -> None:
    def echo(body: dict[str, Any]) -> Reply:
        return policy(GOOD, f"{len(body['messages'])} messages")

    with stage(echo) as it:
        assert it.proposer.propose(context()).rationale == "1 messages"


def test_a_stop_during_a_wait_ends_the_search_in_good_order() -> None:
    ledger, cancelled = MemoryLedger(), threading.Event()
    with MessagesApi([overloaded()]) as api:
        retries = RetryPolicy(cancelled=cancelled)
        client = AnthropicClient(
            ledger, options=ClientOptions(api.url, KEY), retries=retries, on_wait=lambda _: cancelled.set()
        )
        with pytest.raises(ProposerExhaustedError, match="stopped"):
            ClaudeProposer(ledger, client=client).propose(context())
        client.close()
