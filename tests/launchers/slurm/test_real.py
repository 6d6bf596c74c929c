"""The Slurm launcher against a real Slurm of four nodes. One file, so that one worker starts one cluster."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import metrics
from ccl_search.cli.doctor import doctor
from launchers import frameworks, testing
from launchers.base import Handle, Job, JobState
from launchers.frameworks.commands import command_for
from launchers.frameworks.deployment import Deployment
from launchers.shell.command import shape
from launchers.shell.layout import attempt_of
from launchers.shell.outcome import common_handle
from launchers.shell.runner import LocalRunner
from launchers.shell.ssh import SshRunner
from launchers.slurm.launcher import SlurmLauncher
from launchers.slurm.settings import SlurmSettings
from launchers.testing import ENDLESS, FAILS, OUT_OF_MEMORY, SUCCEEDS, Bench
from runs import catalogue
from runs.errors import BadInputError, TargetUnavailableError
from runs.trial import Execution, FailureClass, TrialState
from tests.ccl_search import cli
from tests.cluster.config import cgroups_usable
from tests.launchers import jobs
from tests.launchers.slurm.conftest import QUICK, Site
from tests.launchers.test_contract import count_marked

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
needs_cgroups = pytest.mark.skipif(not cgroups_usable(), reason="no writable cgroup v1 memory controller")
EAT = "import time; x = bytearray(600 << 20); time.sleep(60)"
EAT_ON_RANK_1 = "import os, time; x = bytearray((600 if os.environ['CCL_RANK'] == '1' else 1) << 20); time.sleep(60)"


def until(launcher: SlurmLauncher, handle: Handle, *wanted: JobState, seconds: float = 180.0) -> JobState:
    deadline = time.monotonic() + seconds
    while (state := launcher.poll(handle)) not in (*wanted, JobState.FINISHED):
        assert time.monotonic() < deadline, f"still {state} after {seconds:g} s"
        time.sleep(0.1)
    return state


def run(launcher: SlurmLauncher, job: Job) -> Execution:
    handle = launcher.submit(job)
    until(launcher, handle, JobState.FINISHED)
    return launcher.collect(handle)


# --- every end a job can have ---------------------------------------------------------------------------------------

ENDS: dict[str, tuple[str, tuple[str, ...], FailureClass | None, str]] = {
    "exit 0": ("exit 0", (), None, ""),
    "exit 3": ("exit 3", (), FailureClass.FRAMEWORK_ERROR, "exit code 3"),
    "exit 128": ("exit 128", (), FailureClass.FRAMEWORK_ERROR, "exit code 128"),
    "exit 200": ("exit 200", (), FailureClass.FRAMEWORK_ERROR, "exit code 200"),
    "exit 255": ("exit 255", (), FailureClass.FRAMEWORK_ERROR, "exit code 255"),
    "a step fails and the script goes on": (
        "srun -n2 bash -c 'exit $((SLURM_PROCID * 7))'; exit 0", ("-N2",), FailureClass.FRAMEWORK_ERROR, "exit code 7",
    ),
    "killed by a signal": ("kill -9 $$", (), FailureClass.FRAMEWORK_ERROR, "signal 9"),
    "segmentation fault": ("bash -c 'kill -SEGV $$'; exit $?", (), FailureClass.FRAMEWORK_ERROR, "signal 11"),
    "cuda oom": ("echo 'CUDA out of memory. Tried to allocate 2 GiB' >&2; exit 1", (), FailureClass.OOM, "CUDA out of"),
    "xla oom": ("echo 'RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes' >&2; exit 1", (), FailureClass.OOM, "XHA"),
    "no folder for the output": ("exit 0", ("-o", "/nonexistent/x.out"), FailureClass.LAUNCH, "could not open"),
    "no folder to work in: Slurm takes /tmp": ("[ $PWD = /tmp ]", ("-D", "/nonexistent"), None, ""),
}  # fmt: skip
CGROUP_ENDS: dict[str, tuple[str, tuple[str, ...], FailureClass | None, str]] = {
    "script over its memory": (f"python3 -S -c '{EAT}'", ("--mem=200M",), FailureClass.OOM, "host memory"),
    "step over its memory": (f"srun python3 -S -c '{EAT}'", ("--mem=200M",), FailureClass.OOM, "step 0"),
    "step over its memory, hidden": (
        f"srun --kill-on-bad-exit=1 python3 -S -c '{EAT}'; exit 0", ("-N2", "--mem=200M"), FailureClass.OOM, "step 0",
    ),
}  # fmt: skip
ALL_ENDS = ENDS | (CGROUP_ENDS if cgroups_usable() else {})


def submit_raw(site: Site, folder: Path, name: str, body: str, options: tuple[str, ...]) -> Handle:
    """A job whose script is not ours, so that nothing but Slurm's own words tells its end."""
    command = jobs.bash("true")
    attempt = attempt_of(jobs.job(folder, command, run_id=name))
    attempt.local_dir.mkdir(parents=True)
    own = [f"--job-name={attempt.name}", f"-o{attempt.local_dir}/job.out", f"-e{attempt.local_dir}/job.err", "-t3"]
    answer = site.cluster.client("sbatch", "--parsable", *own, "--no-requeue", *options, text=f"#!/bin/bash\n{body}\n")
    handle = common_handle("slurm", attempt, command)
    held = {"held": 4, "remote": False, "requeue": "--requeue" in options}
    return handle | {"job_id": answer, "submitted": time.time()} | held


@pytest.fixture(scope="module")
def ends(cluster: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Handle]:
    """All of them at once."""
    site = Site(cluster)  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("ends")
    return {
        name: submit_raw(site, folder / name, f"end-{number}", body, options)
        for number, (name, (body, options, _, _)) in enumerate(ALL_ENDS.items())
    }


@pytest.fixture(scope="module")
def overdue(cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SlurmLauncher, Handle]]:
    """A job that Slurm ends at its limit. Slurm knows whole minutes only, so this one starts before all others."""
    site = Site(cluster)  # type: ignore[arg-type]
    launcher = site.launcher(extra=site.on(1))
    yield (
        launcher,
        launcher.submit(jobs.job(tmp_path_factory.mktemp("overdue"), jobs.bash("sleep 300"), time_limit_s=60)),
    )


@pytest.mark.usefixtures("overdue")
@pytest.mark.parametrize("name", ALL_ENDS)
def test_every_end_has_its_class(name: str, ends: dict[str, Handle], site: Site) -> None:
    launcher = site.launcher()
    until(launcher, ends[name], JobState.FINISHED)
    done = launcher.collect(ends[name])
    _, _, failure, evidence = ALL_ENDS[name]
    assert (done.failure, evidence in done.evidence) == (failure, True), done
    assert done.state is (TrialState.SUCCEEDED if failure is None else TrialState.FAILED)


# --- the launcher's own jobs ----------------------------------------------------------------------------------------


@pytest.fixture
def bench(site: Site, tmp_path: Path) -> Bench:
    mark = f"slurm-endless-{os.getpid()}"
    settings = {"cpus_per_task": 2}
    return Bench(
        new=lambda: site.launcher(**settings),
        jobs={
            SUCCEEDS: lambda folder, trial: jobs.job(
                folder, jobs.succeeding(2), trial=trial, run_id=folder.parent.name
            ),
            FAILS: lambda folder, trial: jobs.job(
                folder, jobs.python("raise ValueError('no')"), trial=trial, run_id=folder.parent.name
            ),
            OUT_OF_MEMORY: lambda folder, trial: jobs.job(
                folder, jobs.python(jobs.TORCH_OOM, nodes=2), trial=trial, run_id=folder.parent.name
            ),
            ENDLESS: lambda folder, trial: jobs.job(
                folder, jobs.bash(f": {mark}; setsid sleep 301 & sleep 300; :", nodes=2), trial=trial, run_id=mark
            ),
        },
        folder=tmp_path,
        processes=lambda: count_marked(mark),
    )


@pytest.mark.parametrize("check", testing.checks(SUCCEEDS, FAILS, OUT_OF_MEMORY, ENDLESS), ids=lambda c: c.__name__)
def test_contract(check: Callable[[Bench], None], bench: Bench) -> None:
    check(bench)


def test_twelve_devices_take_three_nodes_and_three_agents(site: Site, tmp_path: Path) -> None:
    nodes, per_node = shape(12, 4)
    command = jobs.bash(
        f'{jobs.WRITE_TRACE}; echo "$CCL_NODE_RANK $CCL_NUM_NODES $CCL_MASTER_ADDR $CUDA_VISIBLE_DEVICES"',
        nodes=nodes, xpus_per_node=per_node, trace_globs=("*.json",), trace_count=3,
    )  # fmt: skip
    launcher = site.launcher(cpus_per_task=4)
    handle = launcher.submit(jobs.job(tmp_path, command, run_id="twelve"))
    until(launcher, handle, JobState.FINISHED)
    done = launcher.collect(handle)
    assert done.state is TrialState.SUCCEEDED, done.evidence
    said = sorted(path.read_text().split() for path in (tmp_path / "attempt-1").glob("rank-*.out"))
    first = said[0][2]
    assert said == [[str(rank), "3", first, "0,1,2,3"] for rank in range(3)]
    assert first.startswith("c")
    assert done.seconds is not None
    assert done.xpu_hours == pytest.approx(done.seconds * 12 / 3600)
    assert done.provenance["slurm_version"]
    assert done.provenance["job_id"] == handle["job_id"]
    assert done.provenance["nodes"].startswith("c")


def test_one_process_a_device_where_the_framework_wants_that(site: Site, tmp_path: Path) -> None:
    command = jobs.bash(
        f'{jobs.WRITE_TRACE}; echo "$CCL_NODE_RANK $CCL_LOCAL_RANK"', per_node=False, nodes=2, xpus_per_node=3,
        trace_globs=("*.json",), trace_count=6,
    )  # fmt: skip
    done = run(site.launcher(), jobs.job(tmp_path, command, run_id="ranks"))
    assert done.state is TrialState.SUCCEEDED, done.evidence
    said = sorted((tmp_path / "attempt-1" / f"rank-{rank}.out").read_text().strip() for rank in range(6))
    assert said == [f"{node} {local}" for node in range(2) for local in range(3)]


def test_one_ranks_memory_error_ends_all_and_is_told(site: Site, tmp_path: Path) -> None:
    command = replace(jobs.python(jobs.TORCH_OOM, nodes=4, per_node=False), env={"OOM_RANK": "2"})
    started = time.monotonic()
    done = run(site.launcher(), jobs.job(tmp_path, command, run_id="one-oom"))
    assert done.failure is FailureClass.OOM
    assert done.evidence.splitlines()[1] == (
        "rank 2: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 39.50 GiB"
    )
    assert "line 7, in forward" in done.evidence
    assert time.monotonic() - started < 200, "the other ranks would have slept for 300 s"


@needs_cgroups
def test_one_rank_over_the_host_memory(site: Site, tmp_path: Path) -> None:
    command = jobs.python(EAT_ON_RANK_1, nodes=2)
    done = run(site.launcher(memory="200M"), jobs.job(tmp_path, command, run_id="host-oom"))
    assert done.failure is FailureClass.OOM, done.evidence


def test_a_missing_trace_is_no_success(site: Site, tmp_path: Path) -> None:
    command = jobs.bash("true", trace_globs=("*.json",), trace_count=1)
    done = run(site.launcher(), jobs.job(tmp_path, command, run_id="no-trace"))
    assert (done.state, done.failure) == (TrialState.FAILED, FailureClass.TRACE_MISSING)


def test_many_jobs_cost_one_question_a_poll(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher()
    handles = []
    for trial in range(6):
        command = jobs.bash(f"{jobs.WRITE_TRACE}; sleep 1; exit {trial % 2 * 5}")
        handles.append(launcher.submit(jobs.job(tmp_path / str(trial), command, run_id="many", trial=trial)))
    launcher.watch.refresh()
    before, polls = launcher.client.calls, 0
    while any(launcher.poll(handle) is not JobState.FINISHED for handle in handles):
        time.sleep(0.05)
        polls += 1
        assert polls < 4000
    asked = launcher.client.calls - before
    assert asked <= polls + 1
    ends = [launcher.collect(handle).failure for handle in handles]
    assert ends == [None, FailureClass.FRAMEWORK_ERROR] * 3


def raw_state(site: Site, handle: Handle) -> str:
    """What squeue itself says of a job."""
    return site.cluster.client("squeue", "-h", "-t", "all", "-j", handle["job_id"], "-o", "%T")


def until_raw(site: Site, handle: Handle, *wanted: str) -> None:
    deadline = time.monotonic() + 90
    while raw_state(site, handle) not in wanted:
        assert time.monotonic() < deadline, raw_state(site, handle)
        time.sleep(0.1)


def test_a_start_and_an_end_are_noticed_in_the_next_poll(site: Site, tmp_path: Path) -> None:
    """Whatever the load: once Slurm says so, one more question is enough, and it is one squeue."""
    launcher = site.launcher(extra=("--hold",))
    body = f'until [ -e "$CCL_JOB_DIR/go" ]; do sleep 0.1; done; {jobs.WRITE_TRACE}'
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash(body, trace_globs=("*.json",)), run_id="notice"))
    launcher.watch.refresh()
    assert launcher.watch.view(handle["job_id"]).phase is JobState.QUEUED
    for action, states, phase in (
        (lambda: site.cluster.client("scontrol", "release", handle["job_id"]), ("RUNNING",), JobState.RUNNING),
        (lambda: (tmp_path / "go").touch(), ("COMPLETED",), JobState.FINISHED),
    ):
        action()
        until_raw(site, handle, *states)
        before = launcher.client.calls
        launcher.watch.refresh()
        assert launcher.watch.view(handle["job_id"]).phase is phase
        assert launcher.client.calls == before + 1


def test_submitting_is_quick_once_slurm_accepts(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher()
    started = time.monotonic()
    accepted: list[float] = []
    answer = launcher.client.submit

    def timed(arguments: object, script: str) -> object:
        done = answer(arguments, script)  # type: ignore[arg-type]
        accepted.append(time.monotonic())
        return done

    launcher.client.submit = timed  # type: ignore[assignment, method-assign]
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash("true"), run_id="quick"))
    assert time.monotonic() - accepted[0] < 1.0
    assert accepted[0] > started
    launcher.cancel(handle)


def test_variables_of_sbatch_do_not_change_what_a_job_asks_for(site: Site, tmp_path: Path) -> None:
    variables = {**site.cluster.environment, "SBATCH_TIMELIMIT": "1", "SBATCH_REQUEUE": "1", "SBATCH_PARTITION": "nope"}
    launcher = SlurmLauncher(SlurmSettings(polling=QUICK, partition="main"), runner=LocalRunner(variables))
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash("true"), run_id="named"))
    shown = site.cluster.client("scontrol", "-o", "show", "job", handle["job_id"])
    launcher.cancel(handle)
    assert "TimeLimit=00:01:00" not in shown and "Partition=main" in shown and "Requeue=0" in shown


# --- a framework's own program --------------------------------------------------------------------------------------

STANDIN = ROOT / "tests" / "cluster" / "standin" / "torchrun"
WORKLOAD = replace(catalogue.workload("wl4"), batch_size=64)
STANDIN_OVERHEAD = 0.04
CONFIGS: dict[str, dict[str, int | str]] = {
    "seed": {"tp": 4, "dp": 4, "micro_batch_size": 1},
    "best": {"tp": 1, "dp": 16, "micro_batch_size": 2},
    "too large": {"tp": 1, "dp": 16, "micro_batch_size": 4},
    "recomputed": {"tp": 1, "dp": 16, "micro_batch_size": 4, "activation_checkpointing": "full"},
}


def titan_job(folder: Path, trial: int, config: dict[str, int | str], extra: tuple[str, ...] = ()) -> Job:
    base = jobs.job(folder, None, run_id="titan", trial=trial)
    environment = replace(base.environment, framework="torchtitan", framework_version="0.2.2")
    plan = frameworks.get("torchtitan").plan(config, WORKLOAD, environment)
    settings = {"torchrun": [sys.executable, "-S", str(STANDIN)], "extra": extra}
    command = command_for("torchtitan", Deployment(config, plan, WORKLOAD, environment, settings))
    return replace(base, workload=WORKLOAD, environment=environment, config=config, plan=plan, command=command)


def test_a_search_over_real_arguments_finds_the_best_config(site: Site, tmp_path: Path) -> None:
    """Sixteen ranks on four nodes, four configs in the queue at once, scored from the traces they leave."""
    launcher, steps, failures = site.launcher(), {}, {}
    handles = {
        name: launcher.submit(titan_job(tmp_path / str(trial), trial, config))
        for trial, (name, config) in enumerate(CONFIGS.items())
    }
    for trial, (name, handle) in enumerate(handles.items()):
        until(launcher, handle, JobState.FINISHED)
        done = launcher.collect(handle)
        failures[name] = done.failure
        if done.failure is None:
            assert done.trace_dir is not None
            assert len(list(done.trace_dir.rglob("rank*_trace.json"))) == 16
            job = titan_job(tmp_path / str(trial), trial, CONFIGS[name])
            found = metrics.compute(
                done.trace_dir, workload=WORKLOAD, environment=job.environment, plan=job.plan, metrics=["avg_step_time"]
            )
            steps[name] = found["avg_step_time"].value
        else:
            assert "nodes 0-3: torch.OutOfMemoryError: CUDA out of memory" in done.evidence
    assert failures == {**dict.fromkeys(CONFIGS), "too large": FailureClass.OOM}
    assert min(steps, key=lambda name: steps[name] or math.inf) == "best"
    assert steps["best"] == pytest.approx(0.1 / 1.2, rel=1e-3)


_SPACE = """
name: small
world_size: tp * dp
knobs:
  - {key: tp, type: int, choices: [1, 2, 4], description: tensor-parallel degree}
  - {key: dp, type: int, choices: [4], description: data-parallel degree}
  - {key: micro_batch_size, type: int, choices: [1], description: sequences}
  - {key: activation_checkpointing, type: str, choices: [none, full], description: recomputation}
"""


def test_a_search_that_is_killed_and_resumed_ends_with_the_best_config(site: Site, tmp_path: Path) -> None:
    """The whole command line over the cluster: configs of 1, 2 and 4 nodes, three in flight, `kill -9` while jobs run,
    `resume`. No job is submitted twice, and one more tells what the profiler costs."""
    target = {
        "name": "real", "kind": "slurm", "environment": "perlmutter-a100-16", "parallel": 3,
        "setup": f"export PATH={shlex.quote(str(STANDIN.parent))}:\"$PATH\"\nsleep 2",
        "slurm": {"gpus_per_node": 4, "polling": {"first_s": 0.2, "longest_s": 1}},
    }  # fmt: skip
    (tmp_path / "target.yaml").write_text(json.dumps(target))
    (tmp_path / "space.yaml").write_text(_SPACE)
    words = ["run", "--workload", "wl4", "--framework", "torchtitan", "--space", str(tmp_path / "space.yaml")]
    words += ["--target", str(tmp_path / "target.yaml"), "--proposer", "grid", "--iterations", "5", "--json"]
    home, variables = tmp_path / "home", site.cluster.environment
    first = cli.start(home, *words, **variables)
    deadline, most = time.monotonic() + 240, 0
    while most < 3 or not site.cluster.client("squeue", "-h", "-t", "R", "-o", "%j").count("ccl-2"):
        assert time.monotonic() < deadline and first.poll() is None, first.communicate()
        most = max(most, site.cluster.client("squeue", "-h", "-o", "%j").count("ccl-2"))
        time.sleep(0.1)
    first.kill()
    first.communicate()
    (run_id,) = (path.name for path in (home / "runs").iterdir())
    second = cli.start(home, "resume", run_id, "--json", **variables)
    while second.poll() is None:
        most = max(most, site.cluster.client("squeue", "-h", "-o", "%j").count(run_id))
        time.sleep(0.2)
    out, err = second.communicate()
    assert second.returncode == 0, err
    assert most == 3, "trials in flight at once"
    found = json.loads(out)
    best = found["best"]
    assert (best["config"]["tp"], best["config"]["activation_checkpointing"]) == (1, "none")
    assert best["metrics"]["avg_step_time"] == pytest.approx(0.1)
    names = site.cluster.client("squeue", "-h", "-t", "all", "-o", "%j").split()
    own = [name.rpartition("-")[0] for name in names if run_id in name]
    assert len(own) == len(set(own)) == 6 + 1
    cost = found["profiler_cost"]
    assert cost["framework"].startswith("torchtitan") and cost["overhead"] == pytest.approx(STANDIN_OVERHEAD, abs=0.01)
    assert len({path.parent for path in (home / "runs" / run_id).rglob("rank15_trace.json.gz")}) == 2


_MODEL = """
format: 1
name: model
factors: {bandwidth: {inter_node: 0.5}}
fit: {held_out: {factor_90: {value: 1.2, low: 1.1, high: 1.3}}}
"""


def test_a_screened_search_submits_only_what_the_screen_lets_pass(site: Site, tmp_path: Path) -> None:
    """The dry run judges every proposal before it costs a job; what was measured on the cluster decides."""
    (tmp_path / "model.yaml").write_text(_MODEL)
    target = {
        "name": "real", "kind": "slurm", "environment": "perlmutter-a100-16", "calibration": "model.yaml",
        "setup": f"export PATH={shlex.quote(str(STANDIN.parent))}:\"$PATH\"",
        "slurm": {"gpus_per_node": 4, "polling": {"first_s": 0.2, "longest_s": 1}},
    }  # fmt: skip
    (tmp_path / "target.yaml").write_text(json.dumps(target))
    (tmp_path / "space.yaml").write_text(_SPACE)
    words = ["run", "--workload", "wl4", "--framework", "torchtitan", "--space", str(tmp_path / "space.yaml")]
    words += ["--target", str(tmp_path / "target.yaml"), "--proposer", "grid", "--iterations", "5", "--json"]
    words += ["--screen", "dry-run", "--no-profiler-cost"]
    process = cli.start(tmp_path / "home", *words, **site.cluster.environment)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found = json.loads(out)
    screen, refused = found["screen"], found["pruned"]
    assert screen["basis"].startswith("calibration model:") and screen["considered"] == 6
    assert refused == screen["verdicts"]["hopeless"] > 0 and found["failed"] == 0
    names = site.cluster.client("squeue", "-h", "-t", "all", "-o", "%j").split()
    assert sum(found["run_id"] in name for name in names) == screen["launched_and_measured"] == 6 - refused
    assert (found["best"]["config"]["tp"], found["best"]["config"]["activation_checkpointing"]) == (1, "none")
    assert found["best"]["metrics"]["avg_step_time"] == pytest.approx(0.1), "the cluster's figure, no prediction"


def test_an_argument_that_the_version_lacks_is_the_configs_failure(site: Site, tmp_path: Path) -> None:
    job = titan_job(tmp_path, 9, CONFIGS["seed"], extra=("--training.batch_size", "8"))
    done = run(site.launcher(), job)
    assert done.failure is FailureClass.FRAMEWORK_ERROR
    assert "unrecognized arguments: --training.batch_size" in done.evidence
    assert done.provenance["argv"][-1] == "8"


# --- drivers that die -----------------------------------------------------------------------------------------------

_DRIVER = """
import json, os, signal, sys
from pathlib import Path
from tests.launchers import jobs
from launchers.shell.ssh import SshRunner
from launchers.slurm.launcher import SlurmLauncher
from launchers.slurm.settings import SlurmSettings
from launchers.slurm.settings import SlurmSettings
folder, store = Path(sys.argv[1]), sys.argv[2] == "store"
command = jobs.bash('sleep 3; ' + jobs.WRITE_TRACE, trace_globs=("*.json",), trace_count=2, nodes=2)
handle = SlurmLauncher(SlurmSettings()).submit(jobs.job(folder, command, run_id="driver", trial=int(sys.argv[3])))
if store:
    (folder / "handle.json").write_text(json.dumps(handle))
else:
    (folder / "id").write_text(handle["job_id"])
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_driver(site: Site, folder: Path, store: str, trial: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **site.cluster.environment, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", _DRIVER, str(folder), store, str(trial)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_new_driver_takes_up_the_job_of_a_killed_one(site: Site, tmp_path: Path) -> None:
    killed_driver(site, tmp_path, "store", 1)
    handle = json.loads((tmp_path / "handle.json").read_text())
    launcher = site.launcher()
    until(launcher, handle, JobState.FINISHED)
    assert launcher.collect(handle).state is TrialState.SUCCEEDED


def test_a_job_whose_handle_was_lost_is_found_by_name_and_not_submitted_again(site: Site, tmp_path: Path) -> None:
    killed_driver(site, tmp_path, "lose", 2)
    command = jobs.bash("sleep 3; " + jobs.WRITE_TRACE, trace_globs=("*.json",), trace_count=2, nodes=2)
    launcher = site.launcher()
    handle = launcher.submit(jobs.job(tmp_path, command, run_id="driver", trial=2, attempt=2))
    assert handle["job_id"] == (tmp_path / "id").read_text()
    assert handle["attempt"] == 1
    until(launcher, handle, JobState.FINISHED)
    assert launcher.collect(handle).state is TrialState.SUCCEEDED


def test_a_lost_job_of_another_config_is_cancelled(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher()
    lost = launcher.submit(jobs.job(tmp_path, jobs.bash("sleep 300"), run_id="other"))
    mine = launcher.submit(jobs.job(tmp_path, jobs.succeeding(), run_id="other", attempt=2))
    assert mine["job_id"] != lost["job_id"]
    assert until(launcher, lost, JobState.FINISHED) is JobState.FINISHED
    assert launcher.collect(lost).failure is FailureClass.CANCELLED


# --- jobs that never start, and jobs that wait ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "nodes", "seconds", "reason"),
    [
        ({}, 9, 60, "PartitionNodeLimit"),
        ({"partition": "short"}, 1, 36_000, "PartitionTimeLimit"),
        ({"qos": "single"}, 1, 3_600, "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_what_sbatch_accepts_and_never_starts_is_given_up(
    site: Site, tmp_path: Path, fields: dict[str, object], nodes: int, seconds: float, reason: str
) -> None:
    launcher = site.launcher(preflight=False, **fields)
    job = jobs.job(tmp_path, jobs.bash("true", nodes=nodes), run_id=f"never-{reason}", time_limit_s=seconds)
    done = run(launcher, job)
    assert (done.failure, reason in done.evidence) == (FailureClass.QUEUE_TIMEOUT, True), done.evidence
    assert not site.cluster.client("squeue", "-h", "-t", "PD,R", "-n", f"ccl-never-{reason}-1-1")


def test_a_job_that_waits_for_the_limit_of_its_qos_is_waited_for(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher(qos="single")
    go = f"until [ -e {shlex.quote(str(tmp_path))}/go ]; do sleep 0.1; done"
    first = launcher.submit(jobs.job(tmp_path / "a", jobs.bash(go), run_id="limit", trial=1))
    assert until(launcher, first, JobState.RUNNING) is JobState.RUNNING
    second = launcher.submit(jobs.job(tmp_path / "b", jobs.bash("true"), run_id="limit", trial=2))
    until_raw(site, second, "PENDING")
    deadline = time.monotonic() + 90
    while "QOSMaxJobsPerUserLimit" not in site.cluster.client("squeue", "-h", "-j", second["job_id"], "-o", "%r"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2 * QUICK.never_starts_s)
    launcher.watch.refresh()
    assert launcher.poll(second) is JobState.QUEUED, "longer than a job that never starts is given"
    (tmp_path / "go").touch()
    until(launcher, second, JobState.FINISHED)
    assert launcher.collect(second).state is TrialState.SUCCEEDED


def test_a_job_that_was_put_back_and_held_is_given_up(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher(requeue=True)
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash("sleep 300"), run_id="requeuehold"))
    until_raw(site, handle, "RUNNING")
    site.cluster.client("scontrol", "requeuehold", handle["job_id"])
    until(launcher, handle, JobState.FINISHED)
    done = launcher.collect(handle)
    assert (done.failure, "held" in done.evidence) == (FailureClass.QUEUE_TIMEOUT, True), done.evidence


def test_a_job_that_somebody_cancels(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher()
    handle = launcher.submit(jobs.job(tmp_path, jobs.bash("sleep 300"), run_id="somebody"))
    until_raw(site, handle, "RUNNING")
    site.cluster.client("scancel", handle["job_id"])
    until(launcher, handle, JobState.FINISHED)
    done = launcher.collect(handle)
    assert (done.state, done.failure) == (TrialState.CANCELLED, FailureClass.CANCELLED)


# --- arrays ---------------------------------------------------------------------------------------------------------


def test_a_site_whose_sbatch_makes_an_array_of_every_job(site: Site, tmp_path: Path) -> None:
    """Trials are jobs of their own; where a site wraps them, the id that sbatch prints is that of an array."""
    launcher = site.launcher(extra=("--array=0-0",))
    good = launcher.submit(jobs.job(tmp_path / "good", jobs.succeeding(2), run_id="array", trial=1))
    bad = launcher.submit(jobs.job(tmp_path / "bad", jobs.python("raise ValueError('no')"), run_id="array", trial=2))
    endless = launcher.submit(jobs.job(tmp_path / "long", jobs.bash("sleep 300"), run_id="array", trial=3))
    listed = site.cluster.client("squeue", "-h", "-r", "-t", "all", "-j", good["job_id"], "-o", "%i")
    assert listed == f"{good['job_id']}_0"
    until(launcher, good, JobState.FINISHED)
    until(launcher, bad, JobState.FINISHED)
    done, failed = launcher.collect(good), launcher.collect(bad)
    assert done.state is TrialState.SUCCEEDED, done.evidence
    assert (failed.failure, "ValueError: no" in failed.evidence) == (FailureClass.FRAMEWORK_ERROR, True)
    again = site.launcher(extra=("--array=0-0",))
    taken = again.submit(jobs.job(tmp_path / "long", jobs.bash("sleep 300"), run_id="array", trial=3, attempt=2))
    assert (taken["job_id"].partition("_")[0], taken["attempt"]) == (endless["job_id"], 1)
    assert until(again, taken, JobState.RUNNING) is JobState.RUNNING
    again.cancel(taken)
    assert again.collect(taken).failure is FailureClass.CANCELLED


# --- refusals and waits ---------------------------------------------------------------------------------------------


def test_a_job_in_a_closed_partition_never_starts(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher(partition="closed", preflight=False)
    done = run(launcher, jobs.job(tmp_path, jobs.bash("true"), run_id="closed"))
    assert done.failure is FailureClass.QUEUE_TIMEOUT
    assert "PartitionDown" in done.evidence
    assert not site.cluster.client("squeue", "-h", "-t", "PD,R", "-n", "ccl-closed-1-1")


def test_the_preflight_refuses_what_no_node_can_run(site: Site, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="Requested node configuration is not available"):
        site.launcher().submit(jobs.job(tmp_path, jobs.bash("true", nodes=9), run_id="nine"))
    assert not site.cluster.client("squeue", "-h", "-t", "all", "-n", "ccl-nine-1-1")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"partition": "nope"}, "[Pp]artition"),
        ({"account": "nope"}, "account"),
        ({"qos": "nope"}, "qos"),
        ({"extra": ("--nope",)}, "nope"),
    ],
)
def test_what_is_wrong_in_the_target_file_ends_the_run(
    site: Site, tmp_path: Path, fields: dict[str, object], text: str
) -> None:
    with pytest.raises(TargetUnavailableError, match=text) as caught:
        site.launcher(**fields).submit(jobs.job(tmp_path, jobs.bash("true"), run_id="wrong"))
    assert "target file" in caught.value.hint


# --- a cluster behind a login node, with files of its own -----------------------------------------------------------


def test_over_ssh(site: Site, login: SshRunner, tmp_path: Path) -> None:
    """What the job writes is on the cluster; what is read here was fetched."""
    there, here = tmp_path / "there 'n", tmp_path / "here"
    settings = SlurmSettings(polling=QUICK, remote_directory=str(there))
    runner = replace(login, environment=site.cluster.environment)
    launcher = SlurmLauncher(settings, runner=runner)
    command = replace(jobs.succeeding(2), files={"conf.txt": "x"})
    handle = launcher.submit(jobs.job(here / "good", command, run_id="far"))
    bad = launcher.submit(jobs.job(here / "bad", jobs.python("raise ValueError('no')"), run_id="far", trial=2))
    assert not (here / "good" / "trace").exists()
    for one in (handle, bad):
        until(launcher, one, JobState.FINISHED)
    done = launcher.collect(handle)
    assert done.state is TrialState.SUCCEEDED, done.evidence
    assert done.trace_dir == here / "good" / "trace"
    assert sorted(path.name for path in (here / "good" / "trace").iterdir()) == ["rank0.json", "rank1.json"]
    assert (there / "far" / "trial-1" / "conf.txt").read_text() == "x"
    assert done.provenance["where"] == runner.host
    failed = launcher.collect(bad)
    assert (failed.failure, "ValueError: no" in failed.evidence) == (FailureClass.FRAMEWORK_ERROR, True)


# --- doctor ---------------------------------------------------------------------------------------------------------


def diagnosed(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch, **target: object
) -> tuple[int, dict[str, Any]]:
    """Exit code of `doctor --json`, and its lines by name; each that is not in order has a fix."""
    for name, value in site.cluster.environment.items():
        monkeypatch.setenv(name, value)
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "nvidia-smi").write_text('#!/bin/sh\nfor i in 0 1 2 3; do echo "GPU $i: A100"; done\n')
    (programs / "nvidia-smi").chmod(0o755)
    data = {"name": "t", "kind": "slurm", "environment": "perlmutter-a100-4", "setup": f"export PATH={programs}:$PATH"}
    (folder / "target.yaml").write_text(json.dumps({**data, **target}))
    app = typer.Typer()
    app.command()(doctor)
    words = ["--json", "--target", str(folder / "target.yaml"), "--home", str(folder / "home")]
    done = CliRunner().invoke(app, words)
    lines = {line["name"]: line for line in json.loads(done.stdout)}
    assert all(line["fix"] for line in lines.values() if line["level"] != "ok"), lines
    return done.exit_code, lines


def test_doctor_finds_a_cluster_in_order(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, framework = {"partition": "main", "cpus_per_task": 2}, {"path": "/src/torchtitan"}
    code, lines = diagnosed(site, tmp_path, monkeypatch, slurm=slurm, framework=framework)
    assert code == 0, lines
    own = [
        "login node", "programs", "controller", "partition", "devices", "accounting", "clock", "job folder",
        "probe job", "devices on the node", "framework on the node", "clock on the node",
    ]  # fmt: skip
    assert [name for name in lines if name in own] == own
    assert {lines[name]["level"] for name in own} == {"ok"}, lines
    assert lines["devices"]["found"] == "4 GPUs a node"
    assert lines["devices on the node"]["found"] == "4 seen by nvidia-smi"
    assert str(tmp_path / "home") in lines["trace folder on the node"]["found"]
    assert list((tmp_path / "home" / "doctor").iterdir()) == []


@pytest.mark.parametrize(
    ("target", "name", "level", "found"),
    [
        ({"slurm": {"partition": "closed"}}, "partition", "fail", "closed is not up"),
        ({"slurm": {"partition": "nope"}}, "partition", "fail", "no partition nope; there are"),
        ({"environment": "h100-8"}, "devices", "fail", "4 GPUs a node"),
        ({"slurm": {"account": "nope"}}, "probe job", "fail", "account"),
        ({"setup": "module load nothing"}, "probe job", "warn", "setup lines"),
    ],
)
def test_doctor_names_what_is_wrong(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: dict[str, Any],
    name: str,
    level: str,
    found: str,
) -> None:
    code, lines = diagnosed(site, tmp_path, monkeypatch, **target)
    assert (lines[name]["level"], found in lines[name]["found"]) == (level, True), lines
    assert code == (3 if level == "fail" else 0)


def test_doctor_without_accounting(bare_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = diagnosed(bare_site, tmp_path, monkeypatch, framework={"path": "/src"})
    assert (code, lines["accounting"]["level"], lines["probe job"]["level"]) == (0, "warn", "ok"), lines


# --- an allocation that is there already ----------------------------------------------------------------------------


def test_steps_of_an_allocation(site: Site, tmp_path: Path) -> None:
    driver = (
        "import json, sys, time\nfrom pathlib import Path\nfrom tests.launchers import jobs\n"
        "from launchers.base import JobState\nfrom launchers.slurm.allocation import AllocationLauncher\n"
        "from launchers.slurm.settings import SlurmSettings\n"
        "launcher, out = AllocationLauncher(SlurmSettings(cpus_per_task=2)), []\n"
        "good, endless = jobs.succeeding(2), jobs.bash('sleep 300', nodes=2)\n"
        "for trial, command, limit in ((1, good, 60), (2, endless, 2)):\n"
        "    job = jobs.job(Path(sys.argv[1]) / str(trial), command, trial=trial, time_limit_s=limit)\n"
        "    handle = launcher.submit(job)\n"
        "    while launcher.poll(handle) is not JobState.FINISHED: time.sleep(0.1)\n"
        "    out.append(launcher.collect(handle).failure)\n"
        "print(json.dumps(out))\n"
    )
    environment = {**os.environ, **site.cluster.environment, "PYTHONPATH": str(ROOT)}
    salloc = ["salloc", "-Q", "-N2", "-c2", "--gpus-per-node=1", "-t5"]
    argv = [*salloc, sys.executable, "-c", driver, str(tmp_path)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [None, "timeout"]


# --- faults of the cluster ------------------------------------------------------------------------------------------


def test_preemption(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher(qos="scavenger", extra=(*site.on(3), "--exclusive"))
    again = site.launcher(qos="scavenger", extra=(*site.on(2), "--exclusive"), requeue=True)
    victim = launcher.submit(jobs.job(tmp_path / "a", jobs.bash("sleep 300"), run_id="victim"))
    requeued = again.submit(jobs.job(tmp_path / "b", jobs.bash("sleep 300"), run_id="requeued"))
    assert until(launcher, victim, JobState.RUNNING) is JobState.RUNNING
    assert until(again, requeued, JobState.RUNNING) is JobState.RUNNING
    urgent = site.launcher(qos="urgent", extra=(*site.on(2, 3), "--exclusive"))
    winner = urgent.submit(jobs.job(tmp_path / "c", jobs.bash("true", nodes=2), run_id="winner"))
    assert until(again, requeued, JobState.QUEUED) is JobState.QUEUED, "a requeued job has not ended"
    again.cancel(requeued)
    assert again.collect(requeued).failure is FailureClass.CANCELLED
    until(urgent, winner, JobState.FINISHED)
    until(launcher, victim, JobState.FINISHED)
    done = launcher.collect(victim)
    assert (done.state, done.failure) == (TrialState.FAILED, FailureClass.PREEMPTED)


def test_a_dead_node(site: Site, tmp_path: Path) -> None:
    launcher, again = site.launcher(extra=site.on(4)), site.launcher(extra=site.on(4), requeue=True)
    final = launcher.submit(jobs.job(tmp_path / "a", jobs.bash("sleep 300"), run_id="final"))
    requeued = again.submit(jobs.job(tmp_path / "b", jobs.bash("sleep 300"), run_id="again"))
    assert until(launcher, final, JobState.RUNNING) is JobState.RUNNING
    assert until(again, requeued, JobState.RUNNING) is JobState.RUNNING
    site.cluster.down_node(4)
    try:
        assert until(again, requeued, JobState.QUEUED) is JobState.QUEUED, "a requeued job has not ended"
        again.cancel(requeued)
        until(launcher, final, JobState.FINISHED)
        assert launcher.collect(final).failure is FailureClass.NODE_FAILURE
    finally:
        site.cluster.start_node(4)


def test_the_controller_restarts_in_the_middle(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher()
    waiting = 'echo started; until [ -e "$CCL_JOB_DIR/go" ]; do sleep 0.2; done'
    command = jobs.bash(f"{waiting}; {jobs.WRITE_TRACE}", trace_globs=("*.json",))
    handle = launcher.submit(jobs.job(tmp_path, command, run_id="restart"))
    assert until(launcher, handle, JobState.RUNNING) is JobState.RUNNING
    log = tmp_path / "attempt-1" / "rank-0.out"
    while not log.exists() or not log.read_text():
        assert launcher.poll(handle) is JobState.RUNNING
        time.sleep(0.1)
    site.cluster.stop_controller()
    try:
        launcher.client.polling = launcher.client.polling.model_copy(update={"command_timeout_s": 3.0})
        launcher.watch.refresh()
        assert launcher.poll(handle) in (JobState.UNKNOWN, JobState.RUNNING), "silence is no end"
        with pytest.raises(TargetUnavailableError, match="may still run"):
            fresh = site.launcher()
            fresh.client.polling, fresh.client.accounting = launcher.client.polling, False
            fresh.poll(handle)
    finally:
        site.cluster.start_controller()
        (tmp_path / "go").touch()
    until(launcher, handle, JobState.FINISHED)
    done = launcher.collect(handle)
    assert done.state is TrialState.SUCCEEDED, done.evidence


def test_a_held_job_waits_and_is_given_up(site: Site, tmp_path: Path) -> None:
    launcher = site.launcher(extra=("--hold",))
    done = run(launcher, jobs.job(tmp_path, jobs.bash("true"), run_id="held"))
    assert (done.failure, "JobHeldUser" in done.evidence) == (FailureClass.QUEUE_TIMEOUT, True)


def test_the_time_limit(overdue: tuple[SlurmLauncher, Handle]) -> None:
    launcher, handle = overdue
    until(launcher, handle, JobState.FINISHED, seconds=240)
    done = launcher.collect(handle)
    assert (done.state, done.failure) == (TrialState.FAILED, FailureClass.TIMEOUT)
    assert "TIME LIMIT" in done.evidence or "time limit" in done.evidence
    assert done.seconds is not None
    assert 55 <= done.seconds <= 200, "Slurm ended it, 60 s after its start or somewhat later"


# --- a cluster without accounting -----------------------------------------------------------------------------------


def test_without_accounting(bare_site: Site, tmp_path: Path) -> None:
    launcher = bare_site.launcher()
    commands = {
        "good": (jobs.succeeding(2), None),
        "bad": (jobs.python("raise KeyError('x')", nodes=2), FailureClass.FRAMEWORK_ERROR),
        "oom": (jobs.python(jobs.TORCH_OOM), FailureClass.OOM),
    }
    for trial, (name, (command, failure)) in enumerate(commands.items()):
        done = run(launcher, jobs.job(tmp_path / name, command, run_id="bare", trial=trial))
        assert done.failure is failure, done.evidence
        assert done.provenance["accounting"] is False
        assert done.seconds is not None
    handle = launcher.submit(jobs.job(tmp_path / "long", jobs.bash("sleep 300"), run_id="bare", trial=9))
    assert until(launcher, handle, JobState.RUNNING) is JobState.RUNNING
    launcher.cancel(handle)
    assert launcher.collect(handle).failure is FailureClass.CANCELLED


def test_memory_polled_without_cgroups(bare_site: Site, tmp_path: Path) -> None:
    launcher = bare_site.launcher(memory="200M")
    done = run(launcher, jobs.job(tmp_path, jobs.python(EAT), run_id="polled"))
    assert done.failure is FailureClass.OOM, done.evidence
    assert "exceeded memory limit" in done.evidence
