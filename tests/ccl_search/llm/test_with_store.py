"""The proposer on the real ledger: what a run leaves in its database, and that it can be replayed from there."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from ccl_search.llm import prompts
from ccl_search.llm.client import AnthropicClient, ClientOptions
from ccl_search.llm.errors import LlmRequestError
from ccl_search.llm.replay import ReplayClient
from ccl_search.proposers.claude import ClaudeProposer
from runs.store import NewRun, Store
from runs.trial import FailureClass
from tests.ccl_search.llm.clock import ManualClock
from tests.ccl_search.llm.ledger import GOOD, SPACE, STEP_TIME, context, failed, minimised
from tests.ccl_search.llm.messages_api import KEY, MessagesApi, error, overloaded, policy

LEAKY = f"RuntimeError: 401 with ANTHROPIC_API_KEY={KEY} and Authorization: Bearer {'t' * 40}; curl Bearer {'u' * 40}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "home", write=True) as opened:
        yield opened


def new_run() -> NewRun:
    return NewRun(
        card="version: 1\n",
        workload={"model_family": "llama-3.1-8b"},
        environment={"total_gpus": 4},
        framework="torchtitan",
        space=SPACE,
        objective=minimised(),
        metrics=(STEP_TIME,),
        target="dry-run",
        proposer="claude",
        seed=0,
    )


@pytest.fixture
def run_id(store: Store) -> str:
    return store.create_run(new_run())


def test_a_run_is_stored_without_secrets_and_replayed_from_the_file(store: Store, run_id: str, tmp_path: Path) -> None:
    history = [failed(0, {"tp": 1, "pp": 1}, FailureClass.LAUNCH, LEAKY)]
    rejected = "def generate_config(workload, environment):\n    return {}\n"

    def check(source: str) -> str | None:
        return f"policy_error: {LEAKY}" if source == rejected else None

    with MessagesApi([overloaded(), policy(rejected, thinking=True), policy(GOOD, "mended é")]) as api:
        options = ClientOptions(api.url, KEY)
        client = AnthropicClient(store.ledger, options=options, retries=ManualClock().retries())
        live = ClaudeProposer(store.ledger, check=check, client=client)
        proposal = live.propose(context(history, run_id=run_id))
        live.close()
    calls = store.llm_calls(run_id)
    assert [call.id for call in calls] == list(proposal.llm_calls)
    assert (
        {call.request.prompt_hash for call in calls}
        == {prompts.prompt_hash()}
        == {store.add_prompt(prompts.full_text())}
    )
    # twice 1,200 tokens at $4 and 340 at $20 a million
    assert store.totals(run_id).llm_cost_usd == 2 * Decimal("0.0116")
    replayed = ClaudeProposer(store.ledger, check=check, client=ReplayClient(store.ledger, run_id))
    other = store.create_run(new_run())
    again = replayed.propose(context(history, run_id=other))
    assert (again.source, again.rationale) == (proposal.source, proposal.rationale)
    assert [call.id for call in store.llm_calls(other)] == list(again.llm_calls)
    assert store.totals(other).llm_cost_usd == 0
    stored = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    for secret in (KEY.encode(), b"t" * 40, b"u" * 40):
        assert secret not in stored


def test_an_error_of_the_api_is_stored_and_comes_back_in_a_replay(store: Store, run_id: str) -> None:
    with MessagesApi([error(400, "invalid_request_error", "messages: too strange")]) as api:
        client = AnthropicClient(store.ledger, options=ClientOptions(api.url, KEY))
        proposer = ClaudeProposer(store.ledger, client=client)
        with pytest.raises(LlmRequestError, match="too strange"):
            proposer.propose(context(run_id=run_id))
        proposer.close()
    with pytest.raises(LlmRequestError, match="too strange"):
        ClaudeProposer(store.ledger, client=ReplayClient(store.ledger)).propose(context(run_id=run_id))
    assert store.totals(run_id).known_llm_cost_usd == 0


def test_the_transcript_query_of_the_docs_runs(store: Store, run_id: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "llm.md").read_text(encoding="utf-8")
    query = text.split("```sql\n")[1].split("```")[0]
    with MessagesApi([policy(GOOD)]) as api:
        client = AnthropicClient(store.ledger, options=ClientOptions(api.url, KEY))
        ClaudeProposer(store.ledger, client=client).propose(context(run_id=run_id))
        client.close()
    (row,) = store.query(query.replace("…", run_id))
    assert (row["purpose"], row["stop_reason"], row["cost_usd"]) == ("propose", "tool_use", "0.0116")
