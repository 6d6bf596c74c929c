"""How a sandbox process is shut in: what this machine offers, and the command that starts a confined program."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from policies import child

Level = Literal["bubblewrap", "landlock+seccomp", "none"]
LEVELS: tuple[Level, ...] = ("bubblewrap", "landlock+seccomp", "none")
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_NOBODY = "65534"
_PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class Probe:
    """Whether a means of confinement works here, and why not."""

    works: bool
    reason: str


def confinement_level() -> Level:
    """The strongest confinement that works on this machine for a full Python process; asked once per process.

    `bubblewrap`: own user, process, network, IPC and host name spaces and a read-only root with the interpreter
    only. `landlock+seccomp`: no file but the interpreter's readable, none writable, no network, processes or
    signals. Both come with the resource limits and, where the kernel has it, the system call filter.
    """
    if bubblewrap().works:
        return "bubblewrap"
    return "landlock+seccomp" if landlock_and_seccomp().works else "none"


@functools.cache
def bubblewrap() -> Probe:
    """Whether `bwrap` is there and may create its name spaces (containers and some distributions forbid it)."""
    if not sys.platform.startswith("linux"):
        return Probe(False, "bubblewrap exists on Linux only")
    if shutil.which("bwrap") is None:
        return Probe(False, "bwrap is not on PATH; it is in the package bubblewrap")
    argv = bubblewrap_command([interpreter(), "-I", "-S", "-c", "pass"], readable_paths())
    return _tried(argv)


@functools.cache
def landlock_and_seccomp() -> Probe:
    """Whether the kernel offers both Landlock and a system call filter known for this machine."""
    if not child.seccomp_available():
        return Probe(False, f"no system call filter for {os.uname().sysname} on {os.uname().machine}")
    if child.landlock_abi() < 1:
        return Probe(False, "this kernel offers no Landlock (Linux 5.13 or later with it enabled is needed)")
    return Probe(True, f"Landlock ABI {child.landlock_abi()} with seccomp")


@functools.cache
def interpreter() -> str:
    """The path of the Python binary behind any virtual environment."""
    base = str(getattr(sys, "_base_executable", "") or sys.executable)
    return os.path.realpath(base)


@functools.cache
def system_libraries() -> tuple[str, ...]:
    """The folders of the system's shared libraries."""
    return tuple(path for path in _SYSTEM_LIBRARIES if Path(path).is_dir())


@functools.cache
def readable_paths() -> tuple[str, ...]:
    """The folders an interpreter reads: the system's libraries, its own and the standard library. No home, no /etc."""
    own = [str(Path(prefix) / "lib") for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    found: list[str] = list(system_libraries())
    for path in [*own, sysconfig.get_path("stdlib")]:
        inside = any(path == other or path.startswith(f"{other}/") for other in found)
        if not inside and Path(path).is_dir() and Path(path) != Path("/"):
            found.append(path)
    return tuple(found)


def bubblewrap_command(argv: list[str], readable: tuple[str, ...]) -> list[str]:
    """The command that runs `argv` in name spaces of its own, seeing `argv[0]` and the trees `readable` only.

    The process has no network, no capability, the user id of nobody and an empty environment; its root is
    read-only, without /proc, /dev and /tmp; it ends with its parent.
    """
    bound = [part for path in (*readable, argv[0]) for part in ("--ro-bind", path, path)]
    return [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-all", "--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "sandbox"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *bound,
        *("--remount-ro", "/", "--chdir", "/", "--"),
        *argv,
    ]


def _tried(argv: list[str]) -> Probe:
    try:
        done = subprocess.run(argv, env={}, capture_output=True, timeout=_PROBE_SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(False, f"bwrap could not be run: {error}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Probe(False, f"bwrap does not work here: {lines[-1]}")
    return Probe(True, "bwrap works")
