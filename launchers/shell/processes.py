"""Processes that outlive the one that started them: known by pid and start time, ended with all that is theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_PROC = Path("/proc")
_START_FIELD, _STATE_FIELD, _SESSION_FIELD = 19, 0, 3  # counted after the name, see proc(5)


def identity(pid: int) -> str | None:
    """What tells a process from a later one with its pid; None where no such process runs (a zombie does not)."""
    if not _PROC.joinpath("self", "stat").exists():
        return _identity_by_ps(pid)
    fields = _stat(pid)
    if fields is None or fields[_STATE_FIELD] in "ZX":
        return None
    return f"{_boot_id()}:{fields[_START_FIELD]}"


def runs(pid: int, known: str | None) -> bool:
    """Whether the process that had the identity `known` still runs."""
    return known is not None and identity(pid) == known


def members(session: int, mark: str) -> list[int]:
    """Running processes of a session, and those anywhere whose environment holds `mark` (`NAME=value`)."""
    if not _PROC.joinpath("self", "stat").exists():
        return _members_by_ps(session)
    found = []
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        fields = _stat(pid)
        if fields is None or fields[_STATE_FIELD] in "ZX" or pid == os.getpid():
            continue
        if int(fields[_SESSION_FIELD]) == session or _is_marked(folder, mark):
            found.append(pid)
    return found


def end(find: Callable[[], list[int]], grace_s: float, pause_s: float = 0.05) -> bool:
    """Ask every process that `find` finds to end, kill what is there after `grace_s`; True when none is left."""
    _send(find(), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while find():
        if time.monotonic() > deadline:
            break
        time.sleep(pause_s)
    deadline = time.monotonic() + grace_s
    while left := find():
        if time.monotonic() > deadline:
            return False
        _send(left, signal.SIGKILL)
        time.sleep(pause_s)
    return True


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _is_marked(folder: Path, mark: str) -> bool:
    try:
        return mark.encode() in (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _identity_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    )
    text = " ".join(done.stdout.split())
    return None if not text or text[0] in "ZX" else text.partition(" ")[2]


def _members_by_ps(session: int) -> list[int]:
    done = subprocess.run(["ps", "-axo", "pid=,sess=,stat="], capture_output=True, text=True, check=False, timeout=10)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [int(row[0]) for row in rows if len(row) > 2 and row[1] == str(session) and row[2][0] not in "ZX"]
