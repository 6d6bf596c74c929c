"""`replay --exact`: every config again from the record, LLM searches too, with no network; differences are found."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.ccl_search.cli import Cli
from tests.ccl_search.llm.messages_api import KEY, MessagesApi, policy, refusal
from tests.ccl_search.publishing import made
from tests.ccl_search.test_claude_run import BAD, GOOD


@pytest.mark.parametrize("proposer", ["guided", "random", "tpe"])
def test_a_search_without_an_llm_comes_again(proposer: str, cli: Cli, tmp_path: Path) -> None:
    made.search(cli.home, made.small_card(tmp_path / "card.yaml"), 2, proposer)
    made.published(cli.home, tmp_path / "out")

    document = cli("replay", "--exact", str(tmp_path / "out"), "--json").document

    assert (document["reproduced"], document["trials"]) == (True, len(list((tmp_path / "out/trials").iterdir())))
    assert len(cli("list", "--json").document) == 1


def test_a_composite_takes_its_baselines_again(cli: Cli, tmp_path: Path) -> None:
    card = made.small_card(tmp_path / "card.yaml")
    made.search(cli.home, card, 2, objectives=("step_time", "num_xpus"))
    made.published(cli.home, tmp_path / "out")

    assert cli("replay", "--exact", str(tmp_path / "out"), "--json").document["reproduced"] is True


def test_another_config_is_found_and_named(folder: Path, cli: Cli) -> None:
    made.edit_json(folder, "trials/02/trial.json", lambda d: d["config"].update(compile=not d["config"]["compile"]))

    result = cli("replay", "--exact", str(folder), "--json")

    assert result.code == 1
    assert result.document["reproduced"] is False
    assert result.document["differences"][0].startswith("trials/02/trial.json: config")


@pytest.fixture
def llm_search(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published search by an LLM: a repair, a duplicate, a refusal; after it, neither key nor network."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    script = [
        policy(GOOD % (2, "True")),
        policy(BAD),
        policy(GOOD % (1, "False")),
        policy(GOOD % (2, "True")),
        refusal(),
    ]
    with MessagesApi(script) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        card = str(made.small_card(tmp_path / "card.yaml"))
        assert cli("run", "--card", card, "--iterations", "3", "--seed", "5").code == 0
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    made.published(cli.home, tmp_path / "out")
    return tmp_path / "out"


def test_an_llm_search_comes_again_without_key_or_network(llm_search: Path, cli: Cli) -> None:
    document = cli("replay", "--exact", str(llm_search), "--json").document

    assert (document["reproduced"], document["proposer"], document["llm_calls"]) == (True, "claude", 5)
    assert document["trials"] == len(list((llm_search / "trials").iterdir()))


def test_the_transcript_holds_the_exchange_and_is_imported_with_its_cost(
    llm_search: Path, tmp_path: Path, cli: Cli
) -> None:
    lines = gzip.decompress((llm_search / "transcript.jsonl.gz").read_bytes()).decode().splitlines()
    calls = [json.loads(line) for line in lines]
    assert len(calls) == 5
    assert any("ZeroDivisionError" in json.dumps(call["request"]) for call in calls)
    assert calls[0]["outcome"]["output_tokens"] == 340
    assert KEY not in "".join(lines)
    assert (llm_search / f"prompts/{calls[0]['prompt_hash']}.md").is_file()

    first = cli("show", "latest", "--json").document
    other = ("--home", str(tmp_path / "other"), "--json")
    run = cli("import", str(llm_search), *other).document["runs"][0]["run_id"]
    assert cli("show", run, *other).document["cost_usd"] == first["cost_usd"] > 0
    assert cli("show", run, "--trial", "1", *other).document["llm_calls"][0]["output_tokens"] == 340


def test_a_forged_answer_is_found(llm_search: Path, cli: Cli) -> None:
    path = llm_search / "transcript.jsonl.gz"
    text = gzip.decompress(path.read_bytes()).decode().replace("compile=True", "compile=False", 1)
    path.write_bytes(gzip.compress(text.encode()))

    result = cli("replay", "--exact", str(llm_search))

    assert result.code == 1
    assert "not reproduced" in result.err


def test_without_the_transcript_it_says_so_with_exit_code_5(llm_search: Path, cli: Cli, tmp_path: Path) -> None:
    made.published(cli.home, tmp_path / "silent", transcript=False)

    result = cli("replay", "--exact", str(tmp_path / "silent"))

    assert result.code == 5
    assert "transcript was not published" in result.err
    assert cli("verify", str(tmp_path / "silent")).code == 0
