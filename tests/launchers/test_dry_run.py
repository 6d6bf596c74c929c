"""The dry-run launcher: contract, files left behind, and how each kind of bad plan ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launchers.base import Job, JobState, Launcher
from launchers.dry_run import DryRunLauncher, from_settings
from runs import catalogue
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.trial import FailureClass, Fidelity, TrialState
from tests.backends.doubles import FSDP_STATE, SERVING_STATE, perlmutter, read_trace, training_plan

WL4 = catalogue.workload("wl4")
GOOD = training_plan(WL4, tp=4, dp_shard=4, state_bytes=FSDP_STATE)


def job(directory: Path, plan: ParallelPlan = GOOD, workload: str = "wl4") -> Job:
    return Job("run", 0, 0, directory, catalogue.workload(workload), perlmutter(), {"tp": plan.tp}, plan, "", 60.0)


def test_a_simulated_job_succeeds_at_no_accelerator_cost(tmp_path: Path) -> None:
    launcher: Launcher = DryRunLauncher()
    handle = launcher.submit(job(tmp_path))
    assert launcher.poll(handle) is JobState.FINISHED
    done = launcher.collect(handle)
    assert done.state is TrialState.SUCCEEDED
    assert done.fidelity is Fidelity.SIMULATED
    assert done.xpu_hours == 0.0
    assert done.seconds is not None and done.seconds > 0
    assert done.trace_dir == tmp_path / "trace"
    assert done.provenance["backend"] == "flow"
    assert done.provenance["version"]
    assert done.provenance["calibration"] == "uncalibrated"


def test_it_leaves_a_trace_and_a_protocol(tmp_path: Path) -> None:
    launcher = DryRunLauncher()
    launcher.submit(job(tmp_path))
    protocol = json.loads((tmp_path / "execution.json").read_text())
    assert (protocol["warmup_steps"], protocol["recorded_steps"], protocol["decode_steps"]) == (5, 5, 0)
    assert (protocol["backend"], protocol["calibration"]) == ("flow", "uncalibrated")
    read = read_trace(tmp_path / "trace" / "rank0_trace.json")
    assert read.wall == pytest.approx(protocol["simulated"]["wall_s"], rel=1e-3)


def test_serving_records_its_decode_steps(tmp_path: Path) -> None:
    plan = ParallelPlan("vllm", tp=4, cuda_graph=True, state_bytes=SERVING_STATE)
    DryRunLauncher().submit(job(tmp_path, plan, "wl2"))
    assert json.loads((tmp_path / "execution.json").read_text())["decode_steps"] == 128


def test_a_handle_is_plain_data_that_another_launcher_can_use(tmp_path: Path) -> None:
    handle = json.loads(json.dumps(DryRunLauncher().submit(job(tmp_path))))
    assert DryRunLauncher().collect(handle).state is TrialState.SUCCEEDED


def test_too_little_memory_is_an_oom_with_its_parts(tmp_path: Path) -> None:
    launcher = DryRunLauncher()
    handle = launcher.submit(job(tmp_path, training_plan(WL4, dp_replicate=4)))
    failed = launcher.collect(handle)
    assert (failed.state, failed.failure) == (TrialState.FAILED, FailureClass.OOM)
    assert "optimizer 89.7" in failed.evidence
    assert "40.0 GiB there" in failed.evidence
    assert not (tmp_path / "trace").exists()


def test_a_margin_can_be_set(tmp_path: Path) -> None:
    plan = training_plan(WL4, dp_replicate=4)
    launcher = DryRunLauncher(memory_margin=5.0)
    assert launcher.collect(launcher.submit(job(tmp_path, plan))).state is TrialState.SUCCEEDED


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (ParallelPlan("test", tp=4, num_microbatches=1), "sequences a step"),
        (training_plan(WL4, tp=16, pp=2), "takes 32 devices"),
        (training_plan(WL4, tp=4, pp=8, pipeline_schedule="interleaved"), "multiples"),
    ],
)
def test_impossible_plans_fail_with_the_reason(tmp_path: Path, plan: ParallelPlan, message: str) -> None:
    launcher = DryRunLauncher()
    failed = launcher.collect(launcher.submit(job(tmp_path, plan)))
    assert (failed.state, failed.failure) == (TrialState.FAILED, FailureClass.FRAMEWORK_ERROR)
    assert message in failed.evidence


def test_a_missing_outcome_is_unknown_and_collects_as_a_launch_failure(tmp_path: Path) -> None:
    launcher = DryRunLauncher()
    handle = {"launcher": "dry-run", "directory": str(tmp_path), "attempt": 0}
    assert launcher.poll(handle) is JobState.UNKNOWN
    failed = launcher.collect(handle)
    assert failed.failure is FailureClass.LAUNCH
    assert "execution.json is missing" in failed.evidence


def test_cancelling_twice_or_an_unknown_job_is_no_error(tmp_path: Path) -> None:
    launcher = DryRunLauncher()
    handle = launcher.submit(job(tmp_path))
    launcher.cancel(handle)
    launcher.cancel({"directory": str(tmp_path / "nowhere")})
    assert launcher.poll(handle) is JobState.FINISHED


def test_a_second_attempt_replaces_the_first(tmp_path: Path) -> None:
    launcher = DryRunLauncher()
    launcher.submit(job(tmp_path, training_plan(WL4, dp_replicate=4)))
    handle = launcher.submit(job(tmp_path))
    assert launcher.collect(handle).state is TrialState.SUCCEEDED


def test_an_unwritable_directory_is_the_callers_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        DryRunLauncher().submit(job(tmp_path / "file" / "below"))


def test_settings_build_a_launcher(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"calibration": {"name": "fit", "step_overhead_s": 1.0}, "compress": True}
    launcher = from_settings(settings)
    done = launcher.collect(launcher.submit(job(tmp_path)))
    assert done.provenance["calibration"] == "fit"
    assert read_trace(tmp_path / "trace" / "rank0_trace.json.gz").wall > 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"speed": 9}, "unknown setting"),
        ({"backend": "x"}, "no backend"),
        ({"calibration": "mine"}, "no mapping"),
        ({"calibration": {"speed": 2.0}}, "speed"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        from_settings(settings)
