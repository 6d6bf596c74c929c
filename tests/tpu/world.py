"""Everything a TPU test needs: the stand-in service, workers, launchers that use them, and jobs to run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from launchers.base import Handle, Job, JobState
from launchers.shell.command import Command, Slot
from launchers.tpu_vm.client import GoogleClient
from launchers.tpu_vm.control import ControlPlane
from launchers.tpu_vm.gcloud import Gcloud
from launchers.tpu_vm.launcher import TpuVmLauncher
from launchers.tpu_vm.settings import read_settings
from runs import catalogue
from runs.plan import ParallelPlan
from tests.tpu.api import TpuApi
from tests.tpu.workers import Worker, Workers

REQUIRED = "CCL_SEARCH_REQUIRE_TPU_TESTS"
ZONES = ("us-west4-a", "us-east5-b")


def missing(reason: str) -> None:
    """Skip, or fail where these tests are demanded."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set, but {reason}")
    pytest.skip(reason)


class Clock:
    """Time that tests can move forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class World:
    """One test's service, workers and home."""

    api: TpuApi
    workers: Workers
    home: Path
    clock: Clock = field(default_factory=Clock)

    # --- launchers --------------------------------------------------------------------------------------------------

    def google(self) -> GoogleClient:
        """Google's client, talking to the stand-in."""
        return GoogleClient("test-project", self.api.url, anonymous=True)

    def gcloud(self) -> Gcloud:
        """The real gcloud, talking to the stand-in, with a home of its own."""
        if shutil.which("gcloud") is None:
            pytest.skip(
                "gcloud is not installed (it is no Debian package): the same calls are tested by Google's client"
            )
        own = self.home / "gcloud-home"
        own.mkdir(exist_ok=True)
        environment = {
            "HOME": str(own),
            "CLOUDSDK_CONFIG": str(own / "config"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{self.api.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{self.api.url}/compute/v1/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{self.api.url}/storage/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        }
        return Gcloud("test-project", environment=environment)

    def launcher(self, plane: ControlPlane | None = None, **settings: Any) -> TpuVmLauncher:
        """A launcher on slices of two hosts of four chips, by Google's client and plain ssh unless said otherwise."""
        known = ["-o", f"UserKnownHostsFile={self.workers.folder}/known_hosts"]
        ssh = {"connect": "direct", "user": "root", "key": str(self.workers.key), "options": known}
        base: dict[str, Any] = {
            "project": "test-project",
            "zones": [ZONES[0]],
            "accelerator": "v4-16",
            "runtime_version": "v2-alpha-tpuv5-lite",
            "provisioning": "direct",
            "control": "google-cloud-tpu",
            "ssh": ssh,
        }
        return TpuVmLauncher(read_settings({**base, **settings}), plane or self.google(), self.clock)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def job(self, program: str, trial: int = 0, attempt: int = 1, nodes: int = 2, **changes: Any) -> Job:
        """A job whose every worker runs a shell program; `$1` is the worker's number."""
        command = Command(
            argv=("bash", Slot.JOB_DIR + "/program.sh", Slot.NODE_RANK),
            env={"CARD": 'it\'s "odd"'},
            files={"program.sh": program},
            trace_globs=("**/*.json",),
            trace_count=nodes,
            nodes=nodes,
            xpus_per_node=4,
            framework_version="tests",
        )
        command = replace(command, **changes.pop("command", {}))
        directory = self.home / "runs" / "run-1" / "trials" / str(trial)
        directory.mkdir(parents=True, exist_ok=True)
        facts: dict[str, Any] = {
            "run_id": "run-1",
            "trial": trial,
            "attempt": attempt,
            "directory": directory,
            "workload": catalogue.workload("wl4"),
            "environment": catalogue.environment("perlmutter-a100-16"),
            "config": {"tp": command.world_size},
            "plan": ParallelPlan("command", tp=command.world_size),
            "script": "",
            "time_limit_s": 600.0,
            "command": command,
        }
        return Job(**{**facts, **changes})

    def until(
        self, launcher: TpuVmLauncher, handle: Handle, wanted: JobState = JobState.FINISHED, seconds: float = 180.0
    ) -> JobState:
        """Poll until the job is as wanted (or finished)."""
        deadline = time.monotonic() + seconds
        while (state := launcher.poll(handle)) not in (wanted, JobState.FINISHED):
            if time.monotonic() > deadline:
                raise AssertionError(f"{state} after {seconds} s: {self.state_of(handle)}")
            time.sleep(0.2)
        return state

    def state_of(self, handle: Handle) -> str:
        """The attempt's state file, for messages."""
        path = Path(handle["local_dir"]) / "tpu.json"
        return path.read_text() if path.exists() else "no state"

    def left_over(self, name: str = "program.sh") -> Mapping[int, list[int]]:
        """Processes of jobs that still run on workers."""
        found = {worker.number: worker.processes(name) for worker in self.workers.all}
        return {number: pids for number, pids in found.items() if pids}

    def worker(self, number: int) -> Worker:
        """A worker."""
        return self.workers.all[number]


OK = 'mkdir -p "$CCL_TRACE_DIR"; echo "{\\"rank\\": $1}" > "$CCL_TRACE_DIR/trace_$1.json"\n'
FOREVER = "echo up; sleep 300 & wait\n"
