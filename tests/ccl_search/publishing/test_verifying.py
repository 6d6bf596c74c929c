"""Verifying: an honest folder holds, every kind of forgery is found and named, missing evidence is told apart."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccl_search.publishing.verifying import MismatchError, Verification, verify
from policies.reading import open_published
from runs.errors import UnverifiableError
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made


def checked(folder: Path) -> Verification:
    with open_published(folder) as published:
        return verify(published)


def test_an_honest_folder_holds(original: Path) -> None:
    found = checked(original)

    assert (found.status, found.findings) == ("verified", [])
    assert (found.trials, found.policies) == (3, 3)
    values = [json.loads(p.read_text())["metrics"] for p in original.glob("trials/*/metrics.json")]
    assert found.metrics == sum(map(len, values)) > 100
    found.require()


def test_values_follow_from_the_traces_and_nothing_else(original: Path) -> None:
    """The step time is the length of the profiler's steps, read here without any of the product's readers."""
    import gzip

    from ccl_search.publishing.folding import unfold

    trial = json.loads((original / "trials/01/trial.json").read_text())
    facts = trial["traces"][0]
    trace = json.loads(unfold(gzip.decompress((original / "trials/01" / facts["file"]).read_bytes()), facts["size"]))
    steps = [e["dur"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    told = json.loads((original / "trials/01/metrics.json").read_text())["metrics"]["avg_step_time"]["value"]

    assert told == pytest.approx(sum(steps) / len(steps) / 1e6)


def _metric(document: dict[str, Any]) -> None:
    document["metrics"]["avg_step_time"]["value"] *= 0.9


def _score(document: dict[str, Any]) -> None:
    document["score"] = 0.0


ONE = "trials/01"
FORGERIES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "metric": (lambda f: made.edit_json(f, f"{ONE}/metrics.json", _metric), f"{ONE}/metrics.json", "avg_step_time"),
    "score": (lambda f: made.edit_json(f, "trials/01/trial.json", _score), "trials/01/trial.json", "score"),
    "unlisted change": (
        lambda f: made.edit(f, "trials/02/card.yaml", lambda text: text + "\n", listed=False),
        "trials/02/card.yaml",
        "SHA-256",
    ),
    "unlisted file": (lambda f: (f / "trials/01/extra.bin").write_bytes(b"x"), "trials/01/extra.bin", "not listed"),
    "missing file": (lambda f: (f / "trials/01/card.yaml").unlink(), "trials/01/card.yaml", "is missing"),
    "config": (
        lambda f: made.edit_json(f, "trials/01/trial.json", lambda d: d["config"].update(micro_batch_size=7)),
        "trials/01/policy.py",
        "config of the policy",
    ),
    "best": (
        lambda f: made.edit_manifest(f, lambda m: m["best"].update(trial=0)), "manifest.yaml", "best trial",
    ),
    "best score": (
        lambda f: made.edit_manifest(f, lambda m: m["best"].update(score=-1e-3)), "manifest.yaml", "score",
    ),
    "policy": (lambda f: made.edit(f, "policy.py", lambda text: text + "\n"), "policy.py", "not the policy"),
    "trace": (lambda f: _other_trace(f), "trials/01/trace", "rank0_trace.json.folded.gz"),
    "failed with score": (
        lambda f: made.edit_json(f, "trials/02/trial.json", lambda d: d.update(state="failed", failure="oom")),
        "trials/02/trial.json",
        "has a score",
    ),
}  # fmt: skip


def _other_trace(folder: Path) -> None:
    """The trace of another trial under the name of this one, listed with its own hash."""
    mine, other = (next((folder / f"trials/0{n}/trace").iterdir()) for n in (1, 2))
    shutil.copyfile(other, mine)
    made.relist(folder, mine.relative_to(folder).as_posix())


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_with_its_file(name: str, folder: Path) -> None:
    forge, file, what = FORGERIES[name]
    forge(folder)

    found = checked(folder)

    assert found.status == "mismatch"
    assert any(f.kind == "mismatch" and f.file == file and what in f.what for f in found.findings), found.findings
    with pytest.raises(MismatchError):
        found.require()


def test_a_mismatch_names_both_values(folder: Path) -> None:
    before = json.loads((folder / "trials/01/metrics.json").read_text())["metrics"]["avg_step_time"]["value"]
    made.edit_json(folder, "trials/01/metrics.json", _metric)

    finding = next(f for f in checked(folder).findings if f.what == "avg_step_time")

    assert (finding.published, finding.found) == (pytest.approx(0.9 * before), pytest.approx(before))


def test_a_missing_trace_is_unverifiable_and_no_mismatch(folder: Path) -> None:
    for path in (folder / "trials/01/trace").iterdir():
        path.unlink()

    found = checked(folder)

    assert found.status == "unverifiable"
    assert {f.file.partition("/trace/")[0] for f in found.findings} == {"trials/01"}
    with pytest.raises(UnverifiableError):
        found.require()


def test_hashes_alone_are_unverifiable(home: Path, tmp_path: Path) -> None:
    made.published(home, tmp_path / "hashes", metrics_only=True)

    found = checked(tmp_path / "hashes")

    assert not list((tmp_path / "hashes").rglob("trace/*"))
    assert found.status == "unverifiable"
    assert {finding.what for finding in found.findings} == {"only its hash is published"}


def test_exit_codes_and_output(cli: Cli, original: Path, folder: Path) -> None:
    assert cli("verify", str(original), "--json").document["status"] == "verified"
    shutil.rmtree(folder / "trials/02/trace")
    missing = cli("verify", str(folder), "--json")
    assert (missing.code, missing.document["status"]) == (5, "unverifiable")
    made.edit_json(folder, "trials/01/metrics.json", _metric)
    forged = cli("verify", str(folder))
    assert (forged.code, forged.out) == (1, "")
    assert "trials/01/metrics.json: avg_step_time" in forged.err
    assert forged.err.strip().splitlines()[-1].startswith("hint:  ")


@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_an_archive_of_the_folder_is_as_good(kind: str, original: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "search"), kind, original.parent, original.name))

    assert checked(archive).status == "verified"
    if kind == "gztar":
        with tarfile.open(archive) as opened:
            assert opened.getmember("search/manifest.yaml").isreg()


@pytest.mark.parametrize("verb", ["verify", "import"])
def test_a_place_where_nothing_is_lists_the_bundled_searches(verb: str, cli: Cli) -> None:
    result = cli(verb, "no/such/folder")

    assert result.code == 2
    assert "there is nothing at no/such/folder" in result.err
    assert "wl4" in result.err
