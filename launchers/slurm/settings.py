"""What a target file says about a Slurm cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Polling(BaseModel):
    """How often and how long Slurm is asked. All in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first_s: float = Field(1.0, gt=0, description="pause after something changed")
    longest_s: float = Field(15.0, gt=0, description="longest pause while nothing changes")
    command_timeout_s: float = Field(45.0, gt=0, description="time limit of one squeue, sacct or scancel")
    submit_timeout_s: float = Field(90.0, gt=0, description="time limit of one sbatch")
    absence_s: float = Field(300.0, gt=0, description="how long no source may know a job before it counts as lost")
    accounting_s: float = Field(15.0, ge=0, description="how long the accounting may lag behind the end of a job")
    never_starts_s: float = Field(60.0, ge=0, description="how long a job may wait for a reason that never goes away")


class SlurmSettings(BaseModel):
    """One cluster: what is asked for with every job, and how the commands are reached.

    `extra` are options for sbatch, `srun_extra` for srun, word by word. `gpu_request` is how GPUs are asked for.
    `remote_directory` is where jobs live on a cluster that shares no file system with this machine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gpus_per_node: int | None = Field(None, ge=1, description="devices of a node, where the environment does not say")
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    gpu_type: str | None = None
    cpus_per_task: int | None = Field(None, ge=1)
    memory: str | None = Field(None, description="--mem of sbatch; 0 is all of a node")
    exclusive: bool = False
    extra: tuple[str, ...] = ()
    srun_extra: tuple[str, ...] = ()
    preflight: bool = Field(True, description="ask sbatch --test-only before every submission")
    requeue: bool = Field(False, description="let Slurm restart a job by itself; the result is that of the last start")
    remote_directory: str | None = None
    bin_dir: str | None = Field(None, description="where sbatch and the others are, if not on PATH")
    polling: Polling = Polling()
