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


def test_prune_names_its_own_option_and_choices(cli: Cli) -> None:
    for keep in ("some", "all"):
        found = cli("store", "prune", "--keep", keep)

        assert found.code == 2
        assert found.err == f"error: --keep {keep}: there is no such choice\nhint:  choose one of best, none\n"


def test_a_front_without_candidates_says_which_metrics_are_wanted(cli: Cli) -> None:
    cli("run", *NO_SEARCH)

    found = cli("pareto", "latest", "--x", "step_time", "--y", "ttft")

    assert found.code == 0
    assert "no candidate: no trial succeeded within the constraints and has avg_step_time and ttft" in found.err


def test_a_plot_in_a_folder_that_is_not_there_says_so(cli: Cli) -> None:
    cli("run", *NO_SEARCH)
    path = str(cli.home / "absent" / "front.svg")

    found = cli("pareto", "latest", "--x", "step_time", "--y", "num_xpus", "--plot", path)

    assert found.code == 2
    assert found.err.startswith(f"error: cannot write the plot {path}: No such file or directory\nhint:  name a folder")
