"""Options of `run` that mean nothing, or cannot be: said before a night is spent."""

from __future__ import annotations

import pytest

from tests.ccl_search.cli import Cli

NO_SEARCH = ("--iterations", "0")


@pytest.mark.parametrize(
    ("option", "value"), [("--model", "claude-x"), ("--effort", "high"), ("--prices", "no.yaml"), ("--max-cost", "2")]
)
def test_an_option_of_the_llm_is_named_when_no_llm_is_asked(cli: Cli, option: str, value: str) -> None:
    found = cli("run", *NO_SEARCH, option, value)

    assert found.code == 0
    assert f"warning: {option} has no effect: the proposer guided asks no LLM" in found.err


def test_a_plain_search_warns_of_nothing(cli: Cli) -> None:
    assert "warning" not in cli("run", *NO_SEARCH).err


def test_the_proposer_is_named_in_the_first_line_whatever_else_there_is_to_say(cli: Cli) -> None:
    lines = cli("run", *NO_SEARCH, "--repeats", "2", "--effort", "high").err.splitlines()

    assert lines[0].startswith("proposer guided")
    assert any(line.startswith("warning: repeats of a dry run") for line in lines[1:])


def test_replayed_answers_are_those_of_an_llm(cli: Cli) -> None:
    cli("run", *NO_SEARCH)

    found = cli("run", *NO_SEARCH, "--replay-llm", "latest")
    refused = cli("run", *NO_SEARCH, "--replay-llm", "latest", "--proposer", "tpe")

    assert (found.code, found.err.split(" (")[0]) == (0, "proposer claude")
    assert refused.code == 2
    assert refused.err.startswith("error: --replay-llm with --proposer tpe, which asks no LLM")


@pytest.mark.parametrize("seed", ["99999999999999999999", "-99999999999999999999"])
def test_a_seed_that_cannot_be_stored_is_refused(cli: Cli, seed: str) -> None:
    found = cli("run", *NO_SEARCH, "--seed", seed)

    assert found.code == 2
    assert found.err.startswith(f"error: --seed {seed} is too large")
