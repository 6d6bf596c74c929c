"""Policies in the Monty dialect: a pool of interpreter processes that offer a policy no files, network or system.

Monty is an interpreter for a subset of Python, written in Rust; see docs/policies.md for what it takes. Its workers
are processes of their own and are shut in by bubblewrap where that works.
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
import shutil
import tempfile
import threading
import time
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

from policies import confinement
from policies.checks import check_source, encoded_inputs, evaluate_twice, shown
from policies.confinement import Level
from policies.runner import PolicyError, PolicyErrorKind, PolicyLimits
from runs.errors import TargetUnavailableError

SCRIPT_NAME = "policy.py"
FROZEN_CLOCK = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_CALL = "generate_config(workload, environment)"
_MAX_RECURSION = 200
_GRACE_SECONDS = 0.5
_CHECKOUT_SECONDS = 60.0
_GAP = NotImplementedError.__name__  # what Monty raises, outside any function, for syntax it has not
_HINT = "install the package pydantic-monty (>=1.4,<2), or use the process sandbox"
_KINDS: tuple[tuple[type[BaseException], PolicyErrorKind], ...] = (
    (MemoryError, PolicyErrorKind.MEMORY),
    (PermissionError, PolicyErrorKind.FORBIDDEN),
    (ImportError, PolicyErrorKind.UNSUPPORTED),
)


class MontyRunner:
    """Runs policies in Monty worker processes; each run gets a fresh session with copies of the inputs.

    The clock stands still at 2026-01-01 UTC, sleeping takes no time and `random` starts from `seed`, so a policy
    that asks for them is still deterministic. Workers start with the first evaluation. May be used from several
    threads; up to `workers` evaluations run at a time.

    Raises:
        TargetUnavailableError: pydantic-monty, or the interpreter it brings, is missing or cannot be started.
    """

    name = "monty"

    def __init__(self, *, limits: PolicyLimits | None = None, seed: int = 0, workers: int = 1) -> None:
        self.limits = limits or PolicyLimits()
        self.seed = seed
        self.workers = workers
        self._monty = _module()
        self._pool: Any = None
        self._starting = threading.Lock()
        self._level: Level = "none"
        self._ending: weakref.finalize[..., MontyRunner] | None = None

    @property
    def level(self) -> Level:
        """How the worker processes themselves are shut in: `bubblewrap` or `none`. Starts the pool."""
        self._started()
        return self._level

    def evaluate(self, source: str, workload: dict[str, Any], environment: dict[str, Any]) -> dict[str, Any]:
        """The config the policy gives for these inputs, in two fresh sessions alike; see `PolicyRunner`."""
        check_source(source, self.limits)
        inputs = encoded_inputs(workload, environment)
        return evaluate_twice(lambda: self._run_once(source, inputs))

    def close(self) -> None:
        """End every worker process; the next evaluation would start new ones."""
        with self._starting:
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.__exit__(None, None, None)
            if self._ending is not None:
                self._ending()

    def _run_once(self, source: str, inputs: str) -> object:
        pool = self._started()
        workload, environment = json.loads(inputs)
        printed = _Printed(self.limits.output_bytes)
        began = time.monotonic()
        try:
            with self._checkout(pool) as session:
                session.feed_run(source, print_callback=printed)
                result = session.feed_run(
                    _CALL, inputs={"workload": workload, "environment": environment}, print_callback=printed
                )
        except self._monty.MontyError as error:
            raise self._policy_error(error, printed) from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            message = f"the result cannot be taken over: {type(error).__name__}: {error}"
            raise PolicyError(PolicyErrorKind.BAD_RESULT, message) from error
        if time.monotonic() - began > self.limits.seconds + _GRACE_SECONDS:
            raise self._timeout()
        return result

    def _checkout(self, pool: Any) -> Any:
        return pool.checkout(
            script_name=SCRIPT_NAME,
            limits={
                "max_feed_duration_secs": self.limits.seconds,
                "max_memory": self.limits.memory_bytes,
                "max_recursion_depth": _MAX_RECURSION,
                "max_suspensions": 1,
            },
            os_policy={
                "datetime": FROZEN_CLOCK,
                "timezone": "utc",
                "sleep": "zero",
                "random_start": {"seed": self.seed},
            },
        )

    def _started(self) -> Any:
        with self._starting:
            if self._pool is None:
                folder = Path(tempfile.mkdtemp(prefix="ccl-search-monty-"))
                self._ending = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                self._pool, self._level = self._start(folder)
            return self._pool

    def _start(self, folder: Path) -> tuple[Any, Level]:
        """A running pool behind the strongest start command that answers, and the level of that command."""
        binary = _binary()
        reason = ""
        for level, command in _start_commands(binary, folder):
            pool = self._monty.Monty(
                binary_path=command,
                max_processes=self.workers,
                checkout_timeout=_CHECKOUT_SECONDS,
                request_timeout=self.limits.seconds + 2 * _GRACE_SECONDS,
                feed_duration_limit_grace=_GRACE_SECONDS,
            )
            try:
                pool.__enter__()
                with pool.checkout() as session:
                    session.feed_run("0")
            except (self._monty.MontyError, OSError, RuntimeError) as error:
                reason = str(error)
                continue
            return pool, level
        raise TargetUnavailableError(f"the Monty interpreter {binary} cannot be started: {reason}", _HINT)

    def _policy_error(self, error: Any, printed: _Printed) -> PolicyError:
        if printed.flooded:
            return PolicyError(PolicyErrorKind.OUTPUT, f"the policy printed more than {printed.bound} bytes")
        if isinstance(error, self._monty.MontyCrashedError):
            return self._timeout() if error.timed_out else PolicyError(PolicyErrorKind.CRASHED, str(error))
        cause = error.exception()
        frames = error.traceback() if hasattr(error, "traceback") else []
        if isinstance(cause, TimeoutError) and not frames:
            return self._timeout()
        if isinstance(cause, NameError) and "'generate_config' is not defined" in str(cause) and len(frames) == 1:
            missing = "the policy defines no function generate_config(workload, environment)"
            return PolicyError(PolicyErrorKind.BAD_RESULT, missing)
        return PolicyError(_kind(cause, len(frames)), _one_line(cause), _traceback(error))

    def _timeout(self) -> PolicyError:
        return PolicyError(PolicyErrorKind.TIMEOUT, f"the policy ran longer than {self.limits.seconds:g} s")


class _Printed:
    """Counts what a policy prints and stops it at a bound; the text is not kept."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.seen = 0

    @property
    def flooded(self) -> bool:
        return self.seen > self.bound

    def __call__(self, stream: str, text: str) -> None:
        self.seen += len(text.encode(errors="replace"))
        if self.flooded:
            raise RuntimeError("too much output")


def _module() -> ModuleType:
    try:
        import pydantic_monty
    except ImportError as error:
        raise TargetUnavailableError(f"the monty sandbox cannot be loaded: {error}", _HINT) from error
    return pydantic_monty


def _binary() -> str:
    import sysconfig

    for folder in (sysconfig.get_path("scripts"), *os.environ.get("PATH", "").split(os.pathsep)):
        candidate = Path(folder or ".") / "monty"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate.resolve())
    raise TargetUnavailableError("the Monty interpreter `monty` is not installed", _HINT)


def _start_commands(binary: str, folder: Path) -> list[tuple[Level, str]]:
    """Start commands to try in turn: behind bubblewrap, as it is but silent, and as it is (where no script may run)."""
    commands: list[tuple[Level, str]] = [("none", _script(folder / "plain", [binary])), ("none", binary)]
    if confinement.bubblewrap().works:
        shut_in = confinement.bubblewrap_command([binary], confinement.system_libraries())
        commands.insert(0, ("bubblewrap", _script(folder / "confined", shut_in)))
    return commands


def _script(path: Path, argv: list[str]) -> str:
    # A worker that dies writes to standard error, which is the user's terminal.
    path.write_text(f'#!/bin/sh\nexec {shlex.join(argv)} "$@" 2>/dev/null\n', encoding="utf-8")
    path.chmod(0o700)
    return str(path)


def _kind(cause: BaseException, frames: int) -> PolicyErrorKind:
    if isinstance(cause, SyntaxError):
        return PolicyErrorKind.SYNTAX
    if type(cause).__name__ == _GAP and frames == 1:
        return PolicyErrorKind.UNSUPPORTED
    return next((kind for base, kind in _KINDS if isinstance(cause, base)), PolicyErrorKind.RAISED)


def _one_line(cause: BaseException) -> str:
    text = str(cause)
    return shown(f"{type(cause).__name__}: {text}" if text else type(cause).__name__)


def _traceback(error: Any) -> str:
    text = str(error.display()) if hasattr(error, "display") else ""
    return shown(text.replace('"<python-input-0>"', f'"{SCRIPT_NAME}"').replace('"<python-input-1>"', '"<call>"'))
