"""Classes of every end that Slurm 22.05 was seen to give a job, and what its commands print."""

from __future__ import annotations

import pytest

from launchers.shell.evidence import NOTHING, Evidence, find, weigh
from launchers.shell.result import Result, parse_result
from launchers.slurm.classify import Ending, classify
from launchers.slurm.rows import AccountRow, ControlRecord, account_rows, control_record, exit_status, queue_rows
from runs.trial import FailureClass

F = FailureClass
COLUMNS = "{id}|{name}|{state}|{exit}|{derived}|2026-11-30T10:00:00|2026-11-30T10:00:01|2026-11-30T10:00:31|30|2|n[1-2]"


def row(job_id: str, state: str, code: str = "0:0", derived: str = "") -> AccountRow:
    return account_rows(COLUMNS.format(id=job_id, name="x", state=state, exit=code, derived=derived))[0]


def control(code: str) -> ControlRecord:
    found = control_record(f"JobId=7 JobName=x JobState=FAILED Reason=NonZeroExitCode Restarts=0 ExitCode={code} ")
    assert found is not None
    return found


def ended(
    state: str, code: str = "0:0", derived: str = "", *steps: AccountRow, reason: str = "None", log: str = ""
) -> Ending:
    told = find(log.splitlines())
    evidence = weigh([told]) if told else NOTHING
    return Ending(state, reason, row("7", state, code, derived), steps, evidence=evidence)


CASES: dict[str, tuple[Ending, FailureClass | None]] = {
    "exit 0": (ended("COMPLETED", "0:0", "0:0"), None),
    "exit 3": (ended("FAILED", "3:0", "", row("7.batch", "FAILED", "3:0")), F.FRAMEWORK_ERROR),
    "a step fails, the script goes on": (
        ended("COMPLETED", "0:0", "7:0", row("7.0", "FAILED", "7:0")), F.FRAMEWORK_ERROR,
    ),
    "kill -9 in the script": (
        ended("FAILED", "0:9", "", row("7.batch", "CANCELLED", "0:9"), reason="JobLaunchFailure"), F.FRAMEWORK_ERROR,
    ),
    "segmentation fault passed on": (ended("FAILED", "11:0", log="Segmentation fault"), F.FRAMEWORK_ERROR),
    "exit 128, seven bits kept": (ended("FAILED", "0:0"), F.FRAMEWORK_ERROR),
    "exit 200, seven bits kept": (ended("FAILED", "72:0"), F.FRAMEWORK_ERROR),
    "over memory in the script": (ended("OUT_OF_MEMORY", "0:125"), F.OOM),
    "over memory in a step, exit 1": (ended("FAILED", "1:0", "0:125", row("7.0", "OUT_OF_MEMORY", "0:125")), F.OOM),
    "over memory in a step, exit 0": (ended("COMPLETED", "0:0", "0:125", row("7.0", "OUT_OF_MEMORY", "0:125")), F.OOM),
    "over memory in a step, no step rows": (ended("COMPLETED", "0:0", "0:125"), F.OOM),
    "over memory without cgroups": (
        ended(
            "FAILED", "0:9", "", row("7.0", "CANCELLED by 0", "0:9"), reason="JobLaunchFailure",
            log="slurmstepd: error: Step 7.0 exceeded memory limit (604524544 > 209715200), being killed",
        ), F.OOM,
    ),
    "time limit": (ended("TIMEOUT", "0:0", "", row("7.batch", "CANCELLED", "0:9"), reason="TimeLimit"), F.TIMEOUT),
    "cancelled, uid in the state": (ended(row("7", "CANCELLED by 1000").state), F.CANCELLED),
    "node failure": (ended("NODE_FAIL", "0:0", "", row("7.0", "CANCELLED", "0:15"), reason="NodeDown"), F.NODE_FAILURE),
    "preempted": (ended("PREEMPTED", "0:0", "", row("7.batch", "CANCELLED", "0:15")), F.PREEMPTED),
    "no output folder": (ended("FAILED", "0:53"), F.LAUNCH),
    "boot failure": (ended("BOOT_FAIL"), F.NODE_FAILURE),
    "deadline": (ended("DEADLINE"), F.QUEUE_TIMEOUT),
    "cuda out of memory is an exit code 1": (ended("FAILED", "1:0", log="CUDA error: out of memory"), F.OOM),
    "xla out of memory": (ended("FAILED", "1:0", log="RESOURCE_EXHAUSTED: Out of memory allocating"), F.OOM),
    "command not found": (ended("FAILED", "127:0"), F.LAUNCH),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_row_of_the_table(name: str) -> None:
    ending, failure = CASES[name]
    assert classify(ending).failure is failure


def result(code: int, stage: str = "run", reason: str = "") -> Result:
    return Result(code, stage, reason, 1.0, 31.0, 0, "n1", "n1")


def test_codes_above_127_come_from_the_controller_or_the_result_file() -> None:
    wrong = row("7", "FAILED", "0:0")
    assert "200" in classify(Ending("FAILED", job=wrong, control=control("200:0"))).reason
    assert "255" in classify(Ending("FAILED", job=wrong, result=result(255))).reason


def test_failing_set_up_is_the_targets_fault() -> None:
    verdict = classify(Ending("FAILED", job=row("7", "FAILED", "1:0"), result=result(1, "setup")))
    assert verdict.failure is F.LAUNCH
    assert "setup" in verdict.reason


def test_without_accounting_the_result_file_tells() -> None:
    assert classify(Ending("COMPLETED", result=result(0))).failure is None
    assert classify(Ending("FAILED", result=result(3))).failure is F.FRAMEWORK_ERROR
    oom = Evidence(F.OOM, "rank 0: CUDA out of memory")
    assert classify(Ending("FAILED", result=result(1), evidence=oom)).failure is F.OOM
    assert classify(Ending("FAILED", result=result(143, reason="signal"))).failure is F.CANCELLED


def test_a_good_result_does_not_hide_a_step_that_ran_out_of_memory() -> None:
    hidden = Ending("COMPLETED", result=result(0), steps=(row("7.0", "OUT_OF_MEMORY", "0:125"),))
    assert classify(hidden).failure is F.OOM


def test_jobs_that_are_lost_or_never_start() -> None:
    assert classify(Ending("RUNNING", lost="unknown for 300 s")).failure is F.NODE_FAILURE
    verdict = classify(Ending("CANCELLED", never="PartitionNodeLimit"))
    assert (verdict.failure, "PartitionNodeLimit" in verdict.reason) == (F.QUEUE_TIMEOUT, True)


# --- what the commands print ----------------------------------------------------------------------------------------


def test_rows_of_squeue() -> None:
    text = "17|PENDING|job requeued in held state|ccl-a|2026-11-30T10:00:00|ccl:x|y\nbroken line\n"
    (found,) = queue_rows(text)
    assert (found.job_id, found.state, found.reason) == ("17", "PENDING", "job requeued in held state")
    assert (found.name, found.comment) == ("ccl-a", "ccl:x|y")


def test_rows_of_sacct() -> None:
    text = "\n".join(
        COLUMNS.format(id=job, name=name, state=state, exit="0:125", derived=derived)
        for job, name, state, derived in (("7", "a", "CANCELLED by 0", "1:0"), ("7.batch", "batch", "FAILED", ""))
    )
    job, step = account_rows(text)
    assert (job.state, job.step, job.derived, job.seconds, job.nodes) == ("CANCELLED", "", exit_status("1:0"), 30.0, 2)
    assert (step.step, step.derived) == ("batch", None)
    assert step.exit is not None
    assert (step.exit.code, step.exit.signal, step.exit.ok) == (0, 125, False)


def test_a_record_of_scontrol_is_not_fooled_by_paths() -> None:
    text = (
        "JobId=7 JobName=x JobState=COMPLETED Reason=None Restarts=2 ExitCode=0:0 DerivedExitCode=7:0 "
        "RunTime=1-02:03:04 NumNodes=3 ReqNodeList=(null) NodeList=n[1-3] WorkDir=/a\n JobState=FAILED ExitCode=9:9"
    )
    found = control_record(text)
    assert found is not None
    assert (found.state, found.restarts, found.nodes, found.node_list) == ("COMPLETED", 2, 3, "n[1-3]")
    assert (found.exit, found.derived) == (exit_status("0:0"), exit_status("7:0"))
    assert found.seconds == 86400 + 2 * 3600 + 3 * 60 + 4


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Invalid job id specified", "{}"])
def test_no_record(text: str) -> None:
    assert control_record(text) is None


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"exit_code": 0}', '{"exit_code": "x"}'])
def test_a_result_file_cut_short_is_none(text: str | None) -> None:
    assert parse_result(text) is None
