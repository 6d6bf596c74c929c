"""Importing: what comes in is what was published, and whatever is wrong, nothing comes in."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from ccl_search import assembly
from ccl_search.publishing import importing
from ccl_search.publishing.importing import import_from, import_published
from policies.reading import read_published
from runs.errors import BadInputError
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made


def content(path: Path) -> bytes:
    """What a trace file says, gzipped or not."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_an_imported_run_is_the_published_one(home: Path, original: Path, cli: Cli, tmp_path: Path) -> None:
    made_run = cli("import", str(original), "--json").document["runs"]

    with assembly.open_store(str(home), write=False) as there, assembly.open_store(str(cli.home), write=False) as here:
        was, now = there.run("latest"), here.run(made_run[0]["run_id"])
        assert (now.kind, now.status.value) == ("imported", "finished")
        assert (now.space, now.objective, now.workload) == (was.space, was.objective, was.workload)
        assert now.options["imported"]["run_id"] == was.id
        assert now.options["imported"]["verified"] == "verified"
        for one, other in zip(there.trials(was.id), here.trials(now.id), strict=True):
            for key in (
                "config",
                "score",
                "metrics",
                "policy_source",
                "rationale",
                "plan",
                "card",
                "state",
                "finished",
            ):
                assert getattr(one, key) == getattr(other, key), key
            for mine, theirs in zip(
                there.trace_files(was.id, one.number), here.trace_files(now.id, other.number), strict=True
            ):
                assert content(there.home / mine.path) == content(here.home / theirs.path)
            for file in here.trace_files(now.id, other.number):
                assert (here.home / file.path).stat().st_size == file.size
        assert here.check() == []
    made.published(cli.home, tmp_path / "again")
    again, first = made.tree(tmp_path / "again"), made.tree(original)
    assert {name for name in first if again[name] != first[name]} == {"manifest.yaml"}


def test_the_list_tells_an_imported_run_from_ones_own(original: Path, cli: Cli) -> None:
    cli("import", str(original))

    assert cli("list", "--json").document[0]["kind"] == "imported"
    assert " imported " in cli("list").err


def test_the_same_folder_is_not_imported_twice(original: Path, cli: Cli) -> None:
    assert cli("import", str(original)).code == 0

    again = cli("import", str(original))

    assert again.code == 2
    assert "imported before" in again.err
    assert len(cli("list", "--json").document) == 1


def test_an_imported_run_takes_no_trials_of_this_machine(original: Path, cli: Cli) -> None:
    run = cli("import", str(original), "--json").document["runs"][0]["run_id"]
    before = cli("show", run, "--json").document

    found = cli("resume", run, "--iterations", "50")

    assert found.code == 2
    assert found.err.startswith(f"error: run {run} was imported")
    assert f"`ccl-search replay {run} --refine N`" in found.err
    assert cli("show", run, "--json").document == before


def test_a_forged_folder_is_refused_and_leaves_nothing(folder: Path, cli: Cli) -> None:
    def forge(document: dict[str, dict[str, dict[str, float]]]) -> None:
        document["metrics"]["mfu"]["value"] += 1

    made.edit_json(folder, "trials/01/metrics.json", forge)

    result = cli("import", str(folder))

    assert result.code == 1
    assert "trials/01/metrics.json: mfu" in result.err
    assert cli("list", "--json").document == []
    assert not list((cli.home / "runs").glob("*")) if (cli.home / "runs").exists() else True


def test_a_missing_trace_is_refused_with_exit_code_5(folder: Path, cli: Cli) -> None:
    shutil.rmtree(folder / "trials/01/trace")

    result = cli("import", str(folder))

    assert result.code == 5
    assert "trials/01/trace/" in result.err
    assert cli("list", "--json").document == []


def test_declared_hashes_are_imported_without_traces(home: Path, cli: Cli, tmp_path: Path) -> None:
    made.published(home, tmp_path / "hashes", metrics_only=True)

    run = cli("import", str(tmp_path / "hashes"), "--json").document["runs"][0]["run_id"]

    with assembly.open_store(str(cli.home), write=False) as store:
        files = store.trace_files(run, 1)
        assert files
        assert not any(file.kept for file in files)
        assert store.run(run).options["imported"]["verified"] == "unverifiable"
        assert store.best(run) is not None


def test_an_error_in_the_last_step_leaves_nothing(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(importing, "place", fail)
    with assembly.open_store(str(tmp_path / "home"), write=True) as store:
        with pytest.raises(OSError, match="disk full"):
            import_published(store, read_published(original), check=False)
        assert store.list_runs() == []
        assert [path for path in (tmp_path / "home").rglob("*") if path.name == "trial.json"] == []
        assert list((tmp_path / "home" / "incoming").iterdir()) == []


def entry_from(original: Path, target: Path, trial: int, card: str = "card.yaml", trace: str = "trace") -> Path:
    """A CCL-Bench entry as a contributor would hand it in."""
    target.mkdir(parents=True)
    source = original / f"trials/{trial:02d}"
    shutil.copyfile(source / "card.yaml", target / card)
    shutil.copyfile(source / "script.sh", target / "run.sh")
    for path in source.glob("trace/*"):
        (target / trace).mkdir(exist_ok=True)
        shutil.copyfile(path, target / trace / path.name)
    return target


@pytest.fixture(scope="module")
def plain(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The search with traces that any reader opens."""
    folder = tmp_path_factory.mktemp("plain") / "search"
    made.published(home, folder, plain_traces=True)
    return folder


def test_benchmark_entries_become_trials_with_their_metrics(plain: Path, home: Path, cli: Cli, tmp_path: Path) -> None:
    entry_from(plain, tmp_path / "entries" / "one", 1)
    entry_from(plain, tmp_path / "entries" / "two", 2, card="two.yaml", trace=".")

    runs = cli("import", str(tmp_path / "entries"), "--json").document["runs"]

    with assembly.open_store(str(home), write=False) as there, assembly.open_store(str(cli.home), write=False) as here:
        found = [trial for run in runs for trial in here.trials(run["run_id"])]
        known = {trial.number: trial for trial in there.trials(there.run("latest").id)}
        assert len(found) == 2
        steps = sorted(trial.values["avg_step_time"] for trial in found)
        assert steps == pytest.approx(sorted(known[n].values["avg_step_time"] for n in (1, 2)))
        assert {trial.config["tp"] for trial in found if trial.config} == {
            known[n].config["tp"] for n in (1, 2) if known[n].config  # type: ignore[index]
        }  # fmt: skip
        assert {trial.fidelity.value for trial in found if trial.fidelity} == {"simulated"}
        assert all("ccl-search run" in trial.script for trial in found)


def test_one_entry_without_a_trace_keeps_all_out(plain: Path, cli: Cli, tmp_path: Path) -> None:
    entry_from(plain, tmp_path / "entries" / "one", 1)
    shutil.rmtree(entry_from(plain, tmp_path / "entries" / "two", 2) / "trace")

    result = cli("import", str(tmp_path / "entries"))

    assert result.code == 2
    assert "entry two has no trace" in result.err
    assert cli("list", "--json").document == []


def test_a_folder_of_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with assembly.open_store(str(tmp_path / "home"), write=True) as store:
        with pytest.raises(BadInputError, match="no published search and no benchmark entry"):
            import_from(store, tmp_path / "empty")
        with pytest.raises(BadInputError, match="no folder and no archive"):
            import_from(store, tmp_path / "missing")
