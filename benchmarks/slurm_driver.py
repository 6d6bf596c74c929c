"""What the Slurm launcher costs on the driver's side: `python -m benchmarks.slurm_driver [--jobs 200] [--seconds 120]`.

Starts a real Slurm on this machine (tests/cluster; the Debian packages must be installed), puts jobs into its queue
that will not start for an hour, and waits for them as a search does: the executor, a thread for each trial, the
launcher's own pauses. Printed are the CPU time of this process and of every command it ran (`squeue` and the others),
how many commands that were, how long `submit` takes once sbatch has accepted the job, and how long after its start and
its end a job is seen to run and to have ended.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ccl_search.loop.execution import Executor
from ccl_search.loop.fleet import OneAtATime
from ccl_search.loop.interrupt import Interrupt
from launchers.base import Handle, JobState
from launchers.shell.runner import LocalRunner
from launchers.slurm.launcher import SlurmLauncher
from launchers.slurm.settings import SlurmSettings
from runs.trial import Execution
from tests.cluster.config import Layout, cgroups_usable
from tests.cluster.slurm import Cluster
from tests.launchers import jobs

_PORT = 17800


class Log:
    """Counts what was submitted."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []

    def begin(self) -> int:
        return 1

    def submitted(self, attempt: int, handle: Handle) -> None:
        del attempt
        self.handles.append(handle)

    def finished(self, attempt: int, execution: Execution) -> None:
        del attempt, execution


def cpu_seconds() -> float:
    """CPU time of this process and of the commands it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def launcher(cluster: Cluster, *extra: str) -> SlurmLauncher:
    """With the pauses of the product."""
    return SlurmLauncher(SlurmSettings(extra=extra, preflight=False), runner=LocalRunner(cluster.environment))


def waiting(cluster: Cluster, folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Trials that wait in the queue."""
    slurm, interrupt, log = launcher(cluster, "--begin=now+1hour"), Interrupt(), Log()
    executor = Executor(OneAtATime(slurm), interrupt)
    with ThreadPoolExecutor(count) as pool:
        for number in range(count):
            job = jobs.job(folder / str(number), jobs.bash("true"), run_id="cost", trial=number)
            pool.submit(executor.execute, job, log)
        while len(log.handles) < count:
            time.sleep(0.5)
        sys.stderr.write(f"{count} jobs are in the queue\n")
        time.sleep(20)  # until the pauses are as long as they get
        before, calls, began = cpu_seconds(), slurm.client.calls, time.monotonic()
        time.sleep(seconds)
        spent, asked, lasted = cpu_seconds() - before, slurm.client.calls - calls, time.monotonic() - began
        cluster.client("scancel", "--me")
    share = spent / lasted
    return {"queued": count, "seconds": lasted, "cpu_s": spent, "share_of_a_core": share, "commands": asked}


def submitting(cluster: Cluster, folder: Path, count: int) -> dict[str, Any]:
    """Seconds from sbatch's acceptance to the return of `submit`."""
    slurm, took = launcher(cluster, "--begin=now+1hour"), []
    accept, accepted = slurm.client.submit, [0.0]

    def timed(arguments: Any, script: str) -> Any:
        done = accept(arguments, script)
        accepted[0] = time.monotonic()
        return done

    slurm.client.submit = timed  # type: ignore[method-assign]
    for number in range(count):
        handle = slurm.submit(jobs.job(folder / str(number), jobs.bash("true"), run_id="submit", trial=number))
        took.append(time.monotonic() - accepted[0])
        cluster.client("scancel", handle["job_id"])
    return {"submissions": count, "median_s": statistics.median(took), "largest_s": max(took)}


def noticing(cluster: Cluster, folder: Path, count: int) -> dict[str, Any]:
    """Seconds from a job's own first and last word to when `poll` tells of it, polled every 50 ms."""
    starts, ends = [], []
    for number in range(count):
        slurm, place = launcher(cluster), folder / str(number)
        told = 'date +%s.%N > "$CCL_JOB_DIR/first"; sleep 5; date +%s.%N > "$CCL_JOB_DIR/last"'
        handle = slurm.submit(jobs.job(place, jobs.bash(told), run_id="notice", trial=number))
        seen: dict[JobState, float] = {}
        while JobState.FINISHED not in seen:
            seen.setdefault(slurm.poll(handle), time.time())
            time.sleep(0.05)
        if JobState.RUNNING in seen:
            starts.append(seen[JobState.RUNNING] - float((place / "first").read_text()))
        ends.append(seen[JobState.FINISHED] - float((place / "last").read_text()))
    return {"jobs": count, "start_noticed_after_s": starts, "end_noticed_after_s": ends}


def main() -> int:
    """Run all three and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    chosen = parser.parse_args()
    threading.stack_size(1 << 20)
    with tempfile.TemporaryDirectory(prefix="ccl-driver-") as place:
        cluster = Cluster(Layout(Path(place) / "slurm", _PORT, cgroups=cgroups_usable()))
        cluster.start()
        try:
            found = {
                "submit": submitting(cluster, Path(place) / "submit", 20),
                "notice": noticing(cluster, Path(place) / "notice", 5),
                "wait": waiting(cluster, Path(place) / "wait", chosen.jobs, chosen.seconds),
            }
        finally:
            cluster.stop()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
