"""Folders and archives made to do harm: refused with the file and the reason, before and without anything happening."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccl_search.publishing import opening
from policies.reading import open_published
from policies.unpacking import FolderLimits, list_files, unpacked
from runs.errors import BadInputError
from tests.ccl_search.cli import Cli
from tests.ccl_search.publishing import made


def open_it(path: Path) -> None:
    with open_published(path):
        pass


def read_all(path: Path) -> None:
    with open_published(path) as published:
        opening.objective(published.manifest)
        opening.metric_specs(published.manifest)
        opening.trials(published)


def tar(path: Path, *members: tarfile.TarInfo, data: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (member("../evil"), "leaves the folder"),
        (member("trials/../../evil"), "leaves the folder"),
        (member("/etc/evil"), "leaves the folder"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), "link or a device"),
        (member("link", tarfile.LNKTYPE, "manifest.yaml"), "link or a device"),
        (member("pipe", tarfile.FIFOTYPE), "link or a device"),
        (member("disk", tarfile.BLKTYPE), "link or a device"),
        (member("a\nb"), "control characters"),
        (member("a\\b"), "control characters"),
        (member("x" * 500), "too long"),
    ],
)
def test_a_hostile_tar_is_refused_and_writes_nothing(bad: tarfile.TarInfo, says: str, tmp_path: Path) -> None:
    archive = tar(tmp_path / "in" / ".." / "bad.tgz", bad) if (tmp_path / "in").mkdir() is None else tmp_path

    error = made.refused(lambda: open_it(archive))

    assert says in error.message
    assert not list(tmp_path.parent.rglob("evil"))


@pytest.mark.parametrize("name", ["../evil", "/abs/evil", "C:/evil", "a/../../evil"])
def test_a_hostile_zip_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "x")

    assert "leaves the folder" in made.refused(lambda: open_it(path)).message


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    info = zipfile.ZipInfo("manifest.yaml")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")

    assert "a link" in made.refused(lambda: open_it(path)).message


def test_bombs_are_refused_by_count_and_size(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(30):
            archive.writestr(f"trials/00/trace/{number}", bytes(100_000))

    for limits, says in ((FolderLimits(files=20), "more than 20 files"), (FolderLimits(total_bytes=10**6), "above")):
        with pytest.raises(BadInputError, match=says), unpacked(path, limits):
            pass
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.yaml", bytes(70 * 2**20))
    assert "at most" in made.refused(lambda: open_it(path)).message


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"\x1f\x8bbroken", os.urandom(2000)])
def test_a_broken_archive_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    for name in ("a.zip", "a.tar.gz", "a.tar"):
        (tmp_path / name).write_bytes(content)
        assert "cannot be unpacked" in made.refused(lambda: open_it(tmp_path / name)).message  # noqa: B023


@pytest.mark.parametrize(
    "place", [lambda f: (f / "notes").symlink_to("/etc/passwd"), lambda f: (f / "trials/09").symlink_to("/"),
              lambda f: os.mkfifo(f / "pipe")]
)  # fmt: skip
def test_links_and_pipes_in_a_folder_are_refused(place: Callable[[Path], object], folder: Path) -> None:
    place(folder)

    with pytest.raises(BadInputError, match="no plain file"):
        list_files(folder)


BAD_MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer": (lambda m: m.update(schema_version=2), "schema version 2"),
    "text version": (lambda m: m.update(schema_version="1"), "schema version '1'"),
    "true": (lambda m: m.update(schema_version=True), "schema version True"),
    "other schema": (lambda m: m.update(schema="optuna"), "does not say"),
    "no space": (lambda m: m.pop("space"), "`space`"),
    "space of the wrong kind": (lambda m: m.update(objective=[]), "`objective`"),
    "climbing": (lambda m: m["files"].update({"../x": dict(m["files"]["card.yaml"])}), "leaves the folder"),
    "no hash": (lambda m: m["files"].update({"card.yaml": {"size": 1}}), "SHA-256"),
    "best without config": (lambda m: m["best"].pop("config"), "`best`"),
    "fewer trials": (lambda m: m["trials"].update(total=2), "trials"),
    "objective of nothing": (lambda m: m["objective"].update(terms=[]), "objective"),
    "objective with nan": (lambda m: m["objective"]["terms"][0].update(weight=float("nan")), "objective"),
    "metric of nothing": (lambda m: m["objective"]["terms"][0].pop("direction"), "objective"),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_is_refused(name: str, folder: Path) -> None:
    change, says = BAD_MANIFESTS[name]
    made.edit_manifest(folder, change)

    assert says in made.refused(lambda: read_all(folder)).message


@pytest.mark.parametrize("name", ["newer", "climbing"])
def test_nothing_of_a_bad_folder_is_imported(name: str, folder: Path, cli: Cli) -> None:
    change, says = BAD_MANIFESTS[name]
    made.edit_manifest(folder, change)

    for verb in ("verify", "import"):
        result = cli(verb, str(folder))
        assert (result.code, result.out) == (2, "")
        assert says in result.err
    assert cli("list", "--json").document == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: &x [1]\nb: *x\n",
        "{" * 5000,
        "- " * 3000,
        "!!python/object/apply:os.system ['true']",
        "\x00",
        "a: b: c",
    ],
)
def test_a_manifest_that_is_no_honest_yaml_is_refused(text: str, folder: Path) -> None:
    (folder / "manifest.yaml").write_text(text, encoding="utf-8")

    assert "manifest.yaml" in made.refused(lambda: open_it(folder)).message


BAD_TRIALS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "state": (lambda d: d.update(state="great"), "great"),
    "number": (lambda d: d.update(number=7), "is trial 7"),
    "bool number": (lambda d: d.update(number=True), "`number`"),
    "plan": (lambda d: d.update(plan={"tp": 1}), "cannot be read"),
    "score": (lambda d: d.update(score="best"), "`score`"),
    "infinite": (lambda d: d.update(score=float("inf")), "no JSON"),
    "climbing trace": (lambda d: d["traces"][0].update(path="../../trace/x"), "leaves the folder"),
    "absolute trace": (lambda d: d["traces"][0].update(file="/etc/passwd"), "leaves the folder"),
    "trace elsewhere": (lambda d: d["traces"][0].update(path="policy.py"), "not below a folder `trace`"),
    "packing": (lambda d: d["traces"][0].update(packing="exec"), "packing"),
    "negative": (lambda d: d["traces"][0].update(size=-1), "described wrongly"),
    "more": (lambda d: d["traces"][0].update(more=1), "described wrongly"),
    "digits": (lambda d: d.update(iteration=10**30), "a number of 31 digits"),
}


@pytest.mark.parametrize("name", BAD_TRIALS)
def test_a_bad_trial_is_refused(name: str, folder: Path) -> None:
    change, says = BAD_TRIALS[name]
    made.edit_json(folder, "trials/02/trial.json", change)

    assert says in made.refused(lambda: read_all(folder)).message


def test_nothing_of_a_folder_with_a_bad_trial_is_imported(folder: Path, cli: Cli) -> None:
    made.edit_json(folder, "trials/02/trial.json", BAD_TRIALS["climbing trace"][0])

    assert cli("import", str(folder)).code == 2
    assert not list(cli.home.rglob("trial*"))
    assert cli("list", "--json").document == []


ESCAPES = {
    "file": "def generate_config(workload, environment):\n    return {'tp': len(open('/etc/passwd').read())}\n",
    "import": "import os\ndef generate_config(workload, environment):\n    return {'tp': os.system('true')}\n",
    "loop": "def generate_config(workload, environment):\n    while True:\n        pass\n",
    "classes": "def generate_config(w, e):\n    return {'tp': len(().__class__.__base__.__subclasses__())}\n",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_a_policy_that_tries_to_escape_is_refused(name: str, folder: Path, cli: Cli) -> None:
    made.edit(folder, "trials/00/policy.py", lambda _: ESCAPES[name])

    result = cli("import", str(folder))

    assert result.code == 1
    assert "trials/00/policy.py: the policy gives no config" in result.err
    assert cli("list", "--json").document == []


def test_a_policy_of_endless_text_is_refused(folder: Path) -> None:
    made.edit(folder, "policy.py", lambda text: text + "#" * 100_000)

    assert "policy.py has" in made.refused(lambda: open_it(folder)).message
