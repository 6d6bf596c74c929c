"""Where one attempt at a trial keeps its files, on this machine and where the job runs."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from launchers.base import Job
from launchers.shell.command import Command
from runs.digests import text_sha256
from runs.errors import BadInputError

RESULT_FILE = "result.json"
SCRIPT_FILE = "job.sh"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FIRST_PORT, _PORTS = 20000, 20000


@dataclass(frozen=True)
class Attempt:
    """One attempt's places. `job_dir` is the trial's folder as the job sees it, `directory` the same folder here.

    The two differ only for clusters that share no file system with this machine.
    """

    run_id: str
    trial: int
    number: int
    directory: Path
    job_dir: str

    @property
    def folder(self) -> str:
        """The attempt's folder, relative to the trial's."""
        return f"attempt-{self.number}"

    @property
    def attempt_dir(self) -> str:
        """The attempt's folder as the job sees it."""
        return str(PurePosixPath(self.job_dir) / self.folder)

    @property
    def trace_dir(self) -> str:
        """The trace folder as the job sees it."""
        return str(PurePosixPath(self.job_dir) / "trace")

    @property
    def local_dir(self) -> Path:
        """The attempt's folder on this machine."""
        return self.directory / self.folder

    @property
    def name(self) -> str:
        """A name no other job of the user has: run, trial and attempt, in characters every system takes."""
        return job_name(self.run_id, self.trial, self.number)

    @property
    def mark(self) -> str:
        """What every process of the attempt carries in `CCL_ATTEMPT`: the name, and a hash of the folder.

        Runs of several stores may have one name; their processes must never be taken for each other's.
        """
        return f"{self.name}@{zlib.crc32(self.job_dir.encode()):08x}"

    @property
    def port(self) -> int:
        """The port where the processes of the attempt meet; it differs between attempts that share machines."""
        return _FIRST_PORT + zlib.crc32(f"{self.name}:{self.job_dir}".encode()) % _PORTS


def job_name(run_id: str, trial: int, attempt: int) -> str:
    """See `Attempt.name`."""
    return f"ccl-{_UNSAFE.sub('_', run_id)}-{trial}-{attempt}"


def attempt_of(job: Job, remote_root: str | None = None) -> Attempt:
    """The places of `job`'s attempt; `remote_root` is the folder of all jobs on a cluster with files of its own."""
    directory = job.directory.resolve()
    if remote_root is None:
        seen = str(directory)
    else:
        seen = str(PurePosixPath(remote_root) / _UNSAFE.sub("_", job.run_id) / f"trial-{job.trial}")
    return Attempt(job.run_id, job.trial, job.attempt, directory, seen)


def required_command(job: Job) -> Command:
    """The job's command.

    Raises:
        BadInputError: it has none, or one whose devices are not those of the plan.
    """
    if job.command is None:
        raise BadInputError(
            f"trial {job.trial} has no command to start", "this framework can only be simulated: use --target dry-run"
        )
    if job.command.world_size != job.plan.world_size:
        raise BadInputError(
            f"the command of trial {job.trial} uses {job.command.world_size} devices, its plan {job.plan.world_size}",
            "mend the framework adapter or the command template",
        )
    return job.command


def fingerprint(command: Command, job_dir: str) -> str:
    """A hash by which a job found on a cluster is known to be the one that would be submitted now."""
    text = json.dumps([asdict(command), job_dir], sort_keys=True, default=str)
    return text_sha256(text)[:16]
