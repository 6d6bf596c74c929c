"""The ledger: one file for every slice this home ever asked for, written before the request, so that none is lost."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

FOLDER = "tpu-slices"
LABEL = "ccl-search"
TOKEN_LABEL = "ccl-search-token"  # noqa: S105 - the name of a label
_UNFIT = re.compile(r"[^a-z0-9-]+")
_NAME_LENGTH = 40


class SliceState(StrEnum):
    """How far a slice is. `PLANNED` and `ASKED` may exist or not; `DELETING` was accepted, `DELETED` was looked for."""

    PLANNED = "planned"
    ASKED = "asked"
    GRANTED = "granted"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True)
class SliceRecord:
    """A slice in one zone. Its `token` is also a label of the real one: only where both agree is it ours to delete.

    `job` names the attempt it is for, `lifetime` is `trial` or `run`; `tries` counts requests, `not_before` is the
    time (seconds since the epoch) of the next one, `trouble` and `text` tell the last failure.
    """

    name: str
    zone: str
    token: str
    run_id: str
    job: str
    accelerator_type: str
    queued: bool
    lifetime: str
    created: float
    project: str | None = None
    state: SliceState = SliceState.PLANNED
    tries: int = 0
    not_before: float = 0.0
    trouble: str = ""
    text: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells it from every other record."""
        return f"{self.name}.{self.zone}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the real slice: the product, the run, the token."""
        return {LABEL: "1", "ccl-run": slug(self.run_id, 63), TOKEN_LABEL: self.token}

    @property
    def may_exist(self) -> bool:
        """Whether there may be something to delete."""
        return self.state in (SliceState.ASKED, SliceState.GRANTED, SliceState.DELETING)

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Whether a real slice with these labels is this one."""
        return labels.get(TOKEN_LABEL) == self.token


@dataclass(frozen=True)
class Ledger:
    """The records of one folder. Every change is a file put in place by renaming, on the disk before it returns."""

    folder: Path

    def save(self, record: SliceRecord) -> SliceRecord:
        """Write a record; it is on the disk when this returns.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(record.key)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        with temporary.open("w", encoding="utf-8") as stream:
            json.dump(asdict(record), stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        return record

    def load(self, key: str) -> SliceRecord | None:
        """The record of that key; None where there is none."""
        try:
            data = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return SliceRecord(**{**data, "state": SliceState(data["state"])})

    def records(self) -> list[SliceRecord]:
        """All records, oldest first."""
        keys = sorted(path.stem for path in self.folder.glob("*.json")) if self.folder.is_dir() else []
        found = [record for record in map(self.load, keys) if record is not None]
        return sorted(found, key=lambda record: (record.created, record.key))

    def of_run(self, run_id: str) -> list[SliceRecord]:
        """Records of slices that live as long as a run and may exist or be asked for, oldest first."""
        alive = (SliceState.PLANNED, SliceState.ASKED, SliceState.GRANTED)
        return [r for r in self.records() if r.run_id == run_id and r.lifetime == "run" and r.state in alive]

    def workplace(self, record: SliceRecord) -> Path:
        """A folder for what follows the request."""
        return self.folder / f"{record.key}.d"

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def ledger_for(directory: Path, chosen: str | None = None) -> Ledger:
    """The ledger of the run whose trial keeps its files in `directory`, or the folder the target file names."""
    if chosen:
        return Ledger(Path(chosen).expanduser().absolute())
    above = directory.resolve().parent
    return Ledger((above.parent if above.name == "trials" else above) / FOLDER)


def all_ledgers(home: Path) -> list[Ledger]:
    """Every ledger below a home folder."""
    return [Ledger(path) for path in sorted(home.glob(f"runs/*/{FOLDER}")) if path.is_dir()]


def new_token() -> str:
    """Twelve hexadecimal digits that no other slice has."""
    return secrets.token_hex(6)


def slice_name(run_id: str, job: str, token: str) -> str:
    """A name the service takes (lower case, digits, hyphens, a letter first, at most 63), new with every token."""
    return f"ccl-{slug(f'{run_id}-{job}', _NAME_LENGTH)}-{token[:8]}"


def slug(text: str, longest: int) -> str:
    """`text` in lower-case letters, digits and hyphens, from its end when too long."""
    return _UNFIT.sub("-", text.lower())[-longest:].strip("-") or "x"


def failed(record: SliceRecord, trouble: str, text: str) -> SliceRecord:
    """The record with a failure noted."""
    return replace(record, trouble=trouble, text=text)
