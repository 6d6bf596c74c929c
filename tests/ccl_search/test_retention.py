"""Trace volume: gzip, sampled ranks, `--keep-traces`, `store prune`; what is dropped stays on record."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ccl_search import assembly, report, retention
from tests.ccl_search import local_runs
from tests.ccl_search.cli import Cli

GRID = ("--iterations", "3")
"""Four configs: steps of 0.1, 0.05, 0.2 and 0.1 s in the order of the grid."""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    return [*local_runs.write(tmp_path), *GRID, "--no-profiler-cost"]


def trials(cli: Cli, run: str = "latest") -> list[dict[str, Any]]:
    with assembly.open_store(str(cli.home), write=False) as store:
        return [report.trial_detail(store, found) for found in store.trials(store.run(run).id)]


def there(home: Path, found: dict[str, Any]) -> list[bool]:
    """Of each trace file on record, whether it is on the disk."""
    return [(home / file["path"]).is_file() for file in found["trace_files"]]


# --- gzip -----------------------------------------------------------------------------------------------------------


def test_traces_are_gzipped_before_they_are_recorded(cli: Cli, words: list[str]) -> None:
    done = cli(*words)

    assert done.code == 0, done.err
    for found in trials(cli):
        assert len(found["trace_files"]) == found["num_xpus"]
        for file in found["trace_files"]:
            data = (cli.home / file["path"]).read_bytes()
            assert file["path"].endswith(".json.gz")
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
            assert json.loads(gzip.decompress(data))["traceEvents"]


def test_equal_traces_are_equal_files(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        path = tmp_path / name / "rank0.json"
        path.parent.mkdir()
        path.write_text('{"traceEvents": []}')
        os.utime(path, (1, 1 if name == "a" else 10**9))
        contents.append(retention.compress(path).read_bytes())
        assert not path.exists()
    assert contents[0] == contents[1]


def test_an_interrupted_compression_is_finished(tmp_path: Path) -> None:
    """Killed while writing, killed between renaming and deleting, and a packed file of an earlier attempt."""
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "rank0.json").write_text("0")
    (folder / "rank0.json.gz.partial").write_bytes(b"half")
    (folder / "rank1.json").write_text("1")
    (folder / "rank1.json.gz").write_bytes(gzip.compress(b"1"))
    (folder / "rank2.json.gz").write_bytes(gzip.compress(b"old"))
    (folder / "rank2.json").write_text("new")
    os.utime(folder / "rank1.json", (1, 1))
    os.utime(folder / "rank2.json.gz", (1, 1))

    retention.tidy(tmp_path)

    assert sorted(path.name for path in folder.iterdir()) == [f"rank{n}.json.gz" for n in range(3)]
    found = [gzip.decompress((folder / f"rank{n}.json.gz").read_bytes()) for n in range(3)]
    assert found == [b"0", b"1", b"new"]


# --- sampled ranks --------------------------------------------------------------------------------------------------


def test_sampling_again_forgets_nothing(tmp_path: Path) -> None:
    """After a process that ended too early, or a trial that ran again: the facts are those of the last files."""
    folder = tmp_path / "trace"
    for content in ("first", "second"):
        folder.mkdir(exist_ok=True)
        for rank in range(8):
            (folder / f"rank{rank}.json").write_text(f"{content} {rank}")
        for _ in range(2):
            retention.tidy(tmp_path, 2)
            assert sorted(path.name for path in folder.iterdir()) == ["rank0.json.gz", "rank7.json.gz"]
            gone = {facts.path: facts.sha256 for facts in retention.sampled_out(tmp_path)}
            assert gone == {
                f"trace/rank{rank}.json": hashlib.sha256(f"{content} {rank}".encode()).hexdigest()
                for rank in range(1, 7)
            }
        for path in folder.iterdir():
            os.utime(path, (1, 1))


def test_the_rank_of_a_file_is_in_its_name_or_in_it(tmp_path: Path) -> None:
    told = '{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8}, "traceEvents": []}'
    names = {"rank3_trace.json": 3, "dp0_pp0_tp1_rank12.17.pt.trace.json": 12, "host_99.17.pt.trace.json": 5}
    for name, rank in names.items():
        (tmp_path / name).write_text(told)
        assert retention.rank_of(tmp_path / name) == rank
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(told.encode()))
    (tmp_path / "notes.json").write_text("{}")
    assert retention.rank_of(tmp_path / "packed.json.gz") == 5
    assert retention.rank_of(tmp_path / "notes.json") is None


def test_sampled_ranks_are_measured_and_the_others_recorded_as_dropped(cli: Cli, words: list[str]) -> None:
    assert cli(*words, "--trace-ranks", "3").code == 0

    for found in trials(cli):
        kept = [file for file in found["trace_files"] if file["kept"]]
        gone = [file for file in found["trace_files"] if not file["kept"]]
        assert there(cli.home, found) == [file["kept"] for file in found["trace_files"]]
        assert (len(kept), len(gone)) == (3, found["num_xpus"] - 3)
        assert all(file["size"] > 100 and len(file["sha256"]) == 64 and file["dropped"] for file in gone)
        assert {file["reason"] for file in gone} == {retention.SAMPLED}
        assert found["metrics"]["avg_step_time"]["value"] > 0
        assert any("is missing" in text for text in found["metrics"]["avg_step_time"]["warnings"])
    again = cli("rescore", "latest", "--objective", "avg_step_time", "--from-traces", "--json").document
    assert [t["score"] for t in again["trials"]] == [t["previous_score"] for t in again["trials"]]


# --- what is kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "of_best"), [("best", True), ("none", False)])
def test_only_what_is_wanted_stays_and_the_rest_is_on_record(
    cli: Cli, words: list[str], keep: str, of_best: bool
) -> None:
    best = cli(*words, "--keep-traces", keep).document["best"]["trial"]

    for found in trials(cli):
        stays = of_best and found["trial"] == best
        assert there(cli.home, found) == [stays] * found["num_xpus"]
        assert [file["kept"] for file in found["trace_files"]] == [stays] * found["num_xpus"]
        assert stays == (Path(found["directory"]) / "trace").is_dir()
        for file in found["trace_files"]:
            assert stays or (file["reason"].startswith(f"--keep-traces {keep}") and file["dropped"])


def test_the_earlier_best_is_dropped_only_once_the_new_one_is_recorded(
    cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a trace is dropped, the store already names a better trial, whose own trace is there."""
    seen: list[tuple[int, int]] = []
    drop = retention.drop

    def watched(store: Any, trial: Any, reason: str) -> Any:
        best = store.best(trial.run_id)
        files = store.trace_files(trial.run_id, best.number)
        assert files and all(file.kept and (store.home / file.path).is_file() for file in files)
        assert best.number != trial.number and best.score >= trial.score
        seen.append((trial.number, best.number))
        return drop(store, trial, reason)

    monkeypatch.setattr(retention, "drop", watched)
    assert cli(*words, "--keep-traces", "best").code == 0
    assert len(seen) == 3 and len({trial for trial, _ in seen}) == 3
    assert any(best > trial for trial, best in seen), "no earlier best was replaced: the grid does not test this"


def test_the_record_comes_before_the_deletion(cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends in between leaves a file that the record calls dropped; the next one deletes it."""
    run = cli(*words).document["run_id"]

    class PowerCutError(Exception):
        pass

    def fail(self: Path, missing_ok: bool = False) -> None:
        raise PowerCutError

    with assembly.open_store(str(cli.home), write=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", fail)
            with pytest.raises(PowerCutError):
                retention.drop(store, store.trial(run, 0), "test")
        files = store.trace_files(run, 0)
        assert all(not file.kept and (store.home / file.path).is_file() for file in files)
        assert retention.Retention(store, run, "best").sweep() == len(files)
        assert not any((store.home / file.path).is_file() for file in files)


def test_traces_that_no_tool_could_read_are_kept(cli: Cli, tmp_path: Path, words: list[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(program.read_text().replace('"cat": "kernel"', '"cat": "nothing"').replace("ProfilerStep#", "X"))
    done = cli(*words, "--keep-traces", "none")

    assert done.code == 4
    failed = [found for found in trials(cli) if found["failure"] in ("metric_error", "trace_missing")]
    assert failed and all(all(there(cli.home, found)) for found in failed)


def test_an_unknown_choice_is_refused(cli: Cli, words: list[str]) -> None:
    done = cli(*words, "--keep-traces", "some")

    assert (done.code, "choose one of all, best, none" in done.err) == (2, True)


# --- the simulator's traces too -------------------------------------------------------------------------------------


def test_a_dry_run_keeps_the_best_traces_only(cli: Cli) -> None:
    done = cli("run", "--iterations", "3", "--proposer", "random", "--keep-traces", "best", "--json").document

    rows = {found["trial"]: there(cli.home, found) for found in trials(cli) if found["trace_files"]}
    assert len(rows) > 1 and all(rows.pop(done["best"]["trial"]))
    assert not any(any(files) for files in rows.values())


def test_what_is_gone_is_said_where_it_is_needed(cli: Cli, tmp_path: Path) -> None:
    run = cli("run", "--iterations", "1", "--proposer", "random", "--keep-traces", "none", "--json").document["run_id"]

    again = cli("rescore", run, "--objective", "avg_step_time", "--json").document
    assert all(trial["score"] is not None for trial in again["trials"]), "stored values serve"
    lost = cli("rescore", run, "--objective", "avg_step_time", "--from-traces", "--json").document
    assert all(trial["kept"] == ["avg_step_time"] for trial in lost["trials"]), "a stored value is not thrown away"
    with assembly.open_store(str(cli.home), write=True) as store:
        store.query("SELECT 1")
        assert retention.why_gone(store.trace_files(run, 0)).startswith("the trace was dropped on 20")  # type: ignore[union-attr]
    assert cli("publish", run, str(tmp_path / "out")).code == 0
    checked = cli("verify", str(tmp_path / "out"), "--json")
    assert checked.code == 5
    assert checked.document["status"] == "unverifiable"
    assert {finding["kind"] for finding in checked.document["findings"]} == {"unverifiable"}
    assert all("only its hash is published" in finding["what"] for finding in checked.document["findings"])


def test_values_of_a_trace_that_is_gone_are_not_published_where_times_are_perturbed(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", "--iterations", "3", "--proposer", "random", "--keep-traces", "best", "--json").document
    out = tmp_path / "out"
    assert cli("publish", done["run_id"], str(out), "--anonymise", "--perturb").code == 0
    kinds = {}
    for folder in sorted((out / "trials").iterdir()):
        facts = json.loads((folder / "trial.json").read_text())
        if facts["state"] == "succeeded":
            kinds[facts["number"]] = (facts["score"] is None, (folder / "metrics.json").exists())
    assert kinds.pop(done["best"]["trial"]) == (False, True)
    assert kinds and set(kinds.values()) == {(True, False)}
    assert cli("verify", str(out)).code == 5


# --- store prune ----------------------------------------------------------------------------------------------------


def test_prune_names_before_it_drops(cli: Cli) -> None:
    done = cli("run", "--iterations", "2", "--proposer", "random", "--json").document
    before = [found for found in trials(cli) if found["trace_files"]]
    wanted = cli("store", "prune", "--dry-run", "--json").document
    assert all(all(there(cli.home, found)) for found in trials(cli)), "nothing was dropped"
    assert cli("store", "prune", "--older-than", "1", "--json").document["dropped"] == []

    pruned = cli("store", "prune", "--json").document

    assert pruned == {**wanted, "dry_run": False}
    assert {file["trial"] for file in pruned["dropped"]} == {t["trial"] for t in before} - {done["best"]["trial"]}
    assert pruned["bytes"] == sum(file["size"] for file in pruned["dropped"]) > 0
    for found in trials(cli):
        stays = found["trial"] == done["best"]["trial"]
        assert set(there(cli.home, found)) <= {stays}
        reasons = {(file["kept"], file["reason"]) for file in found["trace_files"]}
        assert reasons <= {(True, "") if stays else (False, "store prune --keep best")}
    assert cli("store", "prune", done["run_id"], "--keep", "none", "--json").document["dropped"]
    assert cli("store", "prune", "--keep", "none", "--json").document["dropped"] == []


def test_prune_is_refused_while_a_search_writes(cli: Cli) -> None:
    cli("run", "--iterations", "0", "--json")
    with assembly.open_store(str(cli.home), write=True):
        done = cli("store", "prune", "--keep", "none")
    assert done.code != 0 and "process" in done.err
    assert all(all(there(cli.home, found)) for found in trials(cli))
