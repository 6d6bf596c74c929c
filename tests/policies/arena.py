"""Where attacks are run: a secret file, a listener, and what must hold after each attack whatever came of it."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from policies import confinement
from policies.confinement import Level
from policies.process_runner import ProcessRunner
from policies.runner import PolicyError, PolicyLimits, PolicyRunner
from tests.policies.attacks import SECRET, Attack

MEMORY = 32 * 2**20
_RESIDENT_GROWTH_KIB = 200 * 2**10
WORKLOAD = {
    "model_family": "llama",
    "batch_size": 32,
    "num_layers": None,
    "config_space": [{"key": "tp", "choices": [1]}],
}
ENVIRONMENT = {"total_gpus": 16, "gpus_per_node": 4, "gpu_memory_gb": 40.5}


class Arena:
    """A folder with a secret and a forbidden target, and a listener nobody may reach."""

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "secret.txt"
        self.target = folder / "written"
        self.canary.write_text(SECRET)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)

    def source(self, attack: Attack) -> str:
        port = self.listener.getsockname()[1]
        text = attack.source.replace("@CANARY@", str(self.canary)).replace("@TARGET@", str(self.target))
        return text.replace("@PORT@", str(port))

    def check_unharmed(self) -> None:
        assert not self.target.exists() and not self.target.is_symlink(), "a policy wrote a file"
        assert self.canary.read_text() == SECRET
        assert self.canary.stat().st_mode & 0o077 == 0o044 & self.canary.stat().st_mode
        try:
            self.listener.accept()
        except BlockingIOError:
            return
        raise AssertionError("a policy reached the listener")


def outcome(runner: PolicyRunner, source: str) -> tuple[str, str]:
    """The kind of the error, or `ok`, and every text the evaluation gave away."""
    try:
        config = runner.evaluate(source, dict(WORKLOAD), dict(ENVIRONMENT))
    except PolicyError as error:
        return error.kind.value, f"{error.message}\n{error.traceback}"
    return "ok", repr(config)


@contextmanager
def harmless(arena: Arena, bound: float, replaced_workers: int = 0) -> Iterator[None]:
    """Whatever runs inside leaves no process, no file, no connection and no big memory behind, and ends in time."""
    children, resident, began = running_children(), _peak_resident(), time.monotonic()
    workload, environment = repr(WORKLOAD), repr(ENVIRONMENT)
    yield
    assert time.monotonic() - began < bound, "the evaluation took too long"
    assert _peak_resident() - resident < _RESIDENT_GROWTH_KIB
    assert (repr(WORKLOAD), repr(ENVIRONMENT)) == (workload, environment), "the inputs were changed"
    arena.check_unharmed()
    assert len(left_over(children, replaced_workers)) <= replaced_workers, "a process was left behind"


def left_over(known: set[int], allowed: int = 0) -> set[int]:
    """Children of this process, adopted orphans included, that are not `known`; more than `allowed` get 2 s to end."""
    end = time.monotonic() + 2.0
    while True:
        found = running_children() - known
        if len(found) <= allowed or time.monotonic() > end:
            return found
        time.sleep(0.02)


def running_children() -> set[int]:
    """The process ids of this process's children that have not ended."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(entry.name))
    return found


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def process_runner(level: Level, seconds: float = 4.0) -> ProcessRunner:
    """A runner of full Python under `level`; skips the calling test where this machine does not offer it."""
    probes = {"bubblewrap": confinement.bubblewrap, "landlock+seccomp": confinement.landlock_and_seccomp}
    if level in probes and not probes[level]().works:
        pytest.skip(f"{level} does not work here: {probes[level]().reason}")
    limits = PolicyLimits(seconds=seconds, memory_bytes=MEMORY)
    return ProcessRunner(limits=limits, level=level, unconfined=level == "none")


def check_attack(attack: Attack, level: Level, arena: Arena) -> None:
    """One attack on full Python: it ends in time, harms nothing, gives nothing away and is named rightly."""
    runner = process_runner(level, attack.seconds)
    with harmless(arena, attack.seconds + 3):
        kind, text = outcome(runner, arena.source(attack))
    assert kind in attack.full.split("|"), text
    assert SECRET not in text
    assert len(text) < 20_000
