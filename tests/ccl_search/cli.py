"""Driving the command line from tests: in this process (fast), or as a process of its own (signals, kill)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ENTRY = "from ccl_search.cli.app import main; main()"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as JSON; fails when anything else is there."""
        return json.loads(self.out)


class Cli:
    """Runs commands in this process with a home of their own."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str) -> Result:
        from ccl_search.cli import app

        self._monkeypatch.setenv("CCL_SEARCH_HOME", str(self.home))
        self._monkeypatch.setenv("COLUMNS", "200")
        self._monkeypatch.setattr(sys, "argv", ["ccl-search", *arguments])
        self._capsys.readouterr()
        code = 0
        try:
            app.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        out, err = self._capsys.readouterr()
        return Result(code, out, err)


def start(home: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A command as a process of its own."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("ANTHROPIC")}
    variables |= {"CCL_SEARCH_HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", ENTRY, *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120) -> Result:
    """Wait for the process."""
    out, err = process.communicate(timeout=seconds)
    return Result(process.returncode, out, err)
