"""A Pareto search through the command line on the dry run: front, plot, export, scoring again, from one run."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runs.entry import check_entry
from tests.ccl_search.cli import Cli, finish, start

SEARCH = (
    "run", "--objective", "step_time", "--objective", "num_xpus", "--weights", "0.5,0.5", "--pareto", "--repeats", "2",
    "--constraint", "peak_memory_gb <= 39", "--constraint", "tp <= 4", "--iterations", "2", "--json",
)  # fmt: skip


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    home = tmp_path_factory.mktemp("pareto") / "home"
    result = finish(start(home, *SEARCH))
    assert result.code == 0, result.err
    return home, result.document


@pytest.fixture
def there(searched: tuple[Path, dict[str, Any]], cli: Cli) -> Cli:
    cli.home = searched[0]
    return cli


def test_the_search_says_front_constraints_and_what_repeats_are_worth(
    searched: tuple[Path, dict[str, Any]], there: Cli
) -> None:
    summary = searched[1]
    rows = there("show", "latest", "--json").document["trial_rows"]
    launched = [row for row in rows if row["state"] == "succeeded"]

    assert len(launched) == 3
    assert summary["constraints"] == ["peak_memory_gb <= 39", "tp <= 4"]
    assert "identical" in summary["warnings"][0]
    assert all(row["config"]["tp"] <= 4 for row in launched)
    assert summary["infeasible"] == sum(row["score"] is None for row in launched)
    assert set(summary["front"]) <= {row["trial"] for row in launched if row["score"] is not None}
    assert summary["front"]


def test_pareto_prints_front_hypervolume_and_policies(there: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = there("pareto", "latest", "--plot", str(tmp_path / "front.png"), "--json").document
    (run,) = found["runs"]
    text = there("pareto", "latest").err

    assert [axis["metric"] for axis in found["axes"]] == ["avg_step_time", "num_xpus"]
    assert run["reference_point_fixed"] is True
    assert run["hypervolume"] > 0
    assert run["hypervolume_history"][-1]["hypervolume"] == run["hypervolume"]
    assert all(Path(member["policy_path"]).is_file() for member in run["front"])
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    assert f"hypervolume {run['hypervolume']:.6g}" in text
    assert "stored with the run" in text


def test_pareto_over_other_metrics(there: Cli) -> None:
    found = there("pareto", "latest", "--x", "mfu", "--y", "peak_memory_gb", "--json").document

    assert [(axis["metric"], axis["direction"]) for axis in found["axes"]] == [
        ("mfu", "maximize"),
        ("peak_memory_gb", "minimize"),
    ]
    points = [member["values"] for member in found["runs"][0]["front"] + found["runs"][0]["dominated"]]
    best = max(point["mfu"] for point in points)
    assert best in [member["values"]["mfu"] for member in found["runs"][0]["front"]]


def test_a_plot_without_matplotlib_or_with_a_strange_ending_is_refused(
    there: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = there("pareto", "latest", "--plot", str(tmp_path / "front.xyz"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    absent = there("pareto", "latest", "--plot", str(tmp_path / "front.png"))

    assert (strange.code, ".png, .svg or .pdf" in strange.err) == (2, True)
    assert (absent.code, "ccl-search[plot]" in absent.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--x", "mfu"), "--x and --y go together"),
        (("--x", "mfu", "--y", "mfu"), "an axis twice"),
        (("--x", "speed", "--y", "mfu"), "no metric is called 'speed'"),
        (("--reference", "mfu"), "no NAME=VALUE"),
    ],
)
def test_bad_axes_are_refused(arguments: tuple[str, ...], words: str, there: Cli) -> None:
    result = there("pareto", "latest", *arguments)

    assert (result.code, words in result.err) == (2, True), result.err


def test_every_repeat_left_a_trace_and_both_are_recorded(searched: tuple[Path, dict[str, Any]], there: Cli) -> None:
    trial = there("show", "latest", "--trial", "0", "--json").document
    folders = {Path(found["path"]).parent.as_posix() for found in trial["trace_files"]}
    step = trial["metrics"]["avg_step_time"]

    assert {folder.split("trials/0/")[1] for folder in folders} == {"trace", "repeats/1/trace"}
    assert step["detail"]["repeats"] == [step["value"]] * 2
    assert len(trial["attempts"]) == 2


def test_entries_are_complete_benchmark_entries(there: Cli, tmp_path: Path) -> None:
    assert there("export", "latest", "--format", "entries", "--output", str(tmp_path / "entries")).code == 0

    index = json.loads((tmp_path / "entries" / "index.json").read_text(encoding="utf-8"))
    names = [trial["entry"] for trial in index["trials"] if trial["entry"]]
    assert len(names) == 3
    for name in names:
        errors = [found for found in check_entry(tmp_path / "entries" / name) if found.severity == "error"]
        assert errors == []
        assert list((tmp_path / "entries" / name / "repeats" / "1" / "trace").iterdir())


def test_scores_from_traces_equal_the_stored_ones(there: Cli) -> None:
    before = _rows(there)
    arguments = ("--objective", "step_time", "--objective", "num_xpus", "--from-traces", "--metric", "mfu", "--json")
    found = there("rescore", "latest", *arguments).document
    after = _rows(there)

    assert all("mfu" in trial["recomputed"] for trial in found["trials"])
    assert [row["score"] for row in after] == [row["score"] for row in before]
    assert [row["metric_mfu"] for row in after] == [row["metric_mfu"] for row in before]


def test_scoring_by_another_metric_and_back(there: Cli) -> None:
    mfu = there("rescore", "latest", "--objective", "mfu", "--json").document
    shown = there("rescore", "latest", "--objective", "step_time", "--objective", "num_xpus", "--weights", "0.5,0.5")

    assert mfu["objective"]["name"] == "mfu"
    assert [t["score"] for t in mfu["trials"] if not t["reason"]] == [
        t["values"]["mfu"] for t in mfu["trials"] if not t["reason"]
    ]
    assert shown.code == 0
    assert "before: mfu" in shown.err


def test_weights_alone_are_refused(there: Cli) -> None:
    assert there("rescore", "latest", "--weights", "1,2").code == 2


def test_a_pareto_search_needs_two_metrics(cli: Cli) -> None:
    result = cli("run", "--pareto", "--iterations", "0")

    assert (result.code, "2 to 4 metrics, got 1" in result.err) == (2, True)


def test_an_unknown_name_in_a_constraint_ends_before_anything_runs(cli: Cli) -> None:
    result = cli("run", "--constraint", "memory <= 3", "--iterations", "0")

    assert (result.code, "'memory', which is neither a knob nor a metric" in result.err) == (2, True)
    assert cli("list", "--json").document == []


def _rows(cli: Cli) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cli("export", "latest").out)))
