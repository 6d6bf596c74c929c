"""Published policies: the manifest and the policy of a folder that `ccl-search publish` wrote, and the bundled ones.

    with open_published(Path("llama-on-a100")) as published:
        published.policy_source, published.best_config, published.manifest["objective"]

Only what every reader needs is here; evidence is verified and imported elsewhere. See docs/publishing.md for the form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from policies.unpacking import FolderLimits, check_name, list_files, unpacked
from runs.errors import BadInputError
from runs.space import ConfigSpace

SCHEMA = "ccl-search/published"
SCHEMA_VERSION = 1
MANIFEST, POLICY, CARD = "manifest.yaml", "policy.py", "card.yaml"
_MAX_MANIFEST = 16 * 2**20
_MAX_POLICY = 64 * 2**10
_MAX_DEPTH = 40
_SECTIONS: Mapping[str, type] = {
    "run": dict, "objective": dict, "space": dict, "workload": dict, "environment": dict, "framework": dict,
    "target": dict, "proposer": dict, "budgets": dict, "versions": dict, "trials": dict, "evidence": dict,
    "settings": dict, "metrics": list, "files": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Published:
    """A published folder that is open for reading. `files` are all files in it with their sizes in bytes."""

    root: Path
    name: str
    manifest: dict[str, Any]
    files: dict[str, int]
    policy_source: str

    @property
    def best(self) -> dict[str, Any] | None:
        """Number, config, score and policy's SHA-256 of the best trial; None where no trial succeeded."""
        found: dict[str, Any] | None = self.manifest.get("best")
        return found

    @property
    def best_config(self) -> dict[str, Any]:
        """The published optimum.

        Raises:
            BadInputError: no trial of the published search succeeded.
        """
        if self.best is None:
            raise BadInputError(f"{self.name}: no trial of the published search succeeded", "publish another run")
        return dict(self.best["config"])

    def space(self) -> ConfigSpace:
        """The space the search was made in.

        Raises:
            BadInputError: the manifest's space is none.
        """
        return ConfigSpace.from_dict(self.manifest["space"], "published")

    def read_text(self, name: str, most: int = _MAX_MANIFEST) -> str:
        """The text of one of the folder's files.

        Raises:
            BadInputError: it is missing, larger than `most` bytes, or no UTF-8 text.
        """
        return _read(self.root, name, self.files, most)


@contextmanager
def open_published(path: Path, limits: FolderLimits | None = None) -> Iterator[Published]:
    """Open a published folder, or an archive of one, after every name and size in it was looked at.

    Raises:
        BadInputError: it is hostile (see `policies.unpacking`), no published folder, of another schema version, or its
            manifest or policy cannot be used.
    """
    with unpacked(path, limits) as root:
        yield read_published(root, path.name, limits)


def read_published(root: Path, name: str = "", limits: FolderLimits | None = None) -> Published:
    """As `open_published`, for a folder."""
    files = list_files(root, limits)
    if MANIFEST not in files:
        raise BadInputError(f"{name or root}: there is no {MANIFEST}", "give a folder that `ccl-search publish` wrote")
    manifest = parse_manifest(_read(root, MANIFEST, files, _MAX_MANIFEST))
    source = _read(root, POLICY, files, _MAX_POLICY) if POLICY in files else ""
    if manifest.get("best") is not None and not source.strip():
        raise BadInputError(f"{POLICY} is missing or empty", "get the folder again")
    return Published(root, name or root.name, manifest, files, source)


def parse_manifest(text: str) -> dict[str, Any]:
    """The manifest from its text, with every section there and of its type.

    Raises:
        BadInputError: it is no YAML, uses aliases, is of another schema or version, or lacks a section.
    """
    document = _safe_yaml(text)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BadInputError(f"{MANIFEST} does not say `schema: {SCHEMA}`", "give a folder `ccl-search publish` wrote")
    version = document.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BadInputError(
            f"{MANIFEST} has schema version {version!r}; this ccl-search reads version {SCHEMA_VERSION}",
            "use the version of ccl-search that the manifest names under `versions`",
        )
    for section, kind in _SECTIONS.items():
        if not isinstance(document.get(section), kind):
            raise BadInputError(f"{MANIFEST}: section `{section}` is missing or of the wrong kind", "get it again")
    _check_best(document.get("best"))
    for name, facts in document["files"].items():
        _check_listed(name, facts)
    return document


def bundled_names() -> tuple[str, ...]:
    """Names of the published searches that come with the product."""
    place = resources.files("policies").joinpath("published")
    if not place.is_dir():
        return ()
    return tuple(sorted(each.name for each in place.iterdir() if each.joinpath(MANIFEST).is_file()))


def bundled_path(name: str) -> Path:
    """The folder of the bundled published search `name`.

    Raises:
        BadInputError: there is none; the hint lists those there are.
    """
    if name not in bundled_names():
        raise BadInputError(f"no published search is called {name!r}", f"bundled: {', '.join(bundled_names())}")
    return Path(str(resources.files("policies").joinpath("published", name)))


def locate(text: str) -> Path | None:
    """The folder or archive that `text` names: a path, or a bundled published search; None for anything else."""
    if Path(text).exists():
        return Path(text)
    return bundled_path(text) if text in bundled_names() else None


def require(text: str) -> Path:
    """As `locate`.

    Raises:
        BadInputError: `text` names nothing there is.
    """
    found = locate(text)
    if found is None:
        raise BadInputError(
            f"there is nothing at {text}",
            f"give a folder, an archive (.tar, .tar.gz, .tgz, .zip) or a bundled search: {', '.join(bundled_names())}",
        )
    return found


def _safe_yaml(text: str) -> Any:
    """YAML without aliases, which can make a small text into an endless document, and without deep nesting."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise BadInputError(f"{MANIFEST} uses YAML anchors or aliases", "a published manifest has none")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise BadInputError(f"{MANIFEST} is nested more than {_MAX_DEPTH} deep", "get it again")
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError) as error:
        raise BadInputError(f"{MANIFEST} is no YAML: {error}", "get it again") from error


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_best(best: Any) -> None:
    if best is None:
        return
    known = isinstance(best, dict) and type(best.get("trial")) is int and isinstance(best.get("config"), dict)
    if not known or not isinstance(best.get("policy_sha256"), str):
        raise BadInputError(f"{MANIFEST}: section `best` needs trial, config, score and policy_sha256", "get it again")


def _check_listed(name: Any, facts: Any) -> None:
    if not isinstance(name, str):
        raise BadInputError(f"{MANIFEST}: files lists {name!r}, which is no path", "get it again")
    check_name(name)
    digest = facts.get("sha256") if isinstance(facts, dict) else None
    if not isinstance(digest, str) or len(digest) != 64 or type(facts.get("size")) is not int or facts["size"] < 0:
        raise BadInputError(f"{MANIFEST}: {name} needs a size and a SHA-256", "get it again")


def _read(root: Path, name: str, files: Mapping[str, int], most: int) -> str:
    if name not in files:
        raise BadInputError(f"{name} is missing", "get the folder again")
    if files[name] > most:
        raise BadInputError(f"refused: {name} has {files[name]} bytes, at most {most} are allowed", "nothing was read")
    try:
        return (root / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{name} cannot be read: {error}", "get the folder again") from error
