"""The driver is killed with SIGKILL at any point: a new process goes on from the handle alone."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launchers.base import Job, JobState
from launchers.tpu_vm.launcher import TpuVmLauncher
from runs.trial import TrialState
from tests.tpu.world import OK, World

ROOT = Path(__file__).resolve().parents[3]
UNTIL_TOLD = 'while [ ! -e "$HOME/go" ]; do sleep 0.1; done\n' + OK


def killed_driver(world: World, launcher: TpuVmLauncher, job: Job, wanted: str, polls: int) -> dict[str, object]:
    """The handle of a job whose driver was killed once a poll said `wanted` (or at once after the submission)."""
    told = world.home / "told.pickle"
    told.write_bytes(pickle.dumps((launcher.settings, world.api.url, job, polls)))
    driver = subprocess.Popen([sys.executable, "-m", "tests.tpu.driver", str(told)], cwd=ROOT)
    deadline = time.monotonic() + 180
    try:
        while time.monotonic() < deadline:
            handle, states = told.with_suffix(".handle"), told.with_suffix(".states")
            if handle.exists() and (not wanted or (states.exists() and wanted in states.read_text())):
                break
            assert driver.poll() is None
            time.sleep(0.05)
    finally:
        driver.kill()
        driver.wait()
    found: dict[str, object] = json.loads(told.with_suffix(".handle").read_text())
    return found


@pytest.mark.parametrize(
    ("wanted", "polls"), [("", 0), ("queued", 1), ("running", 1000)], ids=["submitted", "queued", "running"]
)
def test_a_new_process_takes_a_job_up(world: World, wanted: str, polls: int) -> None:
    world.api.polls = 2
    launcher = world.launcher()
    handle = killed_driver(world, launcher, world.job(UNTIL_TOLD), wanted, polls)
    for worker in world.workers.all[:2]:
        (worker.folder / "home/go").touch()

    world.until(launcher, handle)
    found = launcher.collect(handle)

    assert found.state is TrialState.SUCCEEDED, found
    assert len(world.api.requests("POST", "/nodes")) == 1
    starts = (Path(str(handle["local_dir"])) / "worker-0/started").exists()
    assert starts is False  # an empty folder is no file: only files are fetched
    world.api.settle()
    assert world.api.names() == []


def test_a_request_of_which_nothing_is_known_is_looked_for_before_it_is_repeated(world: World) -> None:
    """The driver died between asking and noting the operation."""
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    for path in Path(handle["directory"]).parent.parent.glob("tpu-slices/*.d/*"):
        path.unlink()
    world.api.settle()

    world.until(world.launcher(), handle)

    assert launcher.collect(handle).state is TrialState.SUCCEEDED
    assert len(world.api.requests("POST", "/nodes")) == 1


def test_submitting_an_attempt_twice_starts_it_once(world: World) -> None:
    launcher, job = world.launcher(), world.job(OK)
    first = launcher.submit(job)
    second = world.launcher().submit(job)

    assert first == second
    world.until(launcher, second)
    assert launcher.poll(first) is JobState.FINISHED
    assert len(world.api.requests("POST", "/nodes")) == 1


def test_a_handle_without_its_files_is_unknown(world: World) -> None:
    launcher = world.launcher()
    handle = launcher.submit(world.job(OK))
    (Path(handle["local_dir"]) / "tpu.json").unlink()

    assert launcher.poll(handle) is JobState.UNKNOWN
    launcher.cancel(handle)
