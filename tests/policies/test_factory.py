"""Choosing a sandbox by name, and what is said where one is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from policies.factory import create_runner, sandbox_status
from policies.runner import PolicyLimits
from runs.errors import BadInputError, TargetUnavailableError
from tests.policies.attacks import body


@pytest.mark.parametrize("kind", ["monty", "process"])
def test_runners_by_name(kind: str) -> None:
    runner = create_runner(kind, unconfined=True, seed=3, limits=PolicyLimits(seconds=1))  # type: ignore[arg-type]
    try:
        assert runner.name == kind
        assert runner.evaluate(body("return {'tp': workload['n'] + environment['n']}"), {"n": 1}, {"n": 2}) == {"tp": 3}
    finally:
        runner.close()


@pytest.mark.parametrize("kind", ["monty", "process"])
def test_the_seed_decides_random_numbers(kind: str) -> None:
    source = body("import random", "return {'x': random.random()}")
    values = []
    for seed in (3, 3, 4):
        runner = create_runner(kind, unconfined=True, seed=seed)  # type: ignore[arg-type]
        values.append(runner.evaluate(source, {}, {})["x"])
        runner.close()

    assert values[0] == values[1] != values[2]


def test_an_unknown_name() -> None:
    with pytest.raises(BadInputError, match="no sandbox 'wasm'") as caught:
        create_runner("wasm")  # type: ignore[arg-type]
    assert "monty, process" in caught.value.hint


def test_a_missing_package_is_told_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)

    with pytest.raises(TargetUnavailableError, match="monty sandbox cannot be loaded") as caught:
        create_runner("monty")

    assert "pydantic-monty" in caught.value.hint
    assert sandbox_status()["monty"]["available"] is False


def test_a_missing_interpreter_is_told_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda *_: "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")
    runner = create_runner("monty")

    with pytest.raises(TargetUnavailableError, match="not installed"):
        runner.evaluate(body("return {'tp': 1}"), {}, {})

    runner.close()


def test_the_status_tells_both_sandboxes_apart() -> None:
    status = sandbox_status()

    assert status["monty"]["available"] is True
    assert status["monty"]["version"].startswith("1.")
    assert status["monty"]["level"] == ("bubblewrap" if status["bubblewrap"]["works"] else "none")
    expected = "bubblewrap" if status["bubblewrap"]["works"] else None
    if expected is None:
        expected = "landlock+seccomp" if status["landlock+seccomp"]["works"] else "none"
    assert status["process"]["level"] == expected
    assert status["process"]["available"] is (expected != "none")
    assert all(status[name]["reason"] for name in ("bubblewrap", "landlock+seccomp"))


def test_the_factory_loads_no_sandbox_until_asked() -> None:
    code = (
        "import sys, policies.factory; "
        "print(sorted({'pydantic_monty', 'subprocess', 'ctypes', 'selectors'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
