"""Jobs as steps of an allocation that the user already holds (`--within-allocation`): srun without sbatch."""

from __future__ import annotations

import os
from collections.abc import Mapping

from launchers.base import Handle, Job
from launchers.local import LocalLauncher
from launchers.shell.command import Command
from launchers.shell.layout import attempt_of, required_command
from launchers.shell.runner import LocalRunner
from launchers.shell.script import Site, SrunOptions, slurm_script
from launchers.slurm.settings import SlurmSettings
from runs.errors import BadInputError, TargetUnavailableError
from runs.trial import Execution

_TIMEOUT_S = 45.0


class AllocationLauncher(LocalLauncher):
    """Starts each job's script on this host, whose `srun` runs the processes on nodes of the allocation.

    Raises:
        TargetUnavailableError: this process runs in no allocation.
        BadInputError: the allocation is heterogeneous.
    """

    def __init__(
        self, settings: SlurmSettings, site: Site | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        surroundings = dict(os.environ) if environment is None else dict(environment)
        self.settings = settings
        self.allocation = _allocation(surroundings)
        self.nodes = int(surroundings.get("SLURM_JOB_NUM_NODES") or surroundings.get("SLURM_NNODES") or 1)
        own = {name: value for name, value in surroundings.items() if name.startswith("SLURM_")}
        super().__init__(site or Site(), own, "slurm")

    def script(self, job: Job) -> str:
        """See `LocalLauncher.script`.

        Raises:
            BadInputError: the job has no command, or needs more nodes than the allocation has.
        """
        command = required_command(job)
        if command.nodes > self.nodes:
            raise BadInputError(
                f"trial {job.trial} needs {command.nodes} nodes, the allocation {self.allocation} has {self.nodes}",
                "take a larger allocation, or leave out --within-allocation",
            )
        attempt = attempt_of(job)
        options = SrunOptions(attempt.name, self._srun_options(command))
        return slurm_script(attempt, command, self.site, options, [], job.time_limit_s)

    def cancel(self, handle: Handle) -> None:
        """End the script and its step; srun tells the nodes, and what srun could not tell scancel does."""
        steps = self._steps(handle)
        super().cancel(handle)
        runner = LocalRunner(self.environment)
        for step in [*steps, *self._steps(handle)]:
            runner.run(("scancel", "--signal=KILL", step), timeout_s=_TIMEOUT_S)

    def collect(self, handle: Handle) -> Execution:
        """See `LocalLauncher.collect`; the allocation is part of the record."""
        handle.setdefault("allocation", self.allocation)
        done = super().collect(handle)
        done.provenance.update(job_id=self.allocation, within_allocation=True)
        return done

    def _srun_options(self, command: Command) -> tuple[str, ...]:
        """A step must ask for its GPUs itself. It waits for steps of other trials: shared nodes would spoil both."""
        options = []
        if self.settings.gpu_request != "none":
            options.append(f"--gpus-per-node={command.xpus_per_node}")
        if self.settings.cpus_per_task is not None:
            options.append(f"--cpus-per-task={self.settings.cpus_per_task}")
        return (*options, *self.settings.srun_extra)

    def _steps(self, handle: Handle) -> list[str]:
        runner = LocalRunner(self.environment)
        done = runner.run(("squeue", "-h", "-s", "-j", self.allocation, "-o", "%i|%j"), timeout_s=_TIMEOUT_S)
        rows = [line.partition("|") for line in done.out.splitlines()]
        return [step for step, _, name in rows if name == handle["name"]]


def _allocation(environment: Mapping[str, str]) -> str:
    """The id of the allocation that this process runs in."""
    job = environment.get("SLURM_JOB_ID")
    if not job:
        raise TargetUnavailableError(
            "--within-allocation, but this process runs in no Slurm allocation (SLURM_JOB_ID is unset)",
            "start it inside one: salloc -N4 --gpus-per-node=4 ccl-search run ...",
        )
    if int(environment.get("SLURM_HET_SIZE") or 0) > 1:
        raise BadInputError(
            f"allocation {job} is heterogeneous (SLURM_HET_SIZE={environment['SLURM_HET_SIZE']})",
            "trials would run on unequal nodes: take an allocation of one kind of node",
        )
    return job
