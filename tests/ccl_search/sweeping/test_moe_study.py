"""The study as the user meets it: the verb, the page, and the search of its space."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ccl_search.sweeping.moe import experiment, findings, matrix, page, tables, timing
from ccl_search.sweeping.moe.definitions import published, study
from ccl_search.sweeping.moe.findings import number
from ccl_search.sweeping.moe.matrix import Matrix
from ccl_search.sweeping.moe.timing import Question
from runs.errors import BadInputError
from tests.ccl_search.cli import Cli
from tests.ccl_search.sweeping.small import results

PAGE = Path(__file__).parents[3] / "docs" / "moe_study.md"


def rows_under(title: str) -> list[list[str]]:
    """The cells of the table under a title of the page, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    part = text.partition(f"### {title}\n")[2].partition("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("model", "topology"), [("flash", 1), ("kimi-k3", 2), ("glm", 6)])
def test_the_page_has_the_times_that_are_computed_now(model: str, topology: int) -> None:
    title = "Topology x partition, seconds (ring_direct, RoCE HPCC)"
    shown = next(row for row in rows_under(title) if row[:2] == [model, str(topology)])

    cells = [matrix.cell(topology, tp, ep, "roce-hpcc", model, "ring_direct") for tp, ep in study().partitions]

    # the page is generated: python -m benchmarks.moe_study --write docs/moe_study.md
    assert shown[2:6] == [number(cell.time_s) for cell in cells]


def test_the_page_has_every_finding_and_every_figure() -> None:
    texts = [row[1] for row in rows_under("Findings")]
    figures = {(row[0], row[1]) for row in rows_under("Published figures")}

    assert texts == [entry["text"] for entry in published()["findings"]]
    assert figures == {(row[0], published()["quantities"][row[1]]) for row in published()["facts"]}


def test_the_page_checks_every_finding_on_every_variant_and_explains_those_that_do_not_hold() -> None:
    rows = rows_under("Findings")
    explained = [row[1] for row in rows_under("Why findings fail or depend")]
    named = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("Variants: "))
    varied = [f"{each['name']} x{factor}" for each in study().data["sensitivity"] for factor in ("0.5", "2")]
    settings = [each["name"] for each in study().data["settings"]]

    assert len(rows) == 20
    assert {row[0] for row in rows} <= {"holds", "fails", "depends"}
    assert explained == [row[1] for row in rows if row[0] != "holds"]
    assert all(row[5] or row[6] for row in rows)  # each with a figure or with what shows it
    assert named == f"Variants: {'; '.join([*varied, *settings, experiment.TREE_NAME, experiment.BF16_NAME])}."


def made_up() -> experiment.Experiment:
    """An experiment of made-up cells."""
    base = results()
    sizes = dict.fromkeys(base.models, 1e9)
    return experiment.Experiment(
        study(), base, Matrix([]), {}, None, findings.check(base, {}), seconds=1.0, cpu_seconds=1.0, parameters=sizes
    )


def test_a_page_keeps_the_text_around_its_tables(tmp_path: Path) -> None:
    found = made_up()
    path = tmp_path / "study.md"
    path.write_text(f"# Mine\n\nbefore\n\n{page.BEGIN}\nthe former table\n{page.END}\n\nafter\n", encoding="utf-8")

    page.write(found, path)
    once = path.read_text(encoding="utf-8")
    page.write(found, path)

    assert path.read_text(encoding="utf-8") == once
    assert once.startswith("# Mine\n\nbefore\n")
    assert once.endswith("after\n")
    assert "the former table" not in once
    assert "| topology 6 |" in once
    bare = tmp_path / "bare.md"
    bare.write_text("nothing here\n", encoding="utf-8")
    with pytest.raises(BadInputError, match="no part to be replaced"):
        page.write(found, bare)


def test_a_terminal_gets_all_that_is_known_of_a_finding_in_one_place() -> None:
    found = made_up()
    told = {row[1].splitlines()[0]: (row[0], row[1].splitlines()[1:]) for row in tables.findings_told(found).rows}
    wide = {f"{row[1]} ({row[2]})": row for row in tables.findings(found).rows}

    assert list(told) == list(wide)
    for head, (verdict, lines) in told.items():
        row = wide[head]
        assert verdict == row[0]
        assert all(text in " ".join(lines) for text in row[3:])
        assert any(line.startswith("why: ") for line in lines) == (verdict in ("fails", "depends"))
    kimi = "For Kimi K3 the tree's penalty is highest at TP8EP4 and lower at TP16EP2 (4.2.7 p. 19)"
    assert told[kimi][0] == "fails"  # in the made-up matrix penalties only grow


def fast(asked: Question) -> float:
    """A network that is quick to ask: topology 6 is the fastest, trees and large groups are slow."""
    what = asked.collective
    tree = 2.0 if "tree" in (what.algorithm or "") else 1.0
    slow = tree * len(what.groups[0]) * (7 - asked.topology) * (2 - (asked.mode == "ib-none"))
    return what.nbytes / 50e9 * slow * asked.repeat


def test_the_verb_runs_a_model_and_keeps_it(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "answer", fast)

    found = cli("sweep", "moe-study", "--models", "flash", "--jobs", "1", "--json", "--out", str(tmp_path / "c.csv"))
    document = found.document
    shown = cli("show", document["runs"]["flash"], "--json").document
    human = cli("best", document["runs"]["flash"])

    assert len(document["cells"]) == 192 == len(shown["trial_rows"])
    verdicts = {each["key"]: each["verdict"] for each in document["findings"]}
    assert (verdicts["low_tp_wins"], verdicts["model_order"]) == ("holds", "not checked")
    best = min(document["cells"], key=lambda cell: cell["time_s"])
    assert (best["topology"], best["algorithm"]) == (6, "ring_direct")
    assert shown["best"]["metrics"]["avg_step_time"] == best["time_s"]
    assert shown["backend"] == "flow/moe-study"
    assert human.code == 0
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 193
    again = cli("sweep", "--resume", document["runs"]["flash"])
    assert again.code == 2
    assert "of the MoE study" in again.err.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--models", "gpt"], "no model 'gpt'"),
        (["--workload", "wl4"], "brings its own"),
        (["--objective", "ttft"], "brings its own"),
        (["--quick"], "brings its own"),
        (["--seed", "3"], "brings its own"),
        (["--mapping", "x-y"], "mapping"),
        (["--plot", "study.gif"], "no ending"),
        (["--out", "nowhere/study.csv"], "no folder nowhere"),
        (["--write", "nowhere/study.md"], "cannot write"),
    ],
)
def test_wrong_questions_about_the_study_get_one_line(cli: Cli, words: list[str], told: str) -> None:
    found = cli("sweep", "moe-study", "--jobs", "1", *words)

    assert found.code == 2
    assert told in found.err.splitlines()[0]


@pytest.mark.parametrize(("proposer", "iterations"), [("guided", 4), ("tpe", 12)])
def test_a_search_finds_the_best_of_the_space_without_enumerating_it(cli: Cli, proposer: str, iterations: int) -> None:
    words = ["--space", "moe-study", "--proposer", proposer, "--iterations", str(iterations), "--json"]
    best = cli("run", "--workload", "moe-prefill-v4-flash", *words).document["best"]["config"]

    # `ccl-search sweep --space moe-study --quick`, all 192 configs: 246.1 ms in each of the four network modes, which
    # one server does not have; the next is topology 1 with the same split and algorithms and ib-none, 267.6 ms
    assert {key: best[key] for key in ("topology", "tp", "ep", "tp_algorithm", "ep_algorithm")} == {
        "topology": 6, "tp": 2, "ep": 16, "tp_algorithm": "ring", "ep_algorithm": "direct",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--mapping", "ep-tp"], "are for `sweep moe-study`"),
        (["--resume", "latest", "--seed", "3"], "goes on with what it was started with"),
        (["--resume", "latest", "--workload", "wl4"], "goes on with what it was started with"),
        (["--plot", "effects.gif"], "no ending"),
    ],
)
def test_options_that_would_change_nothing_are_refused(cli: Cli, words: list[str], told: str) -> None:
    found = cli("sweep", *words)

    assert found.code == 2
    assert told in found.err.splitlines()[0]


def test_numbers_are_written_with_four_digits() -> None:
    assert [number(x) for x in (0.10443, 2.3876, 48.75, 192, 15.0)] == ["0.1044", "2.388", "48.75", "192", "15"]
    assert re.fullmatch(r"\d\.\d{3}", number(1.2345))
