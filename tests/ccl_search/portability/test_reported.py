"""The report on a policy reaches the proposer: `claude` over a scripted Messages API, `guided` by what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ccl_search.cli import Cli
from tests.ccl_search.llm.messages_api import KEY, MessagesApi, policy
from tests.ccl_search.publishing import made

pytestmark = pytest.mark.slow

FRAIL = """def generate_config(workload, environment):
    config = {knob["key"]: knob["choices"][0] for knob in workload["config_space"]}
    config.update(tp=%d, dp=2, dp_shard=2, micro_batch_size=1, zero_stage=3)
    config.update(activation_checkpointing="full", compile=environment["gpu_memory_gb"] > 60)
    return config
"""


def texts(body: dict[str, Any]) -> list[str]:
    """The text blocks of the first message: facts, blocks of trials, task."""
    return [block["text"] for block in body["messages"][0]["content"]]


def trials(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for text in texts(body)[1:-1] for line in text.splitlines()[1:]]


@pytest.mark.parametrize("portable", [(), ("--portable",)])
def test_every_trial_of_a_claude_search_carries_the_report_on_its_policy(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, portable: tuple[str, ...]
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    arguments = ("--card", str(made.small_card(tmp_path / "card.yaml")), "--iterations", "3", *portable, "--json")
    with MessagesApi([policy(FRAIL % tp) for tp in (1, 2, 4)]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        first = cli("run", *arguments)

    assert first.code == 0
    seen = trials(api.bodies[-1])
    assert len(seen) == 3
    assert all(trial["elsewhere"].startswith("valid in ") for trial in seen)
    assert "raises on gpu_memory_gb unset: raised: KeyError" in seen[1]["elsewhere"]
    assert "predicted loss" in seen[1]["elsewhere"]
    assert 0 < seen[1]["metrics"]["portability"] < 1
    assert "`elsewhere`" in api.bodies[0]["system"][0]["text"]
    scored = "portability" in texts(api.bodies[0])[0]
    assert scored == bool(portable)
    for before, after in zip(api.bodies, api.bodies[1:], strict=False):
        old, new = texts(before), texts(after)
        assert before["system"] == after["system"]
        assert old[0] == new[0]
        assert "".join(new[1:-1]).startswith("".join(old[1:-1]))

    again = cli("run", *arguments, "--proposer", "claude", "--replay-llm", "latest")
    assert again.code == 0
    assert again.document["best"]["score"] == first.document["best"]["score"]


def test_a_resumed_search_tells_the_same(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the store gives back is what the search had in memory: the prompt's prefix stays the same."""
    from ccl_search import assembly
    from ccl_search.loop.recorder import view_of
    from ccl_search.portability.spec import told

    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    card = str(made.small_card(tmp_path / "card.yaml"))
    with MessagesApi([policy(FRAIL % 1), policy(FRAIL % 2)]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        run = cli("run", "--card", card, "--iterations", "2", "--json").document["run_id"]

    sent = trials(api.bodies[-1])
    with assembly.open_store(str(cli.home), write=False) as store:
        stored = store.trials(run)
        assert [view_of(trial).portability for trial in stored][:2] == [trial["elsewhere"] for trial in sent]
        assert all(told(trial.metrics) for trial in stored)
