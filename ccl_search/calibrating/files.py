"""Named calibrations: YAML files in `<home>/calibrations/` that hold factors, where they are from, and their error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.calibration import UNCALIBRATED, Calibration
from runs.errors import BadInputError
from runs.yaml_file import read_yaml

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BY_CLASS = ("compute", "bandwidth", "latency")
_FACTORS = (*_BY_CLASS, "launch", "step_overhead_s")


@dataclass(frozen=True)
class CalibrationFile:
    """One stored calibration: the factors, its provenance (plain data), and the error of its fit (plain data)."""

    calibration: Calibration
    provenance: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as the file has it."""
        factors = {name: _plain(getattr(self.calibration, name)) for name in _FACTORS}
        head = {"format": FORMAT, "name": self.calibration.name}
        return {**head, "factors": factors, "provenance": dict(self.provenance), "fit": dict(self.fit)}

    def summary(self) -> dict[str, Any]:
        """What a target keeps of it: the factors and the held-out error, in the file's own form."""
        found = self.as_dict()
        source = {"source": self.calibration.source}
        return {**found, "provenance": source, "fit": {k: v for k, v in self.fit.items() if k == "held_out"}}


def folder(home: str | None) -> Path:
    """Where the calibrations of `home` are (see `runs.store.resolve_home`); it need not exist."""
    from runs.store import resolve_home

    return resolve_home(Path(home) if home else None) / "calibrations"


def check_name(name: str) -> None:
    """Return if `name` can name a calibration.

    Raises:
        BadInputError: it cannot, or it is the neutral one's.
    """
    if not _NAME.fullmatch(name) or name == UNCALIBRATED.name:
        raise BadInputError(
            f"a calibration cannot be called {name!r}",
            "letters, digits, '.', '_' and '-', at most 64; not uncalibrated",
        )


def save(stored: CalibrationFile, home: str | None) -> Path:
    """Write `stored` as `<home>/calibrations/NAME.yaml`, over an older one of that name; returns the path.

    Raises:
        BadInputError: the name is unusable.
        OSError: the file cannot be written.
    """
    import yaml

    check_name(stored.calibration.name)
    path = folder(home) / f"{stored.calibration.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(yaml.safe_dump(stored.as_dict(), sort_keys=False, width=120), encoding="utf-8")
    temporary.replace(path)
    return path


def find(named: str | None, home: str | None) -> Calibration:
    """The calibration that a name or the path of a file stands for; None and `uncalibrated` are the neutral one.

    Raises:
        BadInputError: there is none, or the file is none.
    """
    if named is None or named == UNCALIBRATED.name:
        return UNCALIBRATED
    return find_file(named, home).calibration


def find_file(named: str, home: str | None) -> CalibrationFile:
    """As `find`, with what is known of the fit.

    Raises:
        BadInputError: there is none, or the file is none.
    """
    if named == UNCALIBRATED.name:
        return CalibrationFile(UNCALIBRATED)
    if Path(named).suffix in (".yaml", ".yml"):
        return read(Path(named))
    path = folder(home) / f"{named}.yaml"
    if not _NAME.fullmatch(named) or not path.is_file():
        known = ", ".join(each.calibration.name for each in stored(home)) or "none"
        raise BadInputError(f"no calibration is called {named!r} in {path.parent}", f"there: {known}; or name a file")
    return read(path)


def stored(home: str | None) -> list[CalibrationFile]:
    """All calibrations of `home`, by name.

    Raises:
        BadInputError: one of the files is no calibration.
    """
    return [read(path) for path in sorted(folder(home).glob("*.yaml"))]


def read(path: Path) -> CalibrationFile:
    """Read a calibration file.

    Raises:
        BadInputError: it cannot be read, or it is no calibration; the message names the file and the field.
    """
    return parse(read_yaml(path, "the calibration", "see docs/calibration.md"), path)


def parse(data: Any, path: Path | str) -> CalibrationFile:
    """The calibration of a file's content; `path` names it in messages.

    Raises:
        BadInputError: it is no calibration; the message names the field.
    """
    if not isinstance(data, dict) or not isinstance(data.get("factors"), dict) or not isinstance(data.get("name"), str):
        raise BadInputError(
            f"{path} is no calibration: it lacks name or factors", "write one with ccl-search calibrate"
        )
    if data.get("format") != FORMAT:
        raise BadInputError(
            f"{path} has format {data.get('format')!r}, this version reads {FORMAT}",
            "calibrate again with this version",
        )
    strange = sorted(set(map(str, data["factors"])) - set(_FACTORS))
    if strange:
        raise BadInputError(f"{path}: unknown factor {strange[0]}", f"factors are {', '.join(_FACTORS)}")
    factors = {name: _factor(name, value, f"{path}: {name}") for name, value in data["factors"].items()}
    provenance, fit = _section(data, "provenance", path), _section(data, "fit", path)
    source = str(provenance.get("source", ""))
    return CalibrationFile(Calibration(name=data["name"], source=source, **factors), provenance, fit)


def _section(data: dict[str, Any], name: str, path: Path | str) -> dict[str, Any]:
    found = data.get(name) or {}
    if not isinstance(found, dict):
        raise BadInputError(f"{path}: {name} is no mapping", "write one with ccl-search calibrate")
    return found


def _factor(name: str, value: Any, where: str) -> Any:
    """A factor as the calibration has it: one number, or one for each class of kernels or links."""
    if name not in _BY_CLASS:
        return _number(value, where)
    if not isinstance(value, dict):
        raise BadInputError(f"{where}: {value!r} is no mapping of classes to numbers", "fit it again or mend the entry")
    return {str(key): _number(each, f"{where}.{key}") for key, each in value.items()}


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputError(f"{where}: {value!r} is no number", "fit it again or mend the entry")
    return float(value)


def _plain(value: Any) -> Any:
    return {key: float(each) for key, each in value.items()} if isinstance(value, Mapping) else float(value)
