"""Submitting: exactly once, with options that are quoted, and with an error that says what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers.shell.command import Command
from launchers.slurm.allocation import AllocationLauncher
from launchers.slurm.launcher import SlurmLauncher
from launchers.slurm.settings import SlurmSettings
from launchers.slurm.submission import Refusal, header, job_id, minutes, refusal
from runs.errors import BadInputError, TargetUnavailableError
from tests.launchers import jobs
from tests.launchers.slurm.doubles import Answer, ScriptedSlurm, queue

TIMED_OUT: Answer = (None, "")
LIMIT: Answer = (
    1,
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates",
)


def launcher(slurm: ScriptedSlurm, **fields: Any) -> tuple[SlurmLauncher, list[float]]:
    slept: list[float] = []
    return SlurmLauncher(SlurmSettings(**fields), runner=slurm, sleep=slept.append), slept


def submitted(slurm: ScriptedSlurm) -> list[tuple[str, ...]]:
    return [argv for argv in slurm.asked if argv[0] == "sbatch" and "--parsable" in argv]


def test_a_plain_submission(tmp_path: Path) -> None:
    slurm = ScriptedSlurm(answers={"sbatch": ["17;cluster\n"]})
    handle = launcher(slurm)[0].submit(jobs.job(tmp_path, jobs.bash("true")))
    assert handle["job_id"] == "17"
    assert [argv[0] for argv in slurm.asked] == ["squeue", "sbatch", "sbatch"]
    assert "--test-only" in slurm.asked[1]
    assert "--job-name=ccl-run-1-1" in submitted(slurm)[0]
    assert (tmp_path / "attempt-1" / "job.sh").read_text().startswith("#!/bin/bash\n#SBATCH --nodes=1\n")


def test_after_a_timeout_the_job_is_looked_up_before_it_is_submitted_again(tmp_path: Path) -> None:
    job = jobs.job(tmp_path, jobs.bash("true"))
    slurm = ScriptedSlurm(answers={"sbatch": [TIMED_OUT]})
    first, _ = launcher(slurm, preflight=False)
    with pytest.raises(TargetUnavailableError):
        first.submit(job)
    mark = next(word for word in submitted(slurm)[0] if word.startswith("--comment=")).removeprefix("--comment=")
    slurm = ScriptedSlurm(answers={"squeue": ["", queue("9", "RUNNING", comment=mark)], "sbatch": [TIMED_OUT, "10"]})
    second, slept = launcher(slurm, preflight=False)
    assert second.submit(job)["job_id"] == "9"
    assert len(submitted(slurm)) == 1
    assert slept == [2.0]


def test_a_job_that_did_not_get_through_is_submitted_again(tmp_path: Path) -> None:
    refused: Answer = (1, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect)")
    slurm = ScriptedSlurm(answers={"sbatch": [refused, LIMIT, "11"]})
    found, slept = launcher(slurm, preflight=False)
    assert found.submit(jobs.job(tmp_path, jobs.bash("true")))["job_id"] == "11"
    assert slept == [2.0, 5.0]
    assert slurm.count("squeue") == 3


def test_nothing_is_submitted_while_nobody_can_say_what_is_in_the_queue(tmp_path: Path) -> None:
    slurm = ScriptedSlurm(answers={"squeue": [(1, "Unable to contact slurm controller")], "sbatch": ["11"]})
    with pytest.raises(TargetUnavailableError, match="does not answer"):
        launcher(slurm)[0].submit(jobs.job(tmp_path, jobs.bash("true")))
    assert submitted(slurm) == []


def test_an_ended_job_of_the_name_is_no_reason_not_to_submit(tmp_path: Path) -> None:
    rows = queue("8", "PREEMPTED") + queue("9", "COMPLETED", name="ccl-run-1-2")
    slurm = ScriptedSlurm(answers={"squeue": [rows], "sbatch": ["11"]})
    assert launcher(slurm)[0].submit(jobs.job(tmp_path, jobs.bash("true"), attempt=3))["job_id"] == "11"
    assert slurm.count("scancel") == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("sbatch: error: invalid partition specified: nope", Refusal.TARGET),
        ("Batch job submission failed: Invalid account or account/partition combination specified", Refusal.TARGET),
        ("Batch job submission failed: Invalid qos specification", Refusal.TARGET),
        ("allocation failure: Requested node configuration is not available", Refusal.JOB),
        ("Batch job submission failed: Socket timed out on send/recv operation", Refusal.RETRY),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)", Refusal.WAIT),
        ("sbatch: error: QOSMaxNodePerJobLimit\nBatch job submission failed: Job violates ...", Refusal.JOB),
        ("sbatch: error: AssocMaxGRESPerJob\nBatch job submission failed: Job violates ...", Refusal.JOB),
        ("sbatch: error: QOSMaxWallDurationPerJobLimit\nBatch job submission failed: Job violates", Refusal.TARGET),
        ("sbatch: error: AssocMaxSubmitJobLimit\nBatch job submission failed: Job violates", Refusal.WAIT),
        ("something new", Refusal.JOB),
    ],
)
def test_what_refusals_call_for(text: str, kind: Refusal) -> None:
    assert refusal(text)[0] is kind
    assert refusal(text)[1]


def test_the_preflight_asks_twice_before_it_refuses_a_job(tmp_path: Path) -> None:
    no: Answer = (1, "allocation failure: Requested node configuration is not available")
    slurm = ScriptedSlurm(answers={"test": [no, "starts at once"], "sbatch": ["11"]})
    assert launcher(slurm)[0].submit(jobs.job(tmp_path, jobs.bash("true")))["job_id"] == "11"
    slurm = ScriptedSlurm(answers={"test": [no], "sbatch": ["11"]})
    with pytest.raises(BadInputError, match="not available"):
        launcher(slurm)[0].submit(jobs.job(tmp_path, jobs.bash("true")))
    assert submitted(slurm) == []


def test_a_full_queue_does_not_fail_the_preflight(tmp_path: Path) -> None:
    slurm = ScriptedSlurm(answers={"test": [LIMIT], "sbatch": ["11"]})
    assert launcher(slurm)[0].submit(jobs.job(tmp_path, jobs.bash("true")))["job_id"] == "11"


def test_every_setting_becomes_an_option() -> None:
    settings = SlurmSettings(
        account="m1", partition="p", qos="q", constraint="gpu&hbm80g", reservation="r", cpus_per_task=32, memory="0",
        exclusive=True, gpu_request="gres", gpu_type="h100", extra=("--comment=two words", "-x n1"), requeue=True,
    )  # fmt: skip
    command = Command(("x",), nodes=3, xpus_per_node=8)
    assert header(command, settings, 601) == [
        f"#SBATCH {option}"
        for option in (
            "--nodes=3", "--ntasks-per-node=1", "--time=11", "--gres=gpu:h100:8", "--account=m1", "--partition=p",
            "--qos=q", "--constraint=gpu&hbm80g", "--reservation=r", "--cpus-per-task=32", "--mem=0", "--exclusive",
            "--requeue", "--open-mode=append", '"--comment=two words"', '"-x n1"',
        )
    ]  # fmt: skip


def test_the_command_line_says_what_the_script_says(tmp_path: Path) -> None:
    """Variables like SBATCH_TIMELIMIT stand over a script's own lines, but not over the command line."""
    slurm = ScriptedSlurm(answers={"sbatch": ["11"]})
    found, _ = launcher(slurm)
    job = jobs.job(tmp_path, jobs.bash("true"))
    found.submit(job)
    lines = [line.removeprefix("#SBATCH ") for line in found.script(job).splitlines() if line.startswith("#SBATCH ")]

    assert "--no-requeue" in lines and any(line.startswith("--time=") for line in lines)
    for argv in [argv for argv in slurm.asked if argv[0] == "sbatch"]:
        assert set(lines) <= set(argv)


def test_an_option_cannot_smuggle_in_a_line() -> None:
    with pytest.raises(BadInputError, match="line break"):
        header(jobs.bash("true"), SlurmSettings(extra=("-x\nrm -rf /",)), 60)


@pytest.mark.parametrize(("seconds", "wanted"), [(1, 1), (60, 1), (61, 2), (3600, 60)])
def test_time_limits_are_whole_minutes(seconds: float, wanted: int) -> None:
    assert minutes(seconds) == wanted


@pytest.mark.parametrize("text", ["17\n", "17;cluster\n", "Lua says hello\n17\n"])
def test_ids(text: str) -> None:
    assert job_id(text) == "17"


def test_exclusive_nodes_are_charged_whole(tmp_path: Path) -> None:
    slurm = ScriptedSlurm(answers={"sbatch": ["11"]})
    job = jobs.job(tmp_path, jobs.bash("true", nodes=1, xpus_per_node=2))
    assert launcher(slurm)[0].submit(job)["held"] == 2
    assert launcher(slurm, exclusive=True)[0].submit(replace(job, attempt=2))["held"] == 4
    assert launcher(slurm, exclusive=True, gpus_per_node=8)[0].submit(replace(job, attempt=3))["held"] == 8


def test_a_job_without_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no command"):
        launcher(ScriptedSlurm())[0].submit(jobs.job(tmp_path, None))


def test_a_command_of_another_size_than_the_plan_is_refused(tmp_path: Path) -> None:
    job = replace(jobs.job(tmp_path, jobs.bash("true", nodes=2)), command=jobs.bash("true", nodes=3))
    with pytest.raises(BadInputError, match="uses 3 devices, its plan 2"):
        launcher(ScriptedSlurm())[0].submit(job)


# --- allocations ----------------------------------------------------------------------------------------------------


def test_no_allocation_no_launcher() -> None:
    with pytest.raises(TargetUnavailableError, match="SLURM_JOB_ID") as caught:
        AllocationLauncher(SlurmSettings(), environment={})
    assert "salloc" in caught.value.hint


def test_unequal_allocations_are_refused() -> None:
    with pytest.raises(BadInputError, match="heterogeneous") as caught:
        AllocationLauncher(SlurmSettings(), environment={"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"})
    assert "one kind of node" in caught.value.hint


def test_a_config_larger_than_the_allocation_is_refused(tmp_path: Path) -> None:
    held = AllocationLauncher(SlurmSettings(), environment={"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"})
    with pytest.raises(BadInputError, match="needs 3 nodes, the allocation 7 has 2"):
        held.submit(jobs.job(tmp_path, jobs.bash("true", nodes=3)))
    assert "srun" in held.script(jobs.job(tmp_path, jobs.bash("true", nodes=2)))
