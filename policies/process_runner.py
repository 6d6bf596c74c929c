"""Policies in full Python: each run is a fresh, confined, bounded interpreter process."""

from __future__ import annotations

import functools
import json
import marshal
import math
import os
import secrets
import selectors
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from policies import child, confinement
from policies.checks import check_source, encoded_inputs, evaluate_twice, shown
from policies.confinement import Level
from policies.runner import PolicyError, PolicyErrorKind, PolicyLimits
from runs.errors import TargetUnavailableError

_BOOTSTRAP = (
    "import marshal,sys;code,job=marshal.load(sys.stdin.buffer);"
    "names={'__name__':'sandbox'};exec(code,names);names['main'](job)"
)
_START_SECONDS = 20.0
_REPORT_BYTES = 512 * 2**10
_CHUNK = 64 * 2**10
_KINDS = {
    "MemoryError": PolicyErrorKind.MEMORY,
    "PermissionError": PolicyErrorKind.FORBIDDEN,
    "BlockingIOError": PolicyErrorKind.FORBIDDEN,
    "ImportError": PolicyErrorKind.UNSUPPORTED,
}


class ProcessRunner:
    """Runs policies in fresh `python -I -S` processes under the strongest confinement the machine offers.

    Every evaluation starts two processes, each with an empty environment, resource limits, its output counted and
    its process group killed at the end. `limits.seconds` counts from the moment the interpreter is up and shut in;
    `limits.memory_bytes` is address space on top of 64 MiB for the interpreter. `random` starts from `seed`.
    May be used from several threads.

    Raises:
        TargetUnavailableError: neither bubblewrap nor Landlock with seccomp works here and `unconfined` is not set,
            or `level` names a confinement that does not work here.
    """

    name = "process"

    def __init__(
        self, *, limits: PolicyLimits | None = None, seed: int = 0, unconfined: bool = False, level: Level | None = None
    ) -> None:
        self.limits = limits or PolicyLimits()
        self.seed = seed
        self.level: Level = _usable_level(level, unconfined=unconfined)

    def evaluate(self, source: str, workload: dict[str, Any], environment: dict[str, Any]) -> dict[str, Any]:
        """The config the policy gives for these inputs, in two processes alike; see `PolicyRunner`."""
        check_source(source, self.limits)
        inputs = encoded_inputs(workload, environment)
        return evaluate_twice(lambda: self._run_once(source, inputs))

    def close(self) -> None:
        """Nothing to end: no process outlives an evaluation."""

    def _run_once(self, source: str, inputs: str) -> object:
        nonce = secrets.token_hex(16)
        reading, writing = os.pipe()
        try:
            with tempfile.TemporaryFile() as job:
                job.write(marshal.dumps((_child_code(), self._job(source, inputs, nonce, writing))))
                job.seek(0)
                running = _start(self._command(), job, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        try:
            watched = _watch(running, reading, self.limits)
        finally:
            _end(running)
            os.close(reading)
        return _result(watched, running.returncode, nonce.encode(), self.limits)

    def _command(self) -> list[str]:
        python = [confinement.interpreter(), "-I", "-S", "-B", "-c", _BOOTSTRAP]
        if self.level == "bubblewrap":
            return confinement.bubblewrap_command(python, confinement.readable_paths())
        return python

    def _job(self, source: str, inputs: str, nonce: str, report: int) -> dict[str, Any]:
        workload, environment = json.loads(inputs)
        return {
            "source": source,
            "workload": workload,
            "environment": environment,
            "seed": self.seed,
            "nonce": nonce,
            "report": report,
            "memory_bytes": self.limits.memory_bytes,
            "cpu_seconds": math.ceil(self.limits.seconds) + 1,
            "readable": list(confinement.readable_paths()) if self.level == "landlock+seccomp" else None,
            "seccomp": child.seccomp_available(),
            "parent": 0 if self.level == "bubblewrap" else os.getpid(),
        }


@dataclass
class _Watched:
    """What was seen of one process: bytes it reported, bytes it printed, and whether a bound was passed."""

    report: bytearray = field(default_factory=bytearray)
    printed: bytearray = field(default_factory=bytearray)
    timed_out: bool = False
    flooded: bool = False

    @property
    def ready(self) -> bool:
        return self.report.startswith(child.READY)


def _usable_level(level: Level | None, *, unconfined: bool) -> Level:
    chosen = level or confinement.confinement_level()
    probe = {"bubblewrap": confinement.bubblewrap, "landlock+seccomp": confinement.landlock_and_seccomp}.get(chosen)
    if probe is not None and not probe().works:
        raise TargetUnavailableError(f"confinement {chosen} does not work here: {probe().reason}", _HINT)
    if chosen == "none" and not unconfined:
        reasons = f"{confinement.bubblewrap().reason}; {confinement.landlock_and_seccomp().reason}"
        raise TargetUnavailableError(f"policies cannot be confined on this machine: {reasons}", _HINT)
    return chosen


_HINT = "install bubblewrap, or use the monty sandbox; allow unconfined runs only for policies you have read"


@functools.cache
def _child_code() -> Any:
    return compile(Path(child.__file__).read_text(encoding="utf-8"), "<sandbox>", "exec", dont_inherit=True)


def _start(argv: list[str], job: IO[bytes], report: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=job,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(report,),
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise TargetUnavailableError(f"cannot start {argv[0]}: {error.strerror}", _HINT) from error


def _watch(running: subprocess.Popen[bytes], report: int, limits: PolicyLimits) -> _Watched:
    """Read both pipes until the process ends, a bound is passed or the time is over."""
    watched = _Watched()
    assert running.stdout is not None
    output = running.stdout.fileno()
    deadline = time.monotonic() + _START_SECONDS
    with selectors.DefaultSelector() as selector:
        for pipe, sink in ((report, watched.report), (output, watched.printed)):
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ, sink)
        was_ready = False
        while selector.get_map() or running.poll() is None:
            ended = running.poll() is not None
            events = selector.select(0 if ended else min(0.05, max(0.0, deadline - time.monotonic())))
            for key, _ in events:
                _read(selector, key)
            if watched.ready and not was_ready:
                was_ready, deadline = True, time.monotonic() + limits.seconds
            watched.flooded = len(watched.printed) > limits.output_bytes or len(watched.report) > _REPORT_BYTES
            watched.timed_out = time.monotonic() > deadline
            if watched.flooded or (watched.timed_out and not ended) or (ended and not events):
                break
    return watched


def _read(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    data = os.read(key.fd, _CHUNK)
    key.data.extend(data)
    if not data:
        selector.unregister(key.fd)


def _end(running: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the process group; with bubblewrap that ends its whole process name space."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        running.kill()
    running.wait()
    if running.stdout is not None:
        running.stdout.close()


def _result(watched: _Watched, returncode: int, nonce: bytes, limits: PolicyLimits) -> object:
    if not watched.ready:
        raise _not_started(watched, returncode)
    message = bytes(watched.report.removeprefix(child.READY))
    if watched.flooded:
        raise PolicyError(PolicyErrorKind.OUTPUT, f"the policy printed more than {limits.output_bytes} bytes")
    if message.startswith(nonce) and message.endswith(b"\n"):
        return _reported(message[len(nonce) :])
    if watched.timed_out or returncode in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        raise PolicyError(PolicyErrorKind.TIMEOUT, f"the policy ran longer than {limits.seconds:g} s")
    if message:
        raise PolicyError(PolicyErrorKind.FORBIDDEN, "the policy wrote to the channel of its result")
    raise PolicyError(PolicyErrorKind.CRASHED, f"the policy ended its process without a result{_ending(returncode)}")


def _not_started(watched: _Watched, returncode: int) -> TargetUnavailableError:
    why = watched.report.removeprefix(child.FAILED) or watched.printed[-500:] or f"status {returncode}".encode()
    if watched.timed_out:
        why = bytearray(f"nothing happened for {_START_SECONDS:g} s".encode())
    return TargetUnavailableError(f"the sandbox process did not start: {why.decode(errors='replace').strip()}", _HINT)


def _reported(text: bytes) -> object:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise PolicyError(PolicyErrorKind.FORBIDDEN, "the policy wrote to the channel of its result")
    if "config" in message:
        return message["config"]
    if "error" in message:
        raise _raised(message)
    missing = "the policy defines no function generate_config(workload, environment)"
    raise PolicyError(PolicyErrorKind.BAD_RESULT, missing if "missing" in message else shown(str(message.get("bad"))))


def _raised(message: dict[str, Any]) -> PolicyError:
    name, text = str(message["error"]), str(message.get("message"))
    bases = message.get("bases")
    known = (
        [_KINDS[base] for base in bases if isinstance(base, str) and base in _KINDS] if isinstance(bases, list) else []
    )
    kind = known[0] if known else PolicyErrorKind.RAISED
    if message.get("compiling") and kind is PolicyErrorKind.RAISED:
        kind = PolicyErrorKind.SYNTAX
    return PolicyError(kind, shown(f"{name}: {text}" if text else name), shown(str(message.get("traceback") or "")))


def _ending(returncode: int) -> str:
    number = -returncode if returncode < 0 else returncode - 128
    if number in {int(member) for member in signal.Signals}:
        return f" (signal {signal.Signals(number).name})"
    return f" (exit status {returncode})"
