"""Where a launcher's commands run: on this machine, or on a login node over SSH. Every call has a time limit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_STAYS = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})
_DROPPED = ("SLURM_", "SQUEUE_", "SACCT_", "SINFO_", "ANTHROPIC_")


@dataclass(frozen=True)
class Completed:
    """A finished command. `code` is None where it was ended at the time limit or could not start at all."""

    argv: tuple[str, ...]
    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.code == 0

    @property
    def complaint(self) -> str:
        """What went wrong, in one line."""
        if self.code is None:
            return self.err or f"{self.argv[0]} gave no answer within {self.seconds:.0f} s"
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"{self.argv[0]} ended with exit code {self.code}"


class Runner(Protocol):
    """Runs commands and handles files at one place."""

    @property
    def where(self) -> str:
        """The place, for messages."""
        ...

    def run(self, argv: Sequence[str], stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command; never raises for what the command does."""
        ...

    def write(self, path: str, text: str) -> Completed:
        """Put a text file in place by renaming; its folder is made."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file; None where it does not exist or cannot be read."""
        ...

    def fetch(self, source: str, target: Path) -> Completed:
        """Copy a folder's content from there to `target` here; nothing to do where both are the same folder."""
        ...


def clean_environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base` for commands whose output is parsed and whose job must not inherit what is not meant for it.

    Left out: settings of an allocation this process may run in, formats the user prefers, and keys of the LLM.
    """
    kept = {name: value for name, value in base.items() if name in _STAYS or not name.startswith(_DROPPED)}
    return {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


@dataclass(frozen=True)
class LocalRunner:
    """Runs commands on this machine. `environment` is added to this process's own (see `clean_environment`).

    `bin_dir` is searched for programs first.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    bin_dir: str | None = None
    where: str = "this machine"

    def run(self, argv: Sequence[str], stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """See `Runner`."""
        environment = clean_environment({**os.environ, **self.environment})
        if self.bin_dir:
            environment["PATH"] = f"{self.bin_dir}:{environment.get('PATH', '')}"
        return execute(tuple(argv), stdin, timeout_s, environment)

    def write(self, path: str, text: str) -> Completed:
        """See `Runner`."""
        target = Path(path)
        temporary = target.with_name(target.name + ".tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            return Completed(("write", path), 1, "", str(error), 0.0)
        return Completed(("write", path), 0, "", "", 0.0)

    def read(self, path: str) -> str | None:
        """See `Runner`."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def fetch(self, source: str, target: Path) -> Completed:
        """See `Runner`. The job's files are here already."""
        return Completed(("fetch", source), 0, "", "", 0.0)


def execute(argv: tuple[str, ...], stdin: str, timeout_s: float, environment: Mapping[str, str] | None) -> Completed:
    """Run a program of this machine to its end or to the time limit, then kill it and what it started."""
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Completed(argv, None, "", f"{argv[0]} cannot be started: {error.strerror}", 0.0)
    try:
        out, err = child.communicate(stdin, timeout=timeout_s)
        code: int | None = child.returncode
    except subprocess.TimeoutExpired:
        _kill_session(child.pid)
        out, err = "", ""
        child.wait()
        code = None
    finally:
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    return Completed(argv, code, out, err, time.monotonic() - started)


def _kill_session(leader: int) -> None:
    try:
        os.killpg(leader, 9)
    except ProcessLookupError:
        return
