"""One program in a folder and a process group of its own, ended when its time is over or its results are complete."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.errors import TargetUnavailableError

STDOUT, STDERR = "stdout.txt", "stderr.txt"
Ending = Literal["exit", "time limit", "output limit", "lingering"]

_FINISHED = re.compile(rb"sys\[(\d+)\] finished, ")
_FIRST_WAIT_S, _LAST_WAIT_S = 0.005, 0.25
_LONGEST_PAUSE_S = 0.05
_STOP_S = 20.0


@dataclass(frozen=True)
class Limits:
    """Seconds of wall-clock time a run may take, seconds it may live on once all ranks have finished, seconds between
    the polite and the forcible end, bytes it may print.
    """

    wall_s: float = 600.0
    linger_s: float = 5.0
    grace_s: float = 1.0
    output_bytes: int = 256 << 20


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code (-N for signal N), seconds it took, and who ended it.

    `cpu_seconds` is the processor time of the process that was started, not of a container behind it; None where the
    system does not tell.
    """

    code: int
    seconds: float
    ending: Ending
    cpu_seconds: float | None = None

    @property
    def signal_name(self) -> str | None:
        """`SIGABRT` and the like, if the program died of a signal by itself; a shell's 128 + N counts too."""
        number = -self.code if self.code < 0 else self.code - 128 if 128 < self.code < 160 else 0
        if self.ending != "exit" or not number:
            return None
        with suppress(ValueError):
            return signal.Signals(number).name
        return f"signal {number}"


def run(words: Sequence[str], cwd: Path, ranks: int, limits: Limits, stop: Sequence[str] = ()) -> Ended:
    """Run `words` in `cwd` until it exits, exceeds a limit, or lingers after `ranks` ranks have reported their end.

    What it prints is in the files STDOUT and STDERR of `cwd`. When this returns or raises, nothing of its process
    group runs any more.

    Raises:
        TargetUnavailableError: the program cannot be started.
    """
    started = time.monotonic()
    with (cwd / STDOUT).open("wb") as out, (cwd / STDERR).open("wb") as err:
        try:
            child = subprocess.Popen(
                list(words), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            raise TargetUnavailableError(f"{words[0]} cannot be started: {error.strerror}", "check the file") from error
        _limit(child.pid, limits.wall_s)
        try:
            ending = _watch(child, cwd, ranks, limits, started)
            cpu = _cpu_seconds(child.pid)
        finally:
            _end(child, limits.grace_s, stop)
    return Ended(child.returncode, time.monotonic() - started, ending, cpu)


def _limit(pid: int, wall_s: float) -> None:
    """Bound the processor time too: a hung ns-3 spins, and must not outlive this process if that is killed.

    An abort is nothing unusual here and leaves no core file.
    """
    seconds = int(4 * wall_s) + 60
    with suppress(AttributeError, OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _watch(child: subprocess.Popen[bytes], cwd: Path, ranks: int, limits: Limits, started: float) -> Ending:
    progress, complete_at, wait = _Progress(cwd / STDOUT), None, _FIRST_WAIT_S
    while True:
        if _exited(child.pid, wait):
            return "exit"
        now = time.monotonic()
        progress.read()
        if complete_at is None and len(progress.finished) >= ranks:
            complete_at = now
        if complete_at is not None and now - complete_at >= limits.linger_s:
            return "lingering"
        if now - started >= limits.wall_s:
            return "time limit"
        if sum((cwd / name).stat().st_size for name in (STDOUT, STDERR)) > limits.output_bytes:
            return "output limit"
        wait = min(_LAST_WAIT_S, 1.5 * wait, max(_FIRST_WAIT_S, started + limits.wall_s - now))


def _exited(pid: int, seconds: float) -> bool:
    """Whether the process exits within `seconds`; it stays to be reaped, so that its processor time can be read."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def _cpu_seconds(pid: int) -> float | None:
    """Processor time of a process that has not been reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class _Progress:
    """The ranks that have reported their end so far; reads what was added to the file since the last time."""

    def __init__(self, path: Path) -> None:
        self.finished: set[int] = set()
        self._path, self._at, self._rest = path, 0, b""

    def read(self) -> None:
        with self._path.open("rb") as stream:
            stream.seek(self._at)
            added = stream.read()
        self._at += len(added)
        text = self._rest + added
        self.finished.update(int(rank) for rank in _FINISHED.findall(text))
        self._rest = text[text.rfind(b"\n") + 1 :]


def _end(child: subprocess.Popen[bytes], grace_s: float, stop: Sequence[str]) -> None:
    """End the group: the container by its own command, then politely, then forcibly."""
    if child.poll() is None:
        if stop:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(list(stop), check=False, capture_output=True, timeout=_STOP_S)
        _signal(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    _signal(child.pid, signal.SIGKILL)
    child.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
