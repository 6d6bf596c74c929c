"""A sweep finds the configs it should, measures them as a search does, and is a run that everything reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from backends.calibration import UNCALIBRATED
from ccl_search import assembly
from ccl_search.sweeping import configs, sweep
from ccl_search.sweeping.recording import Record
from runs.errors import BadInputError
from runs.space import config_key
from runs.trial import TrialState
from tests.ccl_search.cli import Cli
from tests.ccl_search.sweeping import small

QUICK = sweep.Options(UNCALIBRATED, quick=True, top=1)


def degrees(found: list[dict[str, int]]) -> list[tuple[int, int, int]]:
    return [(config["tp"], config["pp"], config["dp"]) for config in found]


def test_the_grid_is_every_valid_config_once(tmp_path: Path) -> None:
    assert sorted(degrees(configs.chosen(small.problem(tmp_path), None, 0))) == small.VALID


def test_a_sample_is_valid_distinct_and_repeatable(tmp_path: Path) -> None:
    problem = small.problem(tmp_path)

    first, again, other = (configs.chosen(problem, 3, seed) for seed in (1, 1, 2))

    assert first == again
    assert len({config_key(config) for config in first}) == 3
    assert set(degrees(first)) <= set(small.VALID)
    assert {tuple(degrees(found)) for found in (first, other)} != {tuple(degrees(first))}
    assert sorted(degrees(configs.chosen(problem, 99, 0))) == small.VALID


def test_nothing_and_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match="--sample 0"):
        configs.chosen(small.problem(tmp_path), 0, 0)
    monkeypatch.setattr(configs, "LARGEST_GRID", 4)
    with pytest.raises(BadInputError, match="more than 4"):
        configs.chosen(small.problem(tmp_path), None, 0)


def test_a_swept_config_has_the_metrics_that_a_search_measures(cli: Cli, tmp_path: Path) -> None:
    small.problem(tmp_path)
    space = str(tmp_path / "small.yaml")
    policy = tmp_path / "policy.py"
    policy.write_text(
        "def generate_config(workload, environment):\n"
        "    return {'tp': 2, 'pp': 2, 'dp': 2, 'dp_shard': 2, 'micro_batch_size': 1}\n"
    )

    swept = cli("sweep", space, "--jobs", "1", "--json", "--top", "9").document
    run = cli("run", "--space", space, "--policy", str(policy), "--iterations", "0", "--json").document

    same = next(trial for trial in swept["best"] if trial["config"] == run["best"]["config"])
    assert same["metrics"] == run["best"]["metrics"]
    assert same["score"] == run["best"]["score"]
    assert [swept[key] for key in ("configs", "succeeded", "failed", "pruned")] == [5, 5, 0, 0]
    scores = [trial["score"] for trial in swept["best"]]
    assert scores == sorted(scores, reverse=True)


def test_a_sweep_is_read_by_the_verbs_of_a_run(cli: Cli, tmp_path: Path) -> None:
    small.problem(tmp_path)
    space = str(tmp_path / "small.yaml")
    swept = cli(
        "sweep", "--space", space, "--quick", "--jobs", "1", "--json", "--top", "2", "--objective", "step_time",
        "--objective", "num_xpus", "--out", str(tmp_path / "rows.csv"), "--plot", str(tmp_path / "effects.svg"),
    ).document  # fmt: skip

    shown = cli("show", "latest", "--json").document
    listed = cli("list", "--json").document
    front = cli("pareto", "latest", "--json").document
    exported = json.loads(cli("export", "latest", "-f", "json").out)

    assert [row["trial"] for row in shown["trial_rows"]] == [0, 1, 2, 3, 4]
    assert (listed[0]["id"], listed[0]["proposer"], listed[0]["trials"]) == (swept["run_id"], "sweep", 5)
    assert exported["run"]["kind"] == "sweep"
    assert front["runs"][0]["front"][0]["trial"] == swept["best"][0]["trial"]  # all use 8 devices: one front member
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(newline="")))
    assert [float(row["metric_avg_step_time"]) for row in rows] == [r["avg_step_time"] for r in shown["trial_rows"]]
    assert "<svg" in (tmp_path / "effects.svg").read_text()
    best = tmp_path / "home" / "runs" / swept["run_id"] / "trials" / str(swept["best"][0]["trial"])
    assert {path.name for path in best.iterdir()} >= {"card.yaml", "policy.py", "script.sh", "config.json"}
    figures = list(csv.DictReader((best.parents[1] / "figures.csv").open(newline="")))
    assert [float(row["wall_s"]) for row in figures] == [r["avg_step_time"] for r in shown["trial_rows"]]


def test_a_stopped_sweep_goes_on_to_what_an_unstopped_one_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small.problem(tmp_path)
    monkeypatch.setattr(sweep, "_BATCH", 1)
    recorded = Record.add
    calls: list[int] = []

    def stopping(self: Record, outcomes: list[object]) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        recorded(self, outcomes)  # type: ignore[arg-type]

    with assembly.open_store(str(tmp_path / "whole"), write=True) as store:
        whole = sweep.start(problem, QUICK, store, processes=1)
    with assembly.open_store(str(tmp_path / "parts"), write=True) as store:
        monkeypatch.setattr(Record, "add", stopping)
        stopped = sweep.start(problem, QUICK, store, processes=1)
        half = store.run(stopped.run_id).status.value
        monkeypatch.setattr(Record, "add", recorded)
        resumed = sweep.resume(stopped.run_id, store, processes=1)
        again = sweep.resume(stopped.run_id, store, processes=1)

    assert (stopped.interrupted, half, len(stopped.trials)) == (True, "interrupted", 2)
    assert [(t.number, t.config, t.score) for t in resumed.trials] == [
        (t.number, t.config, t.score) for t in whole.trials
    ]
    assert again.best[0].number == whole.best[0].number


def test_what_does_not_fit_is_a_refused_trial_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccl_search import feasibility
    from runs.trial import FailureClass

    known = feasibility.check

    def strict(config: dict[str, int], *more: object) -> object:
        if config["tp"] == 1:
            return feasibility.Refusal(FailureClass.PREDICTED_OOM, "memory: too much")
        return known(config, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(feasibility, "check", strict)
    with assembly.open_store(str(tmp_path / "home"), write=True) as store:
        found = sweep.start(small.problem(tmp_path), QUICK, store, processes=1)

    refused = [trial for trial in found.trials if trial.state is TrialState.PRUNED]
    assert [(trial.config or {})["tp"] for trial in refused] == [1]
    assert refused[0].failure is FailureClass.PREDICTED_OOM
    assert refused[0].evidence == "memory: too much"
    assert found.count(TrialState.SUCCEEDED) == 4


def test_traces_are_kept_when_asked_for(cli: Cli, tmp_path: Path) -> None:
    small.problem(tmp_path)
    swept = cli("sweep", str(tmp_path / "small.yaml"), "--sample", "1", "--traces", "--jobs", "1", "--json").document

    kept = cli("show", "latest", "--trial", "0", "--json").document["trace_files"]
    assert kept
    assert all((tmp_path / "home" / found["path"]).stat().st_size == found["size"] for found in kept)
    assert swept["configs"] == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--quick", "--objective", "mfu"], "does not know mfu"),
        (["--quick", "--traces"], "contradict"),
        (["--backend", "magic"], "no backend"),
        (["--models", "flash"], "are for `sweep moe-study`"),
        (["--out", "rows.xlsx"], "ending"),
        (["--resume", "nothing"], "nothing"),
    ],
)
def test_wrong_questions_get_one_line(cli: Cli, tmp_path: Path, words: list[str], told: str) -> None:
    small.problem(tmp_path)
    found = cli("sweep", str(tmp_path / "small.yaml"), *words)

    assert found.code == 2
    assert told in found.err.splitlines()[0]


def test_a_sweep_is_not_resumed_as_a_search(cli: Cli, tmp_path: Path) -> None:
    small.problem(tmp_path)
    run = cli("sweep", str(tmp_path / "small.yaml"), "--quick", "--jobs", "1", "--sample", "1", "--json").document

    found = cli("resume", run["run_id"])

    assert found.code == 2
    assert f"sweep --resume {run['run_id']}" in found.err
