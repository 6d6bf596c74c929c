"""The LLM path from end to end: the real command line and SDK against a scripted Messages API on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ccl_search.cli import Cli, Result
from tests.ccl_search.llm.messages_api import KEY, MessagesApi, overloaded, policy, refusal

GOOD = """def generate_config(workload, environment):
    config = {knob["key"]: knob["choices"][0] for knob in workload["config_space"]}
    config.update(tp=%d, cp=1, pp=1, dp=4, dp_shard=4, zero_stage=3, micro_batch_size=1)
    config.update(pipeline_schedule="1f1b", activation_checkpointing="full", compile=%s)
    return config
"""
BAD = "def generate_config(workload, environment):\n    return {'tp': 1 / 0}\n"


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return monkeypatch


def run(cli: Cli, api: MessagesApi, monkeypatch: pytest.MonkeyPatch, iterations: int, *more: str) -> Result:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
    return cli("run", "--iterations", str(iterations), "--json", *more)


def test_a_search_with_a_repair_a_duplicate_and_a_refusal(cli: Cli, with_key: pytest.MonkeyPatch) -> None:
    script = [
        policy(GOOD % (2, "True")),
        policy(BAD),
        policy(GOOD % (1, "False")),
        policy(GOOD % (2, "True")),
        policy(GOOD % (1, "True")),
        refusal(),
    ]
    with MessagesApi(script) as api:
        result = run(cli, api, with_key, 4)

    assert result.code == 0
    assert result.err.splitlines()[0].startswith("proposer claude (ANTHROPIC_API_KEY is set)")
    rows = cli("show", "latest", "--json").document["trial_rows"]
    states = [(row["state"], row["failure"]) for row in rows]
    assert states == [
        ("succeeded", None),
        ("succeeded", None),
        ("succeeded", None),
        ("pruned", "duplicate"),
        ("succeeded", None),
        ("failed", "proposal_failed"),
    ]
    repair = json.dumps(api.bodies[2])
    assert "ZeroDivisionError" in repair
    last = json.dumps(api.bodies[-1])
    for row in rows[:4]:
        assert json.dumps(row["config"], sort_keys=True)[1:-1] in last.replace('\\"', '"')
    assert "duplicate" in last


def test_the_cost_is_recorded_and_no_key_is(cli: Cli, with_key: pytest.MonkeyPatch) -> None:
    with MessagesApi([policy(GOOD % (2, "True"))]) as api:
        result = run(cli, api, with_key, 1)

    assert result.document["cost_usd"] > 0
    trial = cli("show", "latest", "--trial", "1", "--json").document
    assert trial["llm_calls"][0]["output_tokens"] == 340
    for path in cli.home.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in result.out + result.err + json.dumps(api.bodies)


def test_a_gateway_that_miscounts_tokens_ends_no_search(cli: Cli, with_key: pytest.MonkeyPatch) -> None:
    answer = policy(GOOD % (2, "True"))
    counted = {"input_tokens": 10**30, "output_tokens": "many"}
    with MessagesApi([replace(answer, body={**(answer.body or {}), "usage": counted})]) as api:
        result = run(cli, api, with_key, 1)

    assert (result.code, result.document["status"], result.document["trials"]) == (0, "finished", 2)
    assert result.document["cost_usd"] is None


def test_a_stored_search_replays_without_key_or_network(cli: Cli, with_key: pytest.MonkeyPatch) -> None:
    with MessagesApi([policy(GOOD % (2, "True")), policy(GOOD % (1, "True"))]) as api:
        first = run(cli, api, with_key, 2).document
    with_key.delenv("ANTHROPIC_API_KEY")
    with_key.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")

    again = cli("run", "--iterations", "2", "--proposer", "claude", "--replay-llm", "latest", "--json")

    assert again.code == 0
    rows = [
        cli("show", run_id, "--json").document["trial_rows"] for run_id in (first["run_id"], again.document["run_id"])
    ]
    assert [row["config"] for row in rows[0]] == [row["config"] for row in rows[1]]


def test_without_a_key_the_claude_proposer_says_what_to_do(cli: Cli) -> None:
    result = cli("run", "--proposer", "claude", "--iterations", "1")

    assert result.code != 0
    assert "ANTHROPIC_API_KEY" in result.err
    assert cli("list", "--json").document == []


def test_a_spent_dollar_budget_ends_the_search_in_good_order(cli: Cli, with_key: pytest.MonkeyPatch) -> None:
    with MessagesApi([policy(GOOD % (2, "True"))]) as api:
        result = run(cli, api, with_key, 5, "--max-cost", "0.0001")

    assert result.code == 0
    assert "LLM budget" in result.document["stop_reason"]
    assert api.bodies == []


def test_overload_is_waited_for(cli: Cli, with_key: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with MessagesApi([overloaded(), policy(GOOD % (2, "True"))]) as api:
        result = run(cli, api, with_key, 1)

    assert result.code == 0
    assert "LLM attempt 1" in result.err
    assert len(api.bodies) == 2
