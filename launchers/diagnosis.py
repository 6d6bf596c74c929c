"""Is a target fit for use: one line for each thing a search needs there, with what to do where it is missing."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launchers.base import Job, JobState
from launchers.checks import Check, Level, bad, ok
from launchers.frameworks.commands.settings import read_settings
from launchers.shell.command import Command
from launchers.shell.runner import LocalRunner, Runner
from launchers.target_file import TargetSettings, build_launcher
from runs.environment import Environment
from runs.errors import CclSearchError
from runs.plan import ParallelPlan
from runs.trial import TrialState

if TYPE_CHECKING:
    from runs.workload import Workload

_PACKAGES = {"torchtitan": "torchtitan", "megatron-lm": "megatron-core", "maxtext": "maxtext", "vllm": "vllm",
             "sglang": "sglang"}  # fmt: skip
_SKEW_S = 5.0
_LEAST_FREE_GB = 10.0
_SLURM_PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun")


def diagnose(target: TargetSettings, environment: Environment, folder: Path) -> Iterator[Check]:
    """Checks of a target from here, without starting a job. `folder` is the home, where trials live on this machine."""
    yield free_space(folder)
    if target.kind == "slurm":
        yield from _slurm(target, environment, folder)
    elif target.kind == "tpu-vm":
        from launchers.tpu_vm.diagnosis import checks

        yield from checks(target.tpu_vm or {}, folder)
    elif target.kind == "local":
        yield _programs(LocalRunner(), ("bash", "ps"), "install bash 4.3 or newer, and procps")


def free_space(folder: Path) -> Check:
    """Whether traces have room on this machine."""
    there = next((parent for parent in (folder, *folder.resolve().parents) if parent.exists()), Path("/"))
    free = shutil.disk_usage(there).free / 1e9
    text = f"{free:.0f} GB free at {there}"
    if free < _LEAST_FREE_GB:
        return bad("free space", text, "choose another --home: traces take gigabytes", Level.WARN)
    return ok("free space", text)


def _slurm(target: TargetSettings, environment: Environment, folder: Path) -> Iterator[Check]:
    runner = target.runner()
    reached = runner.run(("true",))
    if not reached.ok:
        yield bad("login node", reached.complaint, "try `ssh` by hand; docs/targets.md says how to open the connection")
        return
    yield ok("login node", f"{runner.where} answers in {reached.seconds:.2f} s")
    programs = _programs(runner, _SLURM_PROGRAMS, "set `bin_dir` (or `ssh.setup`) in the target file")
    yield programs
    if programs.level is not Level.OK:
        return
    yield _controller(runner)
    yield from _partition(runner, target, environment)
    yield _accounting(runner)
    yield _clock(runner)
    remote = target.slurm.remote_directory if target.slurm is not None else None
    yield _writable(runner, remote or str(folder.resolve()))


def _programs(runner: Runner, names: tuple[str, ...], fix: str) -> Check:
    missing = [name for name in names if not runner.run(("sh", "-c", 'command -v "$1"', "sh", name)).ok]
    if missing:
        return bad("programs", f"not found on {runner.where}: {', '.join(missing)}", fix)
    return ok("programs", ", ".join(names))


def _controller(runner: Runner) -> Check:
    asked = runner.run(("scontrol", "ping"))
    up = asked.ok and " UP" in asked.out
    text = " ".join(asked.out.split()) or asked.complaint
    return ok("controller", text) if up else bad("controller", text, "ask the site; `ccl-search resume` goes on later")


def _partition(runner: Runner, target: TargetSettings, environment: Environment) -> Iterator[Check]:
    asked = runner.run(("sinfo", "-h", "-o", "%R|%a|%G|%D"))
    rows = [line.split("|") for line in asked.out.splitlines() if line.count("|") == 3]
    wanted = target.slurm.partition if target.slurm is not None else None
    own = [row for row in rows if wanted in (None, row[0])]
    if not own:
        names = ", ".join(sorted({row[0] for row in rows}))
        yield bad("partition", f"no partition {wanted}; there are {names}", "set `partition` in the target file")
        return
    open_rows = [row for row in own if row[1] == "up"]
    names = ", ".join(sorted({row[0] for row in open_rows or own}))
    yield ok("partition", names) if open_rows else bad("partition", f"{names} is not up", "choose another partition")
    devices = max((_gpus(row[2]) for row in own), default=0)
    text = f"{devices} GPUs a node"
    if devices >= environment.xpus_per_node or (target.slurm is not None and target.slurm.gpu_request == "none"):
        yield ok("devices", text)
    else:
        fix = f"{environment.name} has {environment.xpus_per_node} a node: choose another environment or partition"
        yield bad("devices", text, fix)


def _gpus(resources: str) -> int:
    """GPUs in a node's generic resources, `gpu:a100:4(S:0-1)` or `gpu:4,mps:100`."""
    return sum(int(count) for count in re.findall(r"\bgpu:(?:[A-Za-z][\w.-]*:)?(\d+)", resources))


def _accounting(runner: Runner) -> Check:
    asked = runner.run(("sacct", "-n", "-X", "-S", "now-1hours", "-o", "JobID"))
    if asked.ok:
        return ok("accounting", "sacct answers")
    fix = "nothing to do: squeue, scontrol and the jobs' result files are used instead"
    return bad("accounting", asked.complaint, fix, Level.WARN)


def _clock(runner: Runner) -> Check:
    before = time.time()
    asked = runner.run(("date", "+%s"))
    after = time.time()
    try:
        told = float(asked.out) + 0.5  # it was somewhere in this second
    except ValueError:
        return bad("clock", asked.complaint, "`date +%s` should print seconds there", Level.WARN)
    skew = _outside(told, before, after)
    if abs(skew) > _SKEW_S:
        return bad("clock", f"{skew:+.0f} s against this machine", "let NTP set both clocks", Level.WARN)
    return ok("clock", f"within {_SKEW_S:.0f} s of this machine")


def _outside(told: float, before: float, after: float) -> float:
    """By how many seconds a clock was ahead (or behind), if it was read between two moments of this machine's."""
    return max(told - after, 0.0) + min(told - before, 0.0)


def _writable(runner: Runner, folder: str) -> Check:
    probe = f"{folder}/.ccl-search-doctor"
    written = runner.write(probe, "x")
    runner.run(("rm", "-f", "--", probe))
    if written.ok:
        return ok("job folder", f"{folder} can be written")
    return bad("job folder", written.complaint, "set --home or `remote_directory` to a folder you may write to")


# --- what only a node can tell --------------------------------------------------------------------------------------

_PROBE = """
echo "host=$(hostname)"
echo "gpus=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU || true)"
echo "visible=${CUDA_VISIBLE_DEVICES:-}"
find='import sys; from importlib.metadata import version; print(version(sys.argv[1]))'
echo "version=$("$1" -c "$find" "$2" 2>/dev/null)"
echo "time=$(date +%s)"
echo "free=$(df -Pk -- "$CCL_TRACE_DIR" | awk 'NR == 2 {print $4}')"
printf x > "$CCL_TRACE_DIR/probe" && echo "wrote=$CCL_TRACE_DIR"
"""


@dataclass(frozen=True)
class Probe:
    """A small job that looks around on a node. `patience_s` bounds the wait for it, in the queue too."""

    target: TargetSettings
    environment: Environment
    framework: str
    workload: Workload
    folder: Path
    patience_s: float = 300.0

    def checks(self) -> list[Check]:
        """Run it, and say what it saw: devices, the framework's version, whether it can write traces."""
        started = time.time()
        try:
            said, problem = self._run()
        except CclSearchError as error:
            return [bad("probe job", error.message, error.hint)]
        if said is None:
            return [bad("probe job", problem, "start again later, or leave it out: --no-probe", Level.WARN)]
        seen = [self._devices(said), self._version(said), _node_clock(said, started), _node_space(said)]
        return [ok("probe job", f"ran on {said.get('host', '?')}"), *seen]

    @property
    def python(self) -> str:
        """The interpreter that the target names for the framework."""
        return read_settings(self.framework, self.target.framework).python

    def job(self) -> Job:
        """The job, as small as its target allows: one node, with all its devices."""
        devices = self.environment.xpus_per_node
        package = _PACKAGES.get(self.framework, self.framework)
        words = ("bash", "-c", _PROBE, "bash", self.python, package)
        command = Command(words, trace_globs=("probe",), trace_count=1, xpus_per_node=devices)
        plan = ParallelPlan(self.framework, tp=devices)
        name = f"doctor-{time.time_ns()}"
        return Job(
            name, 0, 1, self.folder / name, self.workload, self.environment, {}, plan, "", 120.0, command=command
        )

    def _run(self) -> tuple[dict[str, str] | None, str]:
        launcher, job = build_launcher(self.target), self.job()
        handle = launcher.submit(job)
        deadline = time.monotonic() + self.patience_s
        while launcher.poll(handle) is not JobState.FINISHED:
            if time.monotonic() > deadline:
                launcher.cancel(handle)
                return None, f"the probe job did not end within {self.patience_s:.0f} s"
            time.sleep(0.5)
        done = launcher.collect(handle)
        if done.state is not TrialState.SUCCEEDED:
            return None, f"the probe job failed ({done.failure}): {done.evidence}"
        text = LocalRunner().read(str(job.directory / "attempt-1" / "rank-0.out")) or ""
        shutil.rmtree(job.directory, ignore_errors=True)
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line), ""

    def _devices(self, said: dict[str, str]) -> Check:
        seen, wanted = int(said.get("gpus") or 0), self.environment.xpus_per_node
        if seen >= wanted or self.environment.device.xpu_type != "GPU":
            return ok("devices on the node", f"{seen} seen by nvidia-smi")
        text = f"{seen} seen by nvidia-smi, CUDA_VISIBLE_DEVICES={said.get('visible', '')!r}"
        return bad("devices on the node", text, f"{self.environment.name} has {wanted} a node: check `gpu_request`")

    def _version(self, said: dict[str, str]) -> Check:
        package = _PACKAGES.get(self.framework, self.framework)
        if said.get("version"):
            return ok("framework on the node", f"{package} {said['version']}")
        path = read_settings(self.framework, self.target.framework).path
        if path is not None:
            return ok("framework on the node", f"a checkout at {path}; {self.python} finds no package {package}")
        fix = "activate its environment in `setup`, or set `path` to a checkout"
        return bad("framework on the node", f"{self.python} finds no package {package}", fix, Level.WARN)


def _node_clock(said: dict[str, str], submitted: float) -> Check:
    """The node's clock: what it said lies between the job's submission and now."""
    skew = _outside(float(said.get("time") or 0) + 0.5, submitted, time.time())
    if abs(skew) <= _SKEW_S:
        return ok("clock on the node", "agrees with this machine")
    return bad("clock on the node", f"{skew:+.0f} s against this machine", "let NTP set both clocks", Level.WARN)


def _node_space(said: dict[str, str]) -> Check:
    free = float(said.get("free") or 0) * 1024 / 1e9
    text = f"{said.get('wrote', '?')} was written by the node, {free:.0f} GB free"
    if free < _LEAST_FREE_GB:
        return bad("trace folder on the node", text, "choose another --home: traces take gigabytes", Level.WARN)
    return ok("trace folder on the node", text)
