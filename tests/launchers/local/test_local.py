"""The local launcher: detached jobs, their ends, and what a new process finds of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.base import Handle, JobState
from launchers.local import LocalLauncher, from_settings
from launchers.shell import processes
from launchers.shell.command import Slot
from launchers.shell.script import Site
from runs.errors import BadInputError
from runs.trial import Execution, FailureClass, TrialState
from tests.launchers import jobs
from tests.launchers.test_contract import count_marked

ROOT = Path(__file__).parents[3]


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def finish(launcher: LocalLauncher, handle: Handle) -> Execution:
    until(lambda: launcher.poll(handle) is JobState.FINISHED)
    return launcher.collect(handle)


def run(launcher: LocalLauncher, job: jobs.Job) -> Execution:
    return finish(launcher, launcher.submit(job))


def test_time_is_measured_and_charged(tmp_path: Path) -> None:
    done = run(LocalLauncher(), jobs.job(tmp_path, jobs.bash("sleep 0.5", xpus_per_node=4)))
    assert done.seconds is not None
    assert 0.5 <= done.seconds < 10
    assert done.xpu_hours == pytest.approx(done.seconds * 4 / 3600)


@pytest.mark.parametrize(
    ("code", "failure"),
    [(0, None), (1, FailureClass.FRAMEWORK_ERROR), (127, FailureClass.LAUNCH), (255, FailureClass.FRAMEWORK_ERROR)],
)
def test_exit_codes(code: int, failure: FailureClass | None, tmp_path: Path) -> None:
    done = run(LocalLauncher(), jobs.job(tmp_path, jobs.bash(f"exit {code}")))
    assert done.failure is failure
    assert (f"exit code {code}" in done.evidence) is (failure is not None)


def test_slots_and_variables_reach_the_command(tmp_path: Path) -> None:
    command = jobs.bash('echo "$0|$1|$TOLD|$SITE|$PWD"')
    argv = (*command.argv, f"{Slot.JOB_DIR}/x", f"--rank={Slot.NODE_RANK}")
    command = replace(command, argv=argv, env={"TOLD": f"to {Slot.MASTER_ADDR} '\""}, working_dir="/")
    run(LocalLauncher(Site(env={"SITE": "a\nb"})), jobs.job(tmp_path, command))
    said = (tmp_path / "attempt-1" / "rank-0.out").read_text()
    assert said == f"{tmp_path}/x|--rank=0|to 127.0.0.1 '\"|a\nb|/\n"


def test_the_sites_part_runs_first_and_its_failure_is_a_launch_failure(tmp_path: Path) -> None:
    good = LocalLauncher(Site("export A=1\n", {"B": "2"}, ("env", "C=3")))
    run(good, jobs.job(tmp_path / "good", jobs.bash('echo "$A$B$C"')))
    assert (tmp_path / "good" / "attempt-1" / "rank-0.out").read_text() == "123\n"
    bad = run(
        LocalLauncher(Site("module load nothing\necho not reached > reached\n")), jobs.job(tmp_path, jobs.bash(":"))
    )
    assert (bad.failure, "setup" in bad.evidence) == (FailureClass.LAUNCH, True)
    assert not (tmp_path / "reached").exists()


def test_files_of_the_command_are_there_when_it_starts(tmp_path: Path) -> None:
    command = replace(jobs.bash('cat "$CCL_JOB_DIR/conf/x.py"'), files={"conf/x.py": "print('é')\n"})
    run(LocalLauncher(), jobs.job(tmp_path, command))
    assert (tmp_path / "attempt-1" / "rank-0.out").read_text() == "print('é')\n"


def test_one_failed_process_ends_the_others(tmp_path: Path) -> None:
    command = jobs.bash('[ "$CCL_RANK" = 2 ] && exit 3; sleep 300', per_node=False, xpus_per_node=4)
    started = time.monotonic()
    done = run(LocalLauncher(), jobs.job(tmp_path, command))
    assert (done.failure, "exit code 3" in done.evidence) == (FailureClass.FRAMEWORK_ERROR, True)
    assert time.monotonic() - started < 20


def test_the_scripts_own_clock_ends_it_without_any_driver(tmp_path: Path) -> None:
    mark = f"clock-{os.getpid()}"
    done = run(LocalLauncher(), jobs.job(tmp_path, jobs.bash(f": {mark}; sleep 300; :"), time_limit_s=1))
    assert (done.state, done.failure) == (TrialState.FAILED, FailureClass.TIMEOUT)
    assert count_marked(mark) == 0


def test_a_script_killed_from_outside_is_no_fault_of_the_config(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash("sleep 300")))
    until(lambda: (tmp_path / "attempt-1" / "rank-0.out").exists())
    os.kill(handle["pid"], signal.SIGKILL)
    assert finish(launcher, handle).failure is FailureClass.NODE_FAILURE
    launcher.cancel(handle)
    assert processes.members(-1, f"CCL_ATTEMPT={handle['mark']}") == []


def test_a_missing_trace_is_no_success(tmp_path: Path) -> None:
    command = jobs.bash('touch "$CCL_TRACE_DIR/a.json"', trace_globs=("*.json",), trace_count=2)
    done = run(LocalLauncher(), jobs.job(tmp_path, command))
    assert (done.failure, "1 trace files of 2" in done.evidence) == (FailureClass.TRACE_MISSING, True)


def test_a_config_for_several_machines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="needs 2 machines") as caught:
        LocalLauncher().submit(jobs.job(tmp_path, jobs.bash("true", nodes=2)))
    assert "slurm" in caught.value.hint


def test_no_key_of_the_llm_reaches_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    run(LocalLauncher(), jobs.job(tmp_path, jobs.bash("env")))
    said = (tmp_path / "attempt-1" / "rank-0.out").read_text()
    assert "CCL_TRACE_DIR=" in said
    assert "secret" not in said


def test_the_script_names_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    text = LocalLauncher().script(jobs.job(tmp_path / "x", jobs.bash("echo 'it is'")))
    assert "exec bash -c 'echo '\"'\"'it is'\"'\"''" in text
    assert not (tmp_path / "x").exists()
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


# --- drivers that die -----------------------------------------------------------------------------------------------

_DRIVER = """
import json, os, signal, sys
from pathlib import Path
from launchers.local import LocalLauncher
from tests.launchers import jobs
folder = Path(sys.argv[1])
command = jobs.bash(sys.argv[2], trace_globs=("*.json",))
(folder / "handle.json").write_text(json.dumps(LocalLauncher().submit(jobs.job(folder, command))))
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_driver(folder: Path, text: str) -> Handle:
    argv = [sys.executable, "-c", _DRIVER, str(folder), text]
    done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    handle: Handle = json.loads((folder / "handle.json").read_text())
    return handle


def test_a_new_driver_takes_up_the_job_of_a_killed_one(tmp_path: Path) -> None:
    handle = killed_driver(tmp_path, f"sleep 1; {jobs.WRITE_TRACE}")
    launcher = LocalLauncher()
    assert launcher.poll(handle) is JobState.RUNNING
    assert finish(launcher, handle).state is TrialState.SUCCEEDED


def test_a_new_driver_can_cancel_it(tmp_path: Path) -> None:
    mark = f"adopted-{os.getpid()}"
    handle = killed_driver(tmp_path, f": {mark}; sleep 300; :")
    until(lambda: count_marked(mark) > 0)
    launcher = LocalLauncher()
    launcher.cancel(handle)
    assert count_marked(mark) == 0
    assert launcher.collect(handle).state is TrialState.CANCELLED


def test_a_pid_that_belongs_to_another_by_now_is_left_alone(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash("true")))
    until(lambda: launcher.poll(handle) is JobState.FINISHED)
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        stolen = {**handle, "pid": stranger.pid}
        assert launcher.poll(stolen) is JobState.FINISHED
        launcher.cancel(stolen)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_run_of_the_same_name_elsewhere_is_left_alone(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    mine = launcher.submit(jobs.job(tmp_path / "mine", jobs.bash("sleep 300")))
    other = launcher.submit(jobs.job(tmp_path / "other", jobs.bash("sleep 300")))
    assert mine["name"] == other["name"]
    until(lambda: (tmp_path / "other" / "attempt-1" / "rank-0.out").exists())
    launcher.cancel(mine)
    assert launcher.poll(other) is JobState.RUNNING
    launcher.cancel(other)


def test_what_this_machine_never_ran_is_unknown(tmp_path: Path) -> None:
    handle = {"pid": 2**22 - 3, "identity": "x", "local_dir": str(tmp_path / "none"), "name": "ccl-none-1-1"}
    assert LocalLauncher().poll(handle) is JobState.UNKNOWN


def test_settings() -> None:
    made = from_settings({"setup": "x", "env": {"A": "b"}, "launch_prefix": ["numactl", "-l"]})
    assert made.site == Site("x", {"A": "b"}, ("numactl", "-l"))
    with pytest.raises(BadInputError, match="unknown setting stup"):
        from_settings({"stup": "x"})
