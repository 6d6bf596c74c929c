"""Small searches to publish: a llama of four layers on eight devices, so that a trial takes a fraction of a second."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ccl_search import assembly, targets
from ccl_search.loop.execution import Executor
from ccl_search.loop.interrupt import Interrupt
from ccl_search.problem import ProblemSource
from ccl_search.publishing.anonymising import PublishOptions
from ccl_search.publishing.writing import Publication, publish
from ccl_search.settings import SearchSettings
from runs import catalogue
from runs.card import card_from, to_yaml
from runs.errors import BadInputError

MANIFEST = "manifest.yaml"


def small_card(path: Path, **changes: Any) -> Path:
    """The card of the small workload; `changes` are fields of the card."""
    known = catalogue.workload("wl4")
    model = replace(known.model, model_family="tiny-llama", num_layers=4, num_params=1_922_000_000)
    where = catalogue.with_framework(catalogue.environment("perlmutter-a100-8"), "torchtitan", "0.2.2")
    card = card_from(replace(known, name="tiny", model=model), where)
    path.write_text(to_yaml(card.model_copy(update=changes)), encoding="utf-8")
    return path


def search(home: Path, card: Path, iterations: int, proposer: str = "guided", **source: Any) -> str:
    """Run a search; its id."""
    settings = SearchSettings(iterations=iterations, proposer=proposer, seed=3)
    with assembly.open_store(str(home), write=True) as store:
        made = assembly.create(ProblemSource(card=card, **source), settings, store)
        made.run(Executor(targets.launcher(targets.find("dry-run")), Interrupt()))
        return made.run_id


def published(home: Path, destination: Path, run: str = "latest", **options: Any) -> Publication:
    """Publish a run of `home`."""
    with assembly.open_store(str(home), write=False) as store:
        return publish(store, run, destination, PublishOptions(**options))


def edit(folder: Path, name: str, change: Callable[[str], str], listed: bool = True) -> None:
    """Change a file; with `listed` its new size and hash go into the manifest, as a careful forger would do."""
    path = folder / name
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    if listed and name != MANIFEST:
        relist(folder, name)


def relist(folder: Path, name: str) -> None:
    """Put the size and the hash that a file has now into the manifest."""
    data = (folder / name).read_bytes()

    def change(manifest: dict[str, Any]) -> None:
        manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    edit_manifest(folder, change)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest as data."""
    path = folder / MANIFEST
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")


def edit_json(folder: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON file as data, and list it anew."""
    path = folder / name
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    relist(folder, name)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(action: Callable[[], object]) -> BadInputError:
    """The error of an action that must be refused."""
    try:
        action()
    except BadInputError as error:
        return error
    raise AssertionError("it was not refused")
