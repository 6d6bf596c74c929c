"""A command that outlives the process that started it; its output and exit code are files of one folder."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launchers.shell import processes

_MARK = "CCL_SEARCH_DETACHED"
_GRACE_S = 3.0
_SCRIPT = """(
    "$@" </dev/null >"$0/out" 2>"$0/err"
    echo $? >"$0/rc.tmp" && mv -f -- "$0/rc.tmp" "$0/rc"
) </dev/null >/dev/null 2>&1 &
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def start(folder: Path, argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start a command that goes on without this process; traces of an earlier one in `folder` are removed.

    Raises:
        OSError: the folder cannot be written, or there is no bash.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("rc", "out", "err"):
        (folder / name).unlink(missing_ok=True)
    marked = {**environment, _MARK: str(folder)}
    command = ["bash", "-c", _SCRIPT, str(folder), *argv]
    subprocess.run(command, check=True, env=marked, stdin=subprocess.DEVNULL, timeout=30, start_new_session=True)


def outcome(folder: Path) -> Ended | None:
    """How the command ended; None while it has not."""
    code = _text(folder / "rc").strip()
    return Ended(int(code), _text(folder / "out"), _text(folder / "err")) if code else None


def is_running(folder: Path) -> bool:
    """Whether the command still runs; False also where it never started or the machine was restarted."""
    return bool(processes.members(-1, f"{_MARK}={folder}"))


def kill(folder: Path) -> None:
    """End the command with all it started; nothing happens where it does not run."""
    processes.end(lambda: processes.members(-1, f"{_MARK}={folder}"), _GRACE_S)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
