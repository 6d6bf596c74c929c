"""`Screening`: what a cheap simulation said of a proposal before anything was launched, and what came of it.

Predictions never are metric values of the trial: they are kept here, with the backend and calibration that made them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """What a screen decided about one proposal."""

    PASSED = "passed"
    CHECKED = "checked"
    UNKNOWN = "unknown"
    HOPELESS = "hopeless"
    OUTRANKED = "outranked"
    OUT_OF_MEMORY = "out_of_memory"

    @property
    def is_launched(self) -> bool:
        """Whether the proposal went on to the target.

        `passed`: it may well be the best; `checked`: predicted hopeless, launched to see whether the screen errs;
        `unknown`: there was nothing to judge it by.
        """
        return self in (Verdict.PASSED, Verdict.CHECKED, Verdict.UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Screening:
    """One decision of a screen, with the numbers that led to it.

    `predicted` are simulated metric values, `expected` the same after the run's own measured trials corrected them
    (both by metric name, in the metric's unit). `score` is that of `expected`; a proposal whose score lies below
    `threshold` was hopeless. `reference` is the measured trial that the threshold is from, `factor` the error allowed
    for (1.4: predictions may be 1.4 times off either way). `candidates` of the iteration were compared. `seconds` is
    what the simulation took.
    """

    verdict: Verdict
    reason: str
    predicted: dict[str, float] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    score: float | None = None
    threshold: float | None = None
    factor: float | None = None
    reference: int | None = None
    candidates: int = 1
    backend: str = ""
    backend_version: str = ""
    calibration: str = ""
    seconds: float | None = None
