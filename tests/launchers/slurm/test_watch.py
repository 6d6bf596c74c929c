"""The watch: one question for all jobs, silence is no end, ids may be used again."""

from __future__ import annotations

import time

import pytest

from launchers.base import JobState
from launchers.shell.result import Result
from launchers.slurm.client import SlurmClient
from launchers.slurm.rows import task_numbers
from launchers.slurm.settings import Polling
from launchers.slurm.watch import NEVER_STARTS, Watch, Watched
from tests.launchers.slurm.doubles import Answer, ScriptedSlurm, account, queue

DOWN: Answer = (1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
UNKNOWN_ID: Answer = (1, "slurm_load_jobs error: Invalid job id specified")
DBD_DOWN: Answer = (1, "sacct: error: Problem talking to the database: Connection refused")
OFF: Answer = (1, "Slurm accounting storage is disabled")
GOOD = Result(0, "run", "", 1.0, 2.0, 0, "n1", "n1")


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Scene:
    """A watch of job 7 whose clock the test moves."""

    def __init__(self, squeue: list[Answer], sacct: list[Answer] | None = None, requeue: bool = False) -> None:
        self.slurm = ScriptedSlurm(answers={"squeue": squeue, "sacct": sacct or [""]})
        self.clock, self.result = Clock(), None
        self.client = SlurmClient(self.slurm, Polling(never_starts_s=60, absence_s=300))
        self.watch = Watch(self.client, self.clock)
        self.watch.add(Watched("7", "ccl-run-1-1", 0.0, requeue, lambda: self.result))
        self.result: Result | None

    def look(self, after_s: float = 0.0) -> JobState:
        self.clock.time += after_s
        self.watch.refresh()
        return self.watch.view("7").phase


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", JobState.QUEUED), ("CONFIGURING", JobState.QUEUED), ("RUNNING", JobState.RUNNING),
        ("COMPLETING", JobState.RUNNING), ("SUSPENDED", JobState.RUNNING), ("COMPLETED", JobState.FINISHED),
        ("FAILED", JobState.FINISHED), ("OUT_OF_MEMORY", JobState.FINISHED), ("TIMEOUT", JobState.FINISHED),
        ("CANCELLED", JobState.FINISHED), ("NODE_FAIL", JobState.FINISHED), ("PREEMPTED", JobState.FINISHED),
        ("REQUEUED", JobState.QUEUED),
    ],
)  # fmt: skip
def test_states(state: str, phase: JobState) -> None:
    assert Scene([queue("7", state)]).look() is phase


def test_one_empty_answer_is_no_end() -> None:
    scene = Scene([queue("7", "RUNNING"), "", queue("7", "RUNNING")])
    assert [scene.look(), scene.look(1), scene.look(1)] == [JobState.RUNNING, JobState.UNKNOWN, JobState.RUNNING]


@pytest.mark.parametrize("silence", [DOWN, (None, "")])
def test_a_controller_that_is_down_ends_nothing_however_long(silence: Answer) -> None:
    scene = Scene([queue("7", "RUNNING"), silence], [DBD_DOWN])
    assert scene.look() is JobState.RUNNING
    assert {scene.look(1000) for _ in range(5)} == {JobState.UNKNOWN}
    assert scene.watch.answered is False


def test_a_job_that_left_squeue_is_found_in_the_accounting() -> None:
    scene = Scene([queue("7", "RUNNING"), UNKNOWN_ID], ["", account("7", "RUNNING"), account("7", "FAILED", "3:0")])
    seen = [scene.look(), scene.look(1), scene.look(1), scene.look(1)]
    assert seen == [JobState.RUNNING, JobState.UNKNOWN, JobState.RUNNING, JobState.FINISHED]
    assert scene.watch.view("7").state == "FAILED"


def test_without_accounting_the_result_file_ends_the_wait_and_sacct_is_not_asked_again() -> None:
    scene = Scene([UNKNOWN_ID], [OFF])
    assert [scene.look(), scene.look(1)] == [JobState.UNKNOWN, JobState.UNKNOWN]
    scene.result = GOOD
    assert scene.look(1) is JobState.FINISHED
    assert scene.slurm.count("sacct") == 1


def test_the_result_file_is_enough_while_the_controller_is_down() -> None:
    scene = Scene([DOWN], [DBD_DOWN])
    scene.result = GOOD
    assert scene.look() is JobState.FINISHED


def test_a_result_does_not_end_a_job_that_slurm_still_runs() -> None:
    scene = Scene([queue("7", "COMPLETING")])
    scene.result = GOOD
    assert scene.look() is JobState.RUNNING


def test_a_job_nobody_knows_is_lost_after_the_grace_time() -> None:
    scene = Scene([queue("7", "RUNNING"), UNKNOWN_ID], [""])
    scene.look()
    assert [scene.look(1), scene.look(299), scene.look(2)] == [JobState.UNKNOWN, JobState.UNKNOWN, JobState.FINISHED]
    assert "301 s" in scene.watch.view("7").lost


def test_an_id_that_was_given_away_again_is_not_ours() -> None:
    scene = Scene([queue("7", "FAILED", name="somebody-else")], [account("7", "FAILED", name="somebody-else")])
    assert scene.look() is JobState.UNKNOWN


def array(*tasks: tuple[str, str]) -> str:
    return "".join(queue(f"7{task}", state) for task, state in tasks)


@pytest.mark.parametrize(
    ("text", "phase", "state"),
    [
        (array(("_0", "PENDING")), JobState.QUEUED, "PENDING"),
        (array(("_[0-3%2]", "PENDING")), JobState.QUEUED, "PENDING"),
        (array(("_[0-3%2]", "PENDING"), ("_0", "RUNNING")), JobState.RUNNING, "RUNNING"),
        (array(("_0", "COMPLETED"), ("_1", "PENDING")), JobState.QUEUED, "PENDING"),
        (array(("_0", "COMPLETED"), ("_1", "FAILED")), JobState.FINISHED, "FAILED"),
        (array(("_0", "COMPLETED")), JobState.FINISHED, "COMPLETED"),
        (queue("77_0", "RUNNING") + queue("7_0", "FAILED", name="other"), JobState.UNKNOWN, ""),
    ],
)
def test_a_job_that_the_site_made_an_array_of(text: str, phase: JobState, state: str) -> None:
    scene = Scene([text])
    assert (scene.look(), scene.watch.view("7").state) == (phase, state)


def test_a_task_of_an_array_is_a_job_of_its_own() -> None:
    text = queue("7_[2,4-6%1]", "PENDING") + queue("7_1", "RUNNING") + queue("7_3", "FAILED")
    watch = Watch(SlurmClient(ScriptedSlurm(answers={"squeue": [text], "sacct": [""]}), Polling()), Clock())
    for task in range(1, 8):
        watch.add(Watched(f"7_{task}", "ccl-run-1-1", 0.0, False, lambda: None))
    watch.refresh()
    phases = [watch.view(f"7_{task}").phase for task in range(1, 8)]
    queued = JobState.QUEUED
    assert phases == [JobState.RUNNING, queued, JobState.FINISHED, queued, queued, queued, JobState.UNKNOWN]


def test_the_accounting_of_an_array_has_ended_when_all_tasks_have() -> None:
    part, whole = account("7_0", "COMPLETED") + account("7_1", "RUNNING"), account("7_1", "FAILED", "3:0")
    scene = Scene([UNKNOWN_ID], [part, account("7_0", "COMPLETED") + whole])
    assert [scene.look(), scene.look(1)] == [JobState.RUNNING, JobState.FINISHED]
    assert scene.watch.view("7").state == "FAILED"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("4", {4}), ("[0-3%2]", {0, 1, 2, 3}), ("[1,5-9:2]", {1, 5, 7, 9}), ("[7]", {7}), ("[0-2,8%10]", {0, 1, 2, 8}),
        ("", set()), ("batch", set()), ("[1,...]", set()),
    ],
)  # fmt: skip
def test_task_numbers(text: str, numbers: set[int]) -> None:
    assert task_numbers(text) == {str(number) for number in numbers}


def test_the_newest_row_of_the_accounting_counts() -> None:
    old = account("7", "PREEMPTED").replace("2026-11-30T10:00:00", "2026-11-29T10:00:00")
    assert Scene([UNKNOWN_ID], [account("7", "RUNNING") + old]).look() is JobState.RUNNING


@pytest.mark.parametrize("state", ["REQUEUED", "PENDING"])
def test_the_result_of_an_earlier_start_is_no_end_of_a_requeued_job(state: str) -> None:
    scene = Scene([queue("7", "RUNNING"), (None, "")], [account("7", state)], requeue=True)
    scene.result = Result(143, "run", "", 1.0, 2.0, 0, "n1", "n1")
    assert [scene.look(), scene.look(1)] == [JobState.RUNNING, JobState.QUEUED]


def test_a_job_that_may_be_requeued_is_not_at_its_end_at_once() -> None:
    again = [queue("7", "PREEMPTED"), queue("7", "PENDING", "BeginTime"), queue("7", "RUNNING")]
    scene = Scene(list(again), requeue=True)
    assert [scene.look(), scene.look(100), scene.look(100)] == [JobState.QUEUED, JobState.QUEUED, JobState.RUNNING]
    final = Scene([queue("7", "PREEMPTED")], requeue=True)
    assert [final.look(), final.look(149), final.look(2)] == [JobState.QUEUED, JobState.QUEUED, JobState.FINISHED]


@pytest.mark.parametrize("reason", sorted(NEVER_STARTS))
def test_reasons_that_never_go_away_are_told_after_a_while(reason: str) -> None:
    scene = Scene([queue("7", "PENDING", reason)])
    assert (scene.look(), scene.watch.view("7").never) == (JobState.QUEUED, "")
    scene.look(61)
    assert scene.watch.view("7").never == reason


@pytest.mark.parametrize(
    "reason", ["Priority", "Resources", "BeginTime", "Dependency", "QOSMaxJobsPerUserLimit", "None"]
)
def test_reasons_that_do_are_waited_for(reason: str) -> None:
    scene = Scene([queue("7", "PENDING", reason)])
    assert {scene.look(10_000) for _ in range(3)} == {JobState.QUEUED}
    assert scene.watch.view("7").never == ""


def test_two_hundred_jobs_are_one_question_and_pauses_grow() -> None:
    text = "".join(queue(str(number), "PENDING", "Priority", f"ccl-run-{number}-1") for number in range(200))
    slurm, clock = ScriptedSlurm(answers={"squeue": [text]}), Clock()
    watch = Watch(SlurmClient(slurm, Polling(first_s=1, longest_s=15)), clock)
    for number in range(200):
        watch.add(Watched(str(number), f"ccl-run-{number}-1", 0.0, False, lambda: None))
    for _ in range(600):
        assert all(watch.view(str(number)).phase is JobState.QUEUED for number in range(0, 200, 40))
        clock.time += 1.0
    assert slurm.count("sacct") == 0
    # Pauses of 1, 1.5, 2.25, ... at most 15 s (and a tenth): some 45 questions in ten minutes, not 120 000.
    assert 36 <= slurm.count("squeue") <= 52


def test_two_hundred_queued_trials_cost_less_than_a_hundredth_of_a_core() -> None:
    """Ten minutes of 200 trials that wait, polled as the executor does; squeue itself is measured by the benchmark."""
    text = "".join(queue(str(number), "PENDING", "Priority", f"ccl-run-{number}-1") for number in range(200))
    slurm, clock = ScriptedSlurm(answers={"squeue": [text]}), Clock()
    watch = Watch(SlurmClient(slurm, Polling()), clock)
    for number in range(200):
        watch.add(Watched(str(number), f"ccl-run-{number}-1", 0.0, False, lambda: None))
    due, began, polls = dict.fromkeys(range(200), clock.time), clock.time, 0
    before = time.process_time()
    while clock.time < began + 600:
        for number in [number for number, when in due.items() if when <= clock.time]:
            assert watch.view(str(number)).phase is JobState.QUEUED
            due[number], polls = clock.time + 15, polls + 1
        clock.time += 1.0
    cost = time.process_time() - before
    print(f"200 queued trials, 600 s: {polls} polls, {slurm.count('squeue')} squeue, {cost:.2f} s of CPU")
    assert polls >= 8000
    assert cost < 6.0


def test_a_change_makes_the_next_question_come_soon() -> None:
    scene = Scene([queue("7", "PENDING")] * 12 + [queue("7", "RUNNING")])
    for _ in range(13):
        scene.look()
    asked = scene.slurm.count("squeue")
    scene.clock.time += 1.2
    scene.watch.view("7")
    assert scene.slurm.count("squeue") == asked + 1


def test_ended_jobs_are_not_asked_about_again() -> None:
    scene = Scene([queue("7", "COMPLETED")])
    scene.look()
    scene.clock.time += 1000
    assert scene.watch.view("7").phase is JobState.FINISHED
    assert scene.slurm.count("squeue") == 1
