"""How a search screens: what the user asked for, with the calibration and the error that the decisions rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.calibration import UNCALIBRATED, Calibration
from runs.errors import BadInputError

if TYPE_CHECKING:
    from ccl_search.calibrating.files import CalibrationFile
    from ccl_search.targets import Target

DRY_RUN = "dry-run"
DEFAULT_FACTOR = 2.5
"""Error allowed for where nothing was held out: nine of ten uncalibrated predictions of the recorded Perlmutter trials
lie within this factor of the measured step time, once their common bias is taken out (docs/searching.md)."""
MOST_CANDIDATES = 100
_NORMAL_90_OVER_50 = 1.6449 / 0.6745


@dataclass(frozen=True)
class ScreenPlan:
    """What a run's screen does; stored with the run, so that a resumed one decides alike.

    `candidates` proposals that pass are compared in every iteration. `check` is the share of hopeless ones that is
    launched all the same. `factor` is the error that decisions allow for, `basis` says where it is from.
    """

    target: str
    candidates: int
    check: float
    calibration: Calibration
    factor: float
    basis: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the run's row."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ScreenPlan:
        """The inverse of `as_dict`."""
        return cls(**{**data, "calibration": Calibration.from_dict(data["calibration"])})


def resolve(text: str, check: float, target: Target, home: Path | None = None) -> ScreenPlan:
    """The plan behind `--screen TEXT --screen-check SHARE` for a search on `target`.

    The calibration is that of the screen's own target file, else the one that the file of `target` names.

    Raises:
        BadInputError: `text` is no `dry-run[:K]` or `FILE.yaml[:K]`, the file is no dry run, or `check` is no share.
    """
    from ccl_search import targets

    name, candidates = parse(text)
    if not 0 <= check <= 1:
        raise BadInputError(f"--screen-check {check:g} is no share", "give a number from 0 to 1")
    screen = targets.find(name, home)
    if screen.kind != DRY_RUN:
        raise BadInputError(
            f"--screen {text}: {screen.name} is no dry run", "screen with dry-run, or a file of its kind"
        )
    if screen.backend != "flow":
        raise BadInputError(
            f"--screen {text}: {screen.name} simulates with {screen.backend}, screens with flow only",
            "screen with dry-run, or a file without a backend",
        )
    fitted = screen.calibration or target.calibration
    factor, basis = allowed_error(fitted)
    return ScreenPlan(screen.name, candidates, check, fitted.calibration if fitted else UNCALIBRATED, factor, basis)


def parse(text: str) -> tuple[str, int]:
    """The target's name and the count of candidates of `dry-run:4`; one candidate unless given.

    Raises:
        BadInputError: the count is no whole number from 1 to `MOST_CANDIDATES`.
    """
    name, colon, count = text.rpartition(":")
    if not colon:
        return text, 1
    if not count.isdecimal() or not 1 <= int(count) <= MOST_CANDIDATES or not name:
        raise BadInputError(
            f"--screen {text}: {count!r} is no count of candidates", f"as dry-run:4, with 1 to {MOST_CANDIDATES}"
        )
    return name, int(count)


def allowed_error(fitted: CalibrationFile | None) -> tuple[float, str]:
    """The factor by which predictions may be off either way, and the sentence that says why.

    It is what nine of ten held-out configs of the calibration kept to. Where a file has the median only, the ratio of
    the two is taken to be that of a normal distribution.
    """
    if fitted is None:
        return DEFAULT_FACTOR, f"uncalibrated, so an error of {DEFAULT_FACTOR:g} times is allowed for"
    name, held_out = fitted.calibration.name, fitted.fit.get("held_out") or {}
    if value := _value(held_out, "factor_90"):
        return value, f"calibration {name}: 9 of 10 held-out configs within a factor of {value:.3g}"
    if median := _value(held_out, "median_error"):
        value = math.exp(math.log1p(median) * _NORMAL_90_OVER_50)
        return value, f"calibration {name}: held-out error {median:.1%} (median), so 9 of 10 within about {value:.3g}"
    return DEFAULT_FACTOR, f"calibration {name} has no held-out error, so {DEFAULT_FACTOR:g} times is allowed for"


def _value(errors: Mapping[str, Any], name: str) -> float | None:
    found = errors.get(name)
    return float(found["value"]) if isinstance(found, Mapping) and found.get("value") else None
