"""What a published folder holds, and that the same run gives the same bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from ccl_search import assembly
from ccl_search.publishing import writing
from ccl_search.publishing.verifying import verify
from policies.factory import create_runner
from policies.reading import open_published, read_published
from runs import entry
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made


def test_the_same_run_gives_the_same_bytes_from_any_place(home: Path, original: Path, tmp_path: Path) -> None:
    made.published(home, tmp_path / "elsewhere" / "another")

    assert made.tree(tmp_path / "elsewhere" / "another") == made.tree(original)


def test_the_manifest_says_everything_and_lists_every_file(home: Path, original: Path) -> None:
    manifest = yaml.safe_load((original / "manifest.yaml").read_text())
    with assembly.open_store(str(home), write=False) as store:
        run = store.run("latest")
        best = store.best(run.id)

    assert best is not None
    assert (manifest["schema"], manifest["schema_version"]) == ("ccl-search/published", 1)
    assert manifest["run"]["id"] == run.id
    assert manifest["best"]["config"] == best.config
    assert manifest["best"]["score"] == best.score
    assert manifest["objective"] == run.objective
    assert manifest["space"] == run.space
    assert (manifest["proposer"]["name"], manifest["proposer"]["seed"]) == ("guided", 3)
    assert manifest["framework"] == {"name": "torchtitan", "version": "0.2.2"}
    assert manifest["versions"]["metrics"] == run.tool_versions
    assert manifest["budgets"] == {"iterations": 2}
    assert set(manifest["files"]) == set(made.tree(original)) - {"manifest.yaml"}
    assert str(home) not in (original / "manifest.yaml").read_text()


def test_the_policy_gives_the_published_config(original: Path) -> None:
    published = read_published(original)
    runner = create_runner("monty")
    try:
        inputs = {**published.manifest["workload"], "config_space": published.manifest["space"]["knobs"]}
        assert (
            runner.evaluate(published.policy_source, inputs, published.manifest["environment"]) == published.best_config
        )
    finally:
        runner.close()


def test_every_trial_is_a_complete_benchmark_entry_with_its_own_parallelism(home: Path, original: Path) -> None:
    with assembly.open_store(str(home), write=False) as store:
        trials = store.trials(store.run("latest").id)

    for trial in trials:
        folder = original / f"trials/{trial.number:02d}"
        assert [found for found in entry.check_entry(folder) if found.severity == "error"] == []
        plan = yaml.safe_load((folder / "card.yaml").read_text())["Model-executor"]["model_plan_parallelization"]
        assert trial.config is not None
        assert (plan["tp"], plan["pp"]) == (trial.config["tp"], trial.config["pp"])
        told = json.loads((folder / "metrics.json").read_text())
        assert told["score"] == trial.score
        assert {k: v["value"] for k, v in told["metrics"].items() if v["value"] is not None} == trial.values
        assert (folder / "policy.py").read_text() == trial.policy_source


def test_a_refused_trial_is_published_with_its_reason(tmp_path: Path) -> None:
    policy = tmp_path / "policy.py"
    policy.write_text("def generate_config(workload, environment):\n    return {'warp': 9}\n")
    card = made.small_card(tmp_path / "card.yaml")
    with assembly.open_store(str(tmp_path / "home"), write=True) as store:
        from ccl_search import targets
        from ccl_search.loop.execution import Executor
        from ccl_search.loop.interrupt import Interrupt
        from ccl_search.problem import ProblemSource
        from ccl_search.settings import SearchSettings

        search = assembly.create(ProblemSource(card=card), SearchSettings(iterations=1, proposer="grid"), store, policy)
        search.run(Executor(targets.launcher(targets.find("dry-run")), Interrupt()))
    made.published(tmp_path / "home", tmp_path / "out")

    told = json.loads((tmp_path / "out/trials/00/trial.json").read_text())
    assert (told["state"], told["failure"], told["score"]) == ("pruned", "invalid_config", None)
    assert "warp" in told["evidence"]
    assert not (tmp_path / "out/trials/00/metrics.json").exists()


def test_plain_traces_open_in_any_viewer(home: Path, original: Path, tmp_path: Path) -> None:
    made.published(home, tmp_path / "plain", plain_traces=True)

    traces = sorted((tmp_path / "plain").rglob("trace/*"))
    assert [path.suffixes for path in traces] == [[".json", ".gz"]] * len(traces)
    assert all(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] for path in traces)
    folded = sum(path.stat().st_size for path in original.rglob("trace/*"))
    assert folded < 0.2 * sum(path.stat().st_size for path in traces)


def test_the_readme_has_the_curve_and_a_front_for_a_composite(tmp_path: Path) -> None:
    card = made.small_card(tmp_path / "card.yaml")
    made.search(tmp_path / "home", card, 2, "random", objectives=("step_time", "num_xpus"))
    made.published(tmp_path / "home", tmp_path / "out")

    text = (tmp_path / "out/README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert [row.split(" | ")[0].lstrip("| ") for row in rows[:3]] == ["0", "1", "2"]
    points = {}
    for number in range(3):
        metrics = json.loads((tmp_path / f"out/trials/0{number}/metrics.json").read_text())["metrics"]
        points[number] = (metrics["avg_step_time"]["value"], metrics["num_xpus"]["value"])
    front = {n for n, p in points.items() if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points.values())}
    shown = text.partition("## Front")[2].partition("## ")[0]
    assert {
        int(line.split("|")[1]) for line in shown.splitlines() if line.startswith("| ") and "trial" not in line
    } == front
    assert (tmp_path / "out/curve.svg").read_text().count("<circle") == 3


def test_large_traces_are_packed_in_blocks_and_hold(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LARGE_BYTES", 1000)
    made.published(home, tmp_path / "out")
    made.published(home, tmp_path / "hashes", metrics_only=True)

    with open_published(tmp_path / "out") as published:
        assert verify(published).status == "verified"
    assert not list((tmp_path / "hashes").rglob("trace/*"))
    told = [json.loads((tmp_path / f / "trials/01/trial.json").read_text())["traces"] for f in ("out", "hashes")]
    assert [t["sha256"] for t in told[0]] == [t["sha256"] for t in told[1]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("latest", "{tmp}/full"), "exists already"),
        (("nothing", "{tmp}/new"), "there is no run"),
        (("latest", "{tmp}/new", "--perturb"), "--anonymise"),
        (("latest", "{tmp}/new", "--redact-operators"), "--anonymise"),
    ],
)
def test_bad_input_writes_nothing(arguments: tuple[str, ...], says: str, home: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    result = cli("publish", *(argument.format(tmp=tmp_path) for argument in arguments), "--home", str(home))

    assert result.code == 2
    assert says in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_a_lost_trace_is_said_with_exit_code_5(cli: Cli, tmp_path: Path) -> None:
    made.search(cli.home, made.small_card(tmp_path / "card.yaml"), 0)
    for path in cli.home.rglob("trace/*"):
        path.unlink()

    result = cli("publish", "latest", str(tmp_path / "out"))

    assert result.code == 5
    assert "is gone" in result.err
    assert not (tmp_path / "out").exists()
