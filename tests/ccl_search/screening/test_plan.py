"""What `--screen` asks for, which calibration it predicts with, and where the error that it allows for is from."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from backends.calibration import Calibration
from ccl_search import targets
from ccl_search.calibrating.files import CalibrationFile
from ccl_search.screening.plan import DEFAULT_FACTOR, ScreenPlan, allowed_error, parse, resolve
from runs.errors import BadInputError

DRY_RUN = targets.find("dry-run")


def fitted(**held_out: float) -> CalibrationFile:
    errors = {name: {"value": value, "low": value, "high": value} for name, value in held_out.items()}
    return CalibrationFile(Calibration("mine", launch=2.0), fit={"held_out": errors})


@pytest.mark.parametrize(
    ("text", "meant"), [("dry-run", ("dry-run", 1)), ("dry-run:4", ("dry-run", 4)), ("a/b.yaml:12", ("a/b.yaml", 12))]
)
def test_a_count_of_candidates_may_follow(text: str, meant: tuple[str, int]) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize("text", ["dry-run:", "dry-run:0", "dry-run:-1", "dry-run:two", "dry-run:101", ":3"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="no count of candidates"):
        parse(text)


def test_a_screen_is_a_dry_run(tmp_path: Path) -> None:
    (tmp_path / "here.yaml").write_text("name: here\nkind: local\n")
    with pytest.raises(BadInputError, match="here is no dry run"):
        resolve(str(tmp_path / "here.yaml"), 0.0, DRY_RUN)
    with pytest.raises(BadInputError, match="no target is called"):
        resolve("astrology", 0.0, DRY_RUN)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_check_is_a_share(share: float) -> None:
    with pytest.raises(BadInputError, match="no share"):
        resolve("dry-run", share, DRY_RUN)


def test_without_a_calibration_the_default_is_stated() -> None:
    plan = resolve("dry-run:3", 0.2, DRY_RUN)
    assert (plan.candidates, plan.check, plan.factor) == (3, 0.2, DEFAULT_FACTOR)
    assert plan.calibration == Calibration()
    assert "uncalibrated" in plan.basis


def test_nine_of_ten_held_out_configs_give_the_factor() -> None:
    assert allowed_error(fitted(factor_90=1.62, median_error=0.1))[0] == 1.62


def test_a_median_alone_is_widened_as_a_normal_distribution_would_be() -> None:
    # |deviation| of a standard normal: median 0.6745, 90th percentile 1.6449
    factor, basis = allowed_error(fitted(median_error=0.15))
    assert math.log(factor) == pytest.approx(math.log(1.15) * 1.6449 / 0.6745, rel=1e-3)
    assert "15.0%" in basis


def test_a_calibration_without_held_out_step_times_gives_the_default() -> None:
    factor, basis = allowed_error(CalibrationFile(Calibration("links"), fit={"held_out_collectives": {}}))
    assert factor == DEFAULT_FACTOR
    assert "links has no held-out error" in basis


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """A Slurm target that names a calibration file beside it."""
    document = {**fitted(factor_90=1.3).as_dict(), "provenance": {"source": "trials.csv", "rows_used": ["line 2"]}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(document))
    path = tmp_path / "cluster.yaml"
    path.write_text("name: cluster\nkind: slurm\nslurm: {account: a}\ncalibration: mine.yaml\n")
    return path


def test_the_targets_calibration_is_taken_and_stored_with_it(calibrated: Path) -> None:
    target = targets.find(str(calibrated))
    plan = resolve("dry-run", 0.0, target)
    assert (plan.calibration.launch, plan.factor) == (2.0, 1.3)
    (calibrated.parent / "mine.yaml").unlink()
    again = targets.of_run(target.name, target.content)
    assert resolve("dry-run", 0.0, again) == plan
    assert "rows_used" not in str(target.content)


def test_the_screens_own_calibration_comes_first(calibrated: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("format: 1\nname: other\nfactors: {launch: 3.0}\n")
    (tmp_path / "screen.yaml").write_text("name: screen\nkind: dry-run\ndry_run: {calibration: other.yaml}\n")
    plan = resolve(f"{tmp_path / 'screen.yaml'}:2", 0.0, targets.find(str(calibrated)))
    assert (plan.calibration.name, plan.calibration.launch, plan.target) == ("other", 3.0, "screen")


def test_a_missing_calibration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("name: cluster\nkind: slurm\ncalibration: nowhere\n")
    with pytest.raises(BadInputError, match="no calibration is called 'nowhere'"):
        targets.find(str(path), tmp_path)


def test_a_plan_survives_being_stored() -> None:
    plan = ScreenPlan("dry-run", 4, 0.1, Calibration("mine", bandwidth={"inter_node": 0.3}), 1.4, "because")
    assert ScreenPlan.from_dict(plan.as_dict()) == plan
