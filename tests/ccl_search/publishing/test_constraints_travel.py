"""A trial outside the user's constraints is never the best: in no output, and not after publishing or replaying."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ccl_search import assembly
from ccl_search.comparing import compare
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made

pytestmark = pytest.mark.slow

FAST = """def generate_config(workload, environment):
    config = {knob["key"]: knob["choices"][0] for knob in workload["config_space"]}
    config.update(tp=2, cp=2, dp=1, dp_shard=1, micro_batch_size=1, zero_stage=2, activation_checkpointing="none")
    return config
"""
BOUND = "peak_memory_gb <= 8"


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a search whose first trial, small and full, breaks a bound on memory that later ones keep."""
    from ccl_search import targets
    from ccl_search.loop.execution import Executor
    from ccl_search.loop.interrupt import Interrupt
    from ccl_search.problem import ProblemSource
    from ccl_search.settings import SearchSettings

    place = tmp_path_factory.mktemp("bounded")
    (place / "policy.py").write_text(FAST, encoding="utf-8")
    source = ProblemSource(card=made.small_card(place / "card.yaml"), objectives=("step_time", "num_xpus"))
    with assembly.open_store(str(place / "home"), write=True) as store:
        bounds = (BOUND, "tp <= 4")
        settings = SearchSettings(iterations=6, proposer="random", seed=1, constraints=bounds)
        search = assembly.create(source, settings, store, place / "policy.py")
        search.run(Executor(targets.launcher(targets.find("dry-run")), Interrupt()))
    made.published(place / "home", place / "out")
    return place


def trials(bounded: Path, cli: Cli) -> list[dict[str, Any]]:
    rows = cli("show", "latest", "--home", str(bounded / "home"), "--json").document["trial_rows"]
    return [cli("show", "latest", "--trial", str(r["trial"]), "--home", str(bounded / "home"), "--json").document
            for r in rows]  # fmt: skip


def test_no_output_ranks_a_trial_outside_the_bounds(bounded: Path, cli: Cli) -> None:
    home = ("--home", str(bounded / "home"))
    ran = [t for t in trials(bounded, cli) if t["state"] == "succeeded"]
    memory = {t["trial"]: t["metrics"]["peak_memory_gb"]["value"] for t in ran}
    outside = {number for number, value in memory.items() if value > 8}
    inside = set(memory) - outside
    assert 0 in outside
    assert inside

    assert all((t["score"] is None) == (t["trial"] in outside) for t in ran)
    assert cli("best", "latest", *home, "--json").document["trial"] in inside
    assert cli("list", *home, "--json").document[0]["best_trial"] in inside
    shown = cli("show", "latest", *home)
    assert f"{len(outside)} trials ran but break peak_memory_gb <= 8;" in cli("best", "latest", *home).err
    assert "infeasible:" in shown.err
    front = cli("pareto", "latest", *home, "--json").document["runs"][0]
    assert {member["trial"] for member in front["front"]} <= inside
    axes = cli("pareto", "latest", "--x", "avg_step_time", "--y", "mfu", *home, "--json").document["runs"][0]
    assert {member["trial"] for member in axes["front"]} <= inside
    with assembly.open_store(str(bounded / "home"), write=False) as store:
        assert compare(store, ["latest"])["runs"][0]["best"]["trial"] in inside
    rows = cli("export", "latest", "--format", "json", *home).document["trials"]
    assert {row["trial"] for row in rows if row["feasible"] is False} == outside
    assert {row["trial"] for row in rows if row["on_front"]} <= inside
    with sqlite3.connect(bounded / "home" / "ccl-search.sqlite") as database:
        board = {number for (number,) in database.execute("SELECT trial FROM leaderboard ORDER BY avg_step_time")}
    assert board == inside


def test_the_published_page_and_best_keep_the_bounds(bounded: Path, cli: Cli) -> None:
    page = (bounded / "out" / "README.md").read_text(encoding="utf-8")

    assert "| 0 | breaks a constraint |  |" in page
    assert "Best: trial 0" not in page
    assert "| 0 |" not in page.partition("## Front")[2]
    assert cli("verify", str(bounded / "out"), "--json").document["status"] == "verified"


def test_a_score_forged_for_a_trial_outside_the_bounds_is_found(bounded: Path, cli: Cli, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bounded / "out", tmp_path / "copy"))
    for name in ("trials/00/trial.json", "trials/00/metrics.json"):
        made.edit(folder, name, lambda text: text.replace('"score": null', '"score": 1.0', 1))

    found = cli("verify", str(folder), "--json")

    assert found.code == 1
    finding = next(f for f in found.document["findings"] if f["file"] == "trials/00/trial.json")
    assert "`peak_memory_gb <= 8` does not hold" in finding["what"]
    assert (finding["published"], finding["found"]) == (1.0, None)


def test_a_score_taken_from_a_trial_inside_the_bounds_is_found(bounded: Path, cli: Cli, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bounded / "out", tmp_path / "copy"))
    best = cli("best", "latest", "--home", str(bounded / "home"), "--json").document
    name = f"trials/{best['trial']:02d}"
    for file in ("trial.json", "metrics.json"):
        old = json.loads((folder / name / file).read_text(encoding="utf-8"))["score"]
        made.edit(folder, f"{name}/{file}", lambda text, old=old: text.replace(f'"score": {old}', '"score": null', 1))  # type: ignore[misc]

    found = cli("verify", str(folder), "--json")

    assert found.code == 1
    assert any(f["file"] == f"{name}/trial.json" and f["published"] is None for f in found.document["findings"])


def test_a_replay_keeps_the_published_bounds(bounded: Path, cli: Cli) -> None:
    document = cli("replay", str(bounded / "out"), "--environment", "h100-8", "--refine", "2", "--json").document

    run = document["run_id"]
    rows = cli("show", run, "--json").document["trial_rows"]
    ran = [cli("show", run, "--trial", str(row["trial"]), "--json").document for row in rows]
    for trial in (t for t in ran if t["state"] == "succeeded"):
        assert (trial["score"] is None) == (trial["metrics"]["peak_memory_gb"]["value"] > 8)
        assert trial["config"]["tp"] <= 4
    assert "constraints that held here: `peak_memory_gb <= 8`, `tp <= 4`" in document["notes"]
    assert all(arm["infeasible"] for arm in document["arms"] if arm["score"] is None)


def test_a_replay_takes_other_bounds_when_told(bounded: Path, cli: Cli) -> None:
    told = ("--constraint", "peak_memory_gb <= 0.001")
    document = cli("replay", str(bounded / "out"), "--environment", "h100-8", *told, "--json").document

    assert document["best_found"] is None
    assert document["transfers"] is False
    policy = next(arm for arm in document["arms"] if arm["arm"] == "policy")
    assert "`peak_memory_gb <= 0.001` does not hold" in policy["infeasible"]
    assert "no result there" in document["verdict"]


def test_bounds_on_knobs_another_framework_lacks_are_named(bounded: Path, cli: Cli, tmp_path: Path) -> None:
    card = str(made.small_card(tmp_path / "card.yaml"))
    cli("run", "--card", card, "--iterations", "0", "--constraint", "dp_shard >= 1", "--constraint", "pp <= 2")

    document = cli("replay", "latest", "--framework", "megatron-lm", "--json").document

    assert "the published constraint `dp_shard >= 1` means nothing there" in document["notes"]
    assert "constraints that held here: `pp <= 2`" in document["notes"]
