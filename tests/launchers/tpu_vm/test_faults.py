"""Faults of the service, of slices and of workers: each becomes the right class, and nothing is left running."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launchers.base import JobState
from launchers.tpu_vm.ledger import SliceState, ledger_for
from runs.errors import TargetUnavailableError
from runs.trial import FailureClass, TrialState
from tests.tpu.world import FOREVER, OK, ZONES, World


def nothing_left(world: World) -> bool:
    """No slice, no queued resource, no process."""
    world.api.settle()
    return world.api.names() == [] and world.left_over() == {}


# --- getting a slice ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provisioning", ["direct", "queued"])
@pytest.mark.parametrize("kind", ["stockout", "quota", "config", "reservation"])
def test_what_a_zone_cannot_give_another_may(world: World, kind: str, provisioning: str) -> None:
    world.api.fault(kind, zone=ZONES[0])
    launcher = world.launcher(zones=list(ZONES), provisioning=provisioning)
    handle = launcher.submit(world.job(OK))

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found
    assert found.provenance["zone"] == ZONES[1]
    assert len(found.provenance["slices_not_had"]) == 1
    assert found.provenance["slices_not_had"][0].startswith(f"{ZONES[0]}: ")
    assert nothing_left(world)


def test_a_stockout_everywhere_is_transient(world: World) -> None:
    world.api.fault("stockout", times=2)
    launcher = world.launcher(zones=list(ZONES))
    handle = launcher.submit(world.job(OK))

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.failure is FailureClass.LAUNCH
    assert found.failure.is_transient
    for zone in ZONES:
        assert f'There is no more capacity in the zone "{zone}"' in found.evidence
    assert nothing_left(world)


def test_a_stockout_is_waited_for_where_the_user_says_so(world: World) -> None:
    world.api.fault("stockout", times=2)
    launcher = world.launcher(zones=list(ZONES), stockout_wait_s=3600)
    handle = launcher.submit(world.job(OK))
    for _ in range(6):
        assert launcher.poll(handle) is JobState.QUEUED
    assert len(world.api.requests("POST", "/nodes")) == 2

    world.clock.ahead += 61
    world.until(launcher, handle)

    assert launcher.collect(handle).state is TrialState.SUCCEEDED
    assert nothing_left(world)


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        ("permission", "tpu.nodes.create", "TPU Admin"),
        ("quota", "Quota limit 'TPUV6E", "quota"),
        ("config", 'Accelerator type "v4-16" not found', "accelerator"),
        ("reservation", "Insufficient reserved capacity", "reservation"),
    ],
)
def test_what_only_the_user_can_mend_stops_the_search(world: World, kind: str, text: str, hint: str) -> None:
    world.api.fault(kind)
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))

    with pytest.raises(TargetUnavailableError) as caught:
        world.until(launcher, handle)

    assert text in caught.value.message
    assert hint in caught.value.hint
    assert launcher.poll(handle) is JobState.UNKNOWN
    assert nothing_left(world)


@pytest.mark.parametrize("kind", ["rate", "error503", "error500"])
def test_a_service_that_is_busy_is_asked_again(world: World, kind: str) -> None:
    world.api.fault(kind, times=2)
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    for _ in range(3):
        assert launcher.poll(handle) is JobState.QUEUED
    asked = len(world.api.requests("POST", "/nodes"))

    world.clock.ahead += 6
    for _ in range(2):
        assert launcher.poll(handle) is JobState.QUEUED
    world.clock.ahead += 11
    world.until(launcher, handle)

    assert asked == 1
    assert launcher.collect(handle).state is TrialState.SUCCEEDED
    assert nothing_left(world)


def test_a_service_that_never_recovers_ends_the_attempt(world: World) -> None:
    world.api.fault("error503", times=100)
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    for _ in range(20):
        if launcher.poll(handle) is JobState.FINISHED:
            break
        world.clock.ahead += 130

    found = launcher.collect(handle)

    assert found.failure is FailureClass.LAUNCH
    assert "6 tries" in found.evidence
    assert len(world.api.requests("POST", "/nodes")) == 6


def test_silence_of_the_service_is_no_verdict(world: World) -> None:
    launcher = world.launcher()
    world.api.outage("GET", 3)
    handle = launcher.submit(world.job(FOREVER))
    assert launcher.poll(handle) is JobState.QUEUED
    world.until(launcher, handle, JobState.RUNNING)
    world.api.outage("GET", 1)
    world.clock.ahead += 90

    assert launcher.poll(handle) is JobState.RUNNING
    launcher.cancel(handle)
    assert nothing_left(world)


def test_a_service_silent_for_long_is_told(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    world.api.outage("GET", 1000)
    assert launcher.poll(handle) is JobState.QUEUED
    world.clock.ahead += 1000

    with pytest.raises(TargetUnavailableError, match="unavailable"):
        launcher.poll(handle)


def test_slow_operations_are_waited_for(world: World) -> None:
    world.api.polls = 8
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    states = [launcher.poll(handle) for _ in range(6)]
    assert set(states) == {JobState.QUEUED}

    world.until(launcher, handle)

    assert launcher.collect(handle).state is TrialState.SUCCEEDED


def test_the_name_is_ours_when_the_label_says_so(world: World) -> None:
    """The answer to the first request was lost, the second is told that the name exists."""
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    book = ledger_for(Path(handle["directory"]))
    (record,) = book.records()
    for path in book.workplace(record).iterdir():
        path.unlink()
    (book.workplace(record) / "err").write_text(f"exists\n409 Resource '{record.name}' already exists")
    world.api.settle()

    world.until(launcher, handle)

    assert launcher.collect(handle).state is TrialState.SUCCEEDED


def test_the_name_is_somebody_elses_when_the_label_says_so(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    (record,) = ledger_for(Path(handle["directory"])).records()
    for node in world.api.nodes.values():
        node["labels"] = {"owner": "somebody"}

    with pytest.raises(TargetUnavailableError, match="somebody else's"):
        world.until(launcher, handle)

    assert world.api.names() == [f"{ZONES[0]}/nodes/{record.name}"]
    assert world.api.requests("DELETE", "") == []


# --- losing a slice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provisioning", ["direct", "queued"])
def test_a_preempted_slice_is_transient_and_the_next_attempt_gets_a_new_one(world: World, provisioning: str) -> None:
    launcher = world.launcher(capacity="spot", provisioning=provisioning)
    first = launcher.submit(world.job(FOREVER))
    world.until(launcher, first, JobState.RUNNING)
    taken = next(name for name in world.api.names() if "/nodes/" in name).rpartition("/")[2]

    world.api.set_state(taken, "PREEMPTED")
    for worker in world.workers.all[:2]:
        worker.kill()
    world.until(launcher, first)
    found = launcher.collect(first)

    assert found.failure is FailureClass.PREEMPTED, found
    assert "took" in found.evidence
    world.workers.ensure()
    again = launcher.submit(world.job(OK, attempt=2))
    world.until(launcher, again)
    found = launcher.collect(again)
    assert found.state is TrialState.SUCCEEDED, found
    assert found.provenance["slice"] != taken
    assert nothing_left(world)


def test_a_slice_that_is_stopped_under_a_job_is_a_node_failure(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    launcher = world.launcher(slice="mine")
    handle = launcher.submit(world.job(FOREVER))
    world.until(launcher, handle, JobState.RUNNING)
    world.api.set_state("mine", "STOPPED")
    for worker in world.workers.all[:2]:
        worker.kill()

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.failure is FailureClass.NODE_FAILURE
    assert "mine in us-west4-a is STOPPED" in found.evidence


# --- workers --------------------------------------------------------------------------------------------------------


def test_a_dead_worker_ends_the_job_after_its_grace(world: World) -> None:
    launcher = world.launcher(worker_grace_s=30)
    handle = launcher.submit(world.job(FOREVER))
    world.until(launcher, handle, JobState.RUNNING)
    world.worker(1).kill()
    assert launcher.poll(handle) is JobState.RUNNING
    assert launcher.poll(handle) is JobState.RUNNING

    world.clock.ahead += 31
    assert launcher.poll(handle) is JobState.FINISHED
    assert world.left_over() == {}
    found = launcher.collect(handle)

    assert found.failure is FailureClass.NODE_FAILURE
    assert "worker 1 did not answer for 30 s" in found.evidence
    assert nothing_left(world)


def test_a_worker_that_comes_back_in_time_is_no_failure(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(FOREVER))
    world.until(launcher, handle, JobState.RUNNING)
    world.worker(1).close_port()
    assert launcher.poll(handle) is JobState.RUNNING
    world.worker(1).open_port()
    assert launcher.poll(handle) is JobState.RUNNING
    world.clock.ahead += 500
    assert launcher.poll(handle) is JobState.RUNNING

    launcher.cancel(handle)


def test_a_worker_that_was_silent_and_ended_well_is_no_failure(world: World) -> None:
    """Given up after its grace, but the job had ended on both workers, and their files can be fetched again."""
    launcher = world.launcher(worker_grace_s=30)
    waits = 'while [ ! -e "$HOME/go" ]; do sleep 0.1; done\n'
    handle = launcher.submit(world.job(waits + OK))
    world.until(launcher, handle, JobState.RUNNING)
    for worker in world.workers.all[:2]:
        (worker.folder / "home/go").touch()
    deadline = time.monotonic() + 120
    while any(not list((w.folder / "home").rglob("result.json")) for w in world.workers.all[:2]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    world.worker(1).close_port()
    assert launcher.poll(handle) is JobState.RUNNING
    world.clock.ahead += 31
    assert launcher.poll(handle) is JobState.FINISHED
    world.worker(1).open_port()
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found.evidence
    assert found.seconds is not None and found.seconds < 31
    assert nothing_left(world)


ONE_FAILS = """if [ "$1" = 1 ]; then
    echo 'Traceback (most recent call last):' >&2
    echo '  File "train.py", line 3, in <module>' >&2
    echo 'ValueError: mesh of 7 devices' >&2
    exit 3
fi
sleep 300 & wait
"""


def test_one_failing_worker_ends_the_others(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(ONE_FAILS))
    world.until(launcher, handle, JobState.RUNNING)
    deadline = time.monotonic() + 20
    while launcher.poll(handle) is JobState.RUNNING and time.monotonic() < deadline:
        world.clock.ahead += 1
    assert world.left_over() == {}

    found = launcher.collect(handle)

    assert found.failure is FailureClass.FRAMEWORK_ERROR
    assert "worker 1: exit code 3" in found.evidence
    assert "1: ValueError: mesh of 7 devices" in found.evidence
    assert nothing_left(world)


def test_a_job_killed_from_outside_is_a_node_failure(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(FOREVER))
    world.until(launcher, handle, JobState.RUNNING)
    for pid in world.worker(1).processes("job.sh"):
        world.worker(1).kill_process(pid)

    world.until(launcher, handle)
    assert world.left_over().get(0) is None
    found = launcher.collect(handle)

    assert found.failure is FailureClass.NODE_FAILURE
    assert "worker 1: the job vanished" in found.evidence


def test_a_tpu_in_use_by_a_stranger_is_no_fault_of_the_config(world: World) -> None:
    text = (
        "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 42."
    )
    launcher = world.launcher()
    handle = launcher.submit(world.job(f'echo "{text}" >&2; exit 1\n'))
    world.until(launcher, handle)

    assert launcher.collect(handle).failure is FailureClass.LAUNCH


def test_a_failing_setup_is_no_fault_of_the_config(world: World) -> None:
    launcher = world.launcher(setup="source /no/such/environment/bin/activate")
    handle = launcher.submit(world.job(OK))
    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.failure is FailureClass.LAUNCH
    assert "setup" in found.evidence


# --- ending ---------------------------------------------------------------------------------------------------------

ESCAPES = """setsid sleep 311 &
(trap '' TERM; sleep 312) &
nohup setsid bash -c 'trap "" TERM HUP; sleep 313; sleep 314' >/dev/null 2>&1 &
sleep 315
"""


def test_cancel_ends_what_left_the_process_group_too(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    launcher = world.launcher(slice="mine", teardown='touch "$HOME/torn down"')
    handle = launcher.submit(world.job(ESCAPES))
    world.until(launcher, handle, JobState.RUNNING)
    deadline = time.monotonic() + 90
    while len(world.worker(0).processes("sleep 31")) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(world.worker(0).processes("sleep 31")) >= 4

    launcher.cancel(handle)

    assert world.left_over("sleep 31") == {}
    assert world.left_over("job.sh") == {}
    assert (world.worker(0).folder / "home/torn down").exists()
    assert launcher.poll(handle) is JobState.FINISHED
    launcher.cancel(handle)
    found = launcher.collect(handle)
    assert (found.state, found.failure) == (TrialState.CANCELLED, FailureClass.CANCELLED)


def test_a_job_that_waits_for_capacity_is_cancelled(world: World) -> None:
    world.api.fault("forever")
    launcher = world.launcher(provisioning="queued")
    handle = launcher.submit(world.job(OK))
    for _ in range(3):
        assert launcher.poll(handle) is JobState.QUEUED
    assert "WAITING_FOR_RESOURCES" in world.state_of(handle)

    launcher.cancel(handle)

    assert launcher.poll(handle) is JobState.FINISHED
    assert nothing_left(world)


def test_cancel_says_so_when_a_worker_cannot_be_reached(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    launcher = world.launcher(slice="mine")
    handle = launcher.submit(world.job(FOREVER))
    world.until(launcher, handle, JobState.RUNNING)
    world.worker(1).kill()

    with pytest.raises(TargetUnavailableError, match="worker 1"):
        launcher.cancel(handle)

    assert world.left_over() == {}


def test_a_deletion_that_fails_is_remembered(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    world.until(launcher, handle)
    world.api.outage("DELETE", 1)

    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED
    assert "could not be deleted" in found.provenance["remarks"][-1]
    (record,) = ledger_for(Path(handle["directory"])).records()
    assert record.state is SliceState.GRANTED
    assert len(world.api.names()) == 1
