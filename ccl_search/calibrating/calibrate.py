"""From measurements to a stored calibration: the fit on all of them, and its error on those it did not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccl_search.calibrating import validation
from ccl_search.calibrating.files import CalibrationFile, check_name
from ccl_search.calibrating.fitting import Anchors, Model, fit
from ccl_search.calibrating.measurements import Measurements, replicate_spread
from ccl_search.calibrating.parameters import PARAMETERS, Point, calibration, link_costs

if TYPE_CHECKING:
    from backends.calibration import Calibration
    from ccl_search.calibrating.parameters import Vector
    from ccl_search.calibrating.validation import Errors


@dataclass(frozen=True)
class Fitted:
    """A fit to all measurements and three errors: without calibration, where it was fitted, and held out.

    `predictions` are the mean held-out step times in seconds, in the order of the measured configs.
    """

    point: Point
    uncalibrated: Errors
    fitted: Errors
    held_out: Errors
    predictions: tuple[float, ...]
    repeats: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        factors = dict(zip((parameter.name for parameter in PARAMETERS), self.point.costs.tolist(), strict=True))
        return {
            "method": "robust least squares on log step time, prior at 1",
            "cross_validation": f"{validation.FOLDS}-fold, {self.repeats} repeats",
            "uncalibrated": self.uncalibrated.as_dict(),
            "in_sample": self.fitted.as_dict(),
            "held_out": self.held_out.as_dict(),
            "costs": {name: round(cost, 6) for name, cost in factors.items()},
        }


def fitted(
    model: Model, measured: Vector, repeats: int = validation.REPEATS, seed: int = 0, overhead: bool = True,
    kept: Mapping[int, float] | None = None,
) -> Fitted:  # fmt: skip
    """Fit `model` to `measured` (n,) times in seconds and cross-validate the fit.

    Without `overhead` no constant is added. `kept` are costs by place that are not fitted (see `fitting.Anchors`).
    """
    anchors = Anchors(model, overhead, kept or {})
    everything = range(len(measured))
    point = fit(anchors, measured, everything)
    inside = np.array([[model.seconds(index, point.costs) + point.overhead_s for index in everything]])
    outside = validation.held_out(anchors, measured, repeats, seed)
    return Fitted(
        point,
        validation.errors(validation.uncalibrated(anchors, len(measured)), measured, seed),
        validation.errors(inside, measured, seed),
        validation.errors(outside, measured, seed),
        tuple(outside.mean(axis=0).tolist()),
        repeats,
    )


def calibrate(
    measurements: Measurements,
    name: str,
    repeats: int = validation.REPEATS,
    seed: int = 0,
    notice: Callable[[str], None] = lambda _: None,
    links: Sequence[Calibration] = (),
) -> CalibrationFile:
    """Fit the built-in simulator to `measurements`, as a calibration called `name`; `notice` hears of doubts.

    Where `links` are given, bandwidths and latencies are theirs (the geometric mean of several) and not fitted.

    Raises:
        BadInputError: the name is unusable, or there are too few distinct configs.
        CclSearchError: a measured config cannot be simulated.
    """
    from backends.flow.simulate import BACKEND, VERSION
    from ccl_search.calibrating.simulator import SimulatedSteps
    from ccl_search.version import version

    check_name(name)
    measurements.require_enough()
    if len(measurements.stacks) > 1:
        listed = ", ".join(measurements.stacks)
        notice(f"one calibration for {len(measurements.stacks)} software stacks ({listed}); --where picks one")
    measured = np.array([config.median for config in measurements.configs])
    kept = link_costs(links) if links else None
    found = fitted(SimulatedSteps(measurements.configs), measured, repeats, seed, kept=kept)
    provenance = {
        **measurements.provenance(),
        **({"links_of": [each.name for each in links]} if links else {}),
        "product_version": version(),
        "backend": BACKEND,
        "backend_version": VERSION,
        "seed": seed,
    }
    spread = asdict(replicate_spread(measurements.configs))
    data = {**found.as_dict(), "replicate_spread": spread}
    return CalibrationFile(calibration(name, found.point, measurements.source), provenance, data)
