"""Jobs on slices, with real ssh servers as workers: what a job sees, what comes back, who may use a slice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launchers.base import JobState
from launchers.shell.command import Slot
from launchers.testing import ENDLESS, FAILS, OUT_OF_MEMORY, SUCCEEDS, Bench, JobMaker, checks
from launchers.tpu_vm import launcher as launcher_module
from runs.errors import BadInputError, TargetUnavailableError
from runs.trial import FailureClass, TrialState
from tests.tpu.world import FOREVER, OK, ZONES, World


def test_a_job_runs_on_every_worker_and_its_slice_is_deleted(world: World) -> None:
    world.api.polls = 3
    launcher = world.launcher(accelerator="v5litepod-16")
    started = time.monotonic()
    handle = launcher.submit(world.job(OK + "echo $CCL_NUM_NODES $CCL_WORLD_SIZE $CCL_MASTER_ADDR $CARD\n", nodes=4))
    submitted = time.monotonic() - started
    assert launcher.poll(json.loads(json.dumps(handle))) is JobState.QUEUED

    world.until(launcher, handle)
    assert submitted < (time.monotonic() - started) / 2, "it returns long before the slice is there"
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found
    assert found.trace_dir is not None
    traces = sorted(str(path.relative_to(found.trace_dir)) for path in found.trace_dir.rglob("*.json"))
    assert traces == [f"worker-{i}/trace_{i}.json" for i in range(4)]
    assert found.provenance["hosts"] == {str(i): f"t1v-n-test-w-{i}" for i in range(4)}
    said = (Path(handle["local_dir"]) / "rank-3.out").read_text().strip()
    assert said == f'4 16 {world.workers.addresses[0]} it\'s "odd"'
    assert found.xpu_hours == pytest.approx(found.seconds * 16 / 3600 if found.seconds else None)
    world.api.settle()
    assert world.api.names() == []
    assert launcher.collect(handle) == found


PROGRAMS = {
    SUCCEEDS: OK,
    FAILS: "echo 'ValueError: no such mesh' >&2; exit 1\n",
    OUT_OF_MEMORY: "echo 'jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. "
    "Ran out of memory in memory space hbm. Used 17.2G of 15.75G hbm.' >&2; exit 1\n",
    ENDLESS: FOREVER,
}


@pytest.mark.parametrize("check", checks(*PROGRAMS), ids=lambda check: check.__name__)
def test_the_contract_of_every_launcher_holds(world: World, check: Callable[[Bench], None]) -> None:
    def maker(program: str) -> JobMaker:
        return lambda folder, trial: world.job(program, trial, directory=_made(folder))

    makers = {kind: maker(program) for kind, program in PROGRAMS.items()}
    bench = Bench(world.launcher, makers, world.home / "bench", lambda: len(world.left_over()), 180.0, 0.3)

    check(bench)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_setup_prefix_and_working_directory_come_from_the_target(world: World) -> None:
    launcher = world.launcher(
        setup='export FROM_SETUP="a  b"', env={"X Y".replace(" ", "_"): "$HOME;'"}, launch_prefix=["env", "PREFIX=1"]
    )
    program = OK + 'printf "%s|%s|%s|%s" "$FROM_SETUP" "$X_Y" "$PREFIX" "$PWD"\n'
    handle = launcher.submit(world.job(program, command={"working_dir": "/usr"}))

    world.until(launcher, handle)

    assert launcher.collect(handle).state is TrialState.SUCCEEDED
    assert (Path(handle["local_dir"]) / "rank-0.out").read_text() == "a  b|$HOME;'|1|/usr"


def test_one_process_a_chip_where_the_command_asks_for_it(world: World) -> None:
    argv = ("bash", "-c", 'mkdir -p "$1"; echo {} > "$1/r$0.json"', Slot.RANK, Slot.TRACE_DIR)
    launcher = world.launcher()
    handle = launcher.submit(world.job("", command={"argv": argv, "per_node": False, "trace_count": 8}))

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found
    assert found.trace_dir is not None
    assert sorted(path.name for path in found.trace_dir.rglob("*.json")) == [f"r{rank}.json" for rank in range(8)]


def test_missing_traces_are_told(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job('[ "$1" = 0 ] || exit 0\n' + OK))

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.failure is FailureClass.TRACE_MISSING
    assert "1 trace files of 2" in found.evidence


def test_files_are_unpacked_only_inside_the_trial(world: World) -> None:
    launcher = world.launcher()
    program = OK + 'ln -s /etc/passwd "$CCL_TRACE_DIR/link.json"\n'
    handle = launcher.submit(world.job(program))

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.trace_dir is not None
    assert not list(found.trace_dir.rglob("link*"))


# --- slices that exist ----------------------------------------------------------------------------------------------


def test_an_existing_slice_is_used_in_turn_and_never_deleted(world: World) -> None:
    world.api.seed("mine", ZONES[1], "v4-16")
    launcher = world.launcher(slice="mine", zones=list(ZONES))
    first = launcher.submit(world.job(FOREVER, trial=0))
    world.until(launcher, first, JobState.RUNNING)
    second = launcher.submit(world.job(OK, trial=1))
    for _ in range(3):
        assert launcher.poll(second) is JobState.QUEUED
    assert "busy" in world.state_of(second)

    launcher.cancel(first)
    assert world.left_over() == {}
    world.until(launcher, second)
    found = launcher.collect(second)

    assert found.state is TrialState.SUCCEEDED, found
    assert found.provenance["existing_slice"] is True
    assert world.api.names() == [f"{ZONES[1]}/nodes/mine"]
    assert world.api.requests("DELETE", "") == []
    assert not list((world.worker(0).folder / "home/ccl-search").glob("*"))


def test_a_new_attempt_ends_the_one_it_replaces(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    launcher = world.launcher(slice="mine")
    lost = launcher.submit(world.job(FOREVER, attempt=1))
    world.until(launcher, lost, JobState.RUNNING)

    handle = launcher.submit(world.job(OK, attempt=2))
    world.until(launcher, handle)

    assert launcher.collect(handle).state is TrialState.SUCCEEDED
    assert world.left_over() == {}


@pytest.mark.parametrize("state", ["STOPPED", "PREEMPTED"])
def test_an_existing_slice_that_does_not_run_is_left_alone(world: World, state: str) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    world.api.set_state("mine", state)
    launcher = world.launcher(slice="mine")
    handle = launcher.submit(world.job(OK))

    with pytest.raises(TargetUnavailableError, match=state):
        launcher.poll(handle)

    assert launcher.poll(handle) is JobState.UNKNOWN
    assert {method for method, _, _ in world.api.log} == {"GET"}


def test_a_stale_lock_file_of_libtpu_is_removed(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v4-16")
    stale = world.worker(1).folder / "tmp/libtpu_lockfile"
    stale.touch()
    launcher = world.launcher(slice="mine")
    handle = launcher.submit(world.job(OK + "ls /tmp/libtpu_lockfile\n"))

    world.until(launcher, handle)

    assert not stale.exists()


def test_a_slice_with_another_number_of_workers_is_refused(world: World) -> None:
    world.api.seed("mine", ZONES[0], "v5litepod-16")
    launcher = world.launcher(slice="mine")
    handle = launcher.submit(world.job(OK))

    world.until(launcher, handle)

    found = launcher.collect(handle)
    assert found.failure is FailureClass.LAUNCH
    assert "mine has 4 workers, the config needs 2" in found.evidence


def test_a_config_that_does_not_fill_the_type_is_refused_before_anything_is_created(world: World) -> None:
    with pytest.raises(BadInputError, match=r"2 workers of 4 chips, v5litepod-16 has 4 of 4"):
        world.launcher(accelerator="v5litepod-16").submit(world.job(OK))

    assert world.api.log == []


# --- slices for a whole run -----------------------------------------------------------------------------------------


def test_a_slice_for_a_run_serves_its_trials_until_it_is_released(world: World) -> None:
    launcher = world.launcher(lifetime="run")
    names = set()
    for trial in range(2):
        job = world.job(OK, trial)
        handle = launcher.submit(job)
        world.until(launcher, handle)
        found = launcher.collect(handle)
        assert found.state is TrialState.SUCCEEDED, found
        names.add(found.provenance["slice"])
    assert len(names) == 1
    assert len(world.api.requests("POST", "/nodes")) == 1

    assert launcher.release("run-1", job.directory) == []

    world.api.settle()
    assert world.api.names() == []


def test_a_worker_ends_a_job_by_itself_when_no_driver_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_module, "_LIMIT_MARGIN_S", 0.5)
    launcher = world.launcher()
    handle = launcher.submit(world.job(FOREVER, time_limit_s=1.0))
    world.until(launcher, handle, JobState.RUNNING)
    deadline = time.monotonic() + 120
    while world.left_over() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert world.left_over() == {}

    world.until(launcher, handle)

    assert launcher.collect(handle).failure is FailureClass.TIMEOUT


def test_the_printed_script_is_the_one_that_runs(world: World) -> None:
    launcher = world.launcher(setup="true")
    job = world.job(OK)
    printed = launcher.script(job)
    assert world.api.log == []
    handle = launcher.submit(job)
    world.until(launcher, handle)
    launcher.collect(handle)

    ran = (Path(handle["local_dir"]) / "worker-0/job.sh").read_text()

    assert ran == printed.replace("FIRST-WORKER", world.workers.addresses[0])
