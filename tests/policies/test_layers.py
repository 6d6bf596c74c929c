"""Each layer of the confinement holds by itself, and the arena notices where none does."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import child, confinement
from policies.confinement import Level
from policies.process_runner import ProcessRunner
from policies.runner import PolicyLimits
from runs.errors import TargetUnavailableError
from tests.policies.arena import (
    MEMORY,
    Arena,
    check_attack,
    harmless,
    left_over,
    outcome,
    process_runner,
    running_children,
)
from tests.policies.attacks import ATTACKS, SECRET, Attack, body

BY_NAME = {attack.name: attack for attack in ATTACKS}
_UNCONFINED = (
    *("endless loop swallowing everything", "growing list", "print flood", "write a file", "daemonised grandchild"),
    *("socket", "signal the parent", "os._exit", "environment"),
)
_NAMESPACES = ("read a file", "write a file", "socket", "daemonised grandchild", "signal the parent", "os.system")


@pytest.fixture
def no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "seccomp_available", lambda: False)


@pytest.mark.parametrize("name", _UNCONFINED)
def test_unconfined_still_has_limits_and_the_call_filter(name: str, arena: Arena) -> None:
    if not child.seccomp_available():
        pytest.skip("this kernel has no system call filter")
    check_attack(BY_NAME[name], "none", arena)


@pytest.mark.parametrize("name", _NAMESPACES)
def test_bubblewrap_holds_without_the_call_filter(name: str, arena: Arena, no_filter: None) -> None:
    runner = process_runner("bubblewrap")

    with harmless(arena, 7):
        _, text = outcome(runner, arena.source(BY_NAME[name]))

    assert SECRET not in text


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.reads or a.name == "write a file"], ids=lambda a: a.name)
def test_landlock_holds_without_the_call_filter(attack: Attack, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = process_runner("landlock+seccomp")
    monkeypatch.setattr(child, "seccomp_available", lambda: False)

    with harmless(arena, 7):
        kind, text = outcome(runner, arena.source(attack))

    assert kind == "forbidden"
    assert SECRET not in text


@pytest.mark.parametrize(
    ("name", "noticed"),
    [("write a file", "wrote a file"), ("socket", "reached the listener"), ("remove", "secret.txt")],
)
def test_the_arena_notices_an_escape(name: str, noticed: str, arena: Arena, no_filter: None) -> None:
    runner = process_runner("none")

    with pytest.raises((AssertionError, FileNotFoundError), match=noticed), harmless(arena, 10):
        outcome(runner, arena.source(BY_NAME[name]))


def test_the_arena_notices_a_stolen_secret(arena: Arena, no_filter: None) -> None:
    _, text = outcome(process_runner("none"), arena.source(BY_NAME["read a file"]))

    assert SECRET in text


def test_the_arena_notices_a_surviving_process(arena: Arena, no_filter: None) -> None:
    before = running_children()
    source = body(
        *("import os, time", "if os.fork() == 0:", "    os.setsid()", "    time.sleep(30)", "return {'x': 1}")
    )

    kind, text = outcome(process_runner("none"), source)
    survivors = left_over(before)
    for survivor in survivors:
        os.kill(survivor, signal.SIGKILL)

    assert survivors or "BlockingIOError" in text, kind


@pytest.mark.parametrize("level", confinement.LEVELS)
def test_next_evaluation_works(level: Level) -> None:
    runner = process_runner(level)

    assert outcome(runner, body("import os", "os._exit(3)"))[0] == "crashed"
    assert outcome(runner, body("return {'tp': 2, 'x': True}")) == ("ok", "{'tp': 2, 'x': True}")


def test_no_confinement_is_an_error_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = confinement.Probe(False, "absent for this test")
    monkeypatch.setattr(confinement, "bubblewrap", lambda: absent)
    monkeypatch.setattr(confinement, "landlock_and_seccomp", lambda: absent)

    with pytest.raises(TargetUnavailableError, match="absent for this test") as caught:
        ProcessRunner()

    assert "bubblewrap" in caught.value.hint
    assert confinement.confinement_level() == "none"
    limits = PolicyLimits(memory_bytes=MEMORY)
    runner = ProcessRunner(unconfined=True, limits=limits)
    assert runner.level == "none"
    assert outcome(runner, body("return {'tp': 1}"))[0] == "ok"


def test_a_named_level_that_does_not_work_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "bubblewrap", lambda: confinement.Probe(False, "not installed"))

    with pytest.raises(TargetUnavailableError, match="not installed"):
        ProcessRunner(level="bubblewrap", unconfined=True)


def test_a_sandbox_that_does_not_start_is_no_error_of_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = process_runner("none")
    monkeypatch.setattr(confinement, "interpreter", lambda: "/bin/false")

    with pytest.raises(TargetUnavailableError, match="did not start"):
        runner.evaluate(body("return {'tp': 1}"), {}, {})


def test_a_lockdown_that_fails_runs_no_policy(monkeypatch: pytest.MonkeyPatch, arena: Arena) -> None:
    runner = process_runner("landlock+seccomp")
    monkeypatch.setattr(confinement, "readable_paths", lambda: ("/dev/null",))

    with pytest.raises(TargetUnavailableError, match="landlock_add_rule"):
        runner.evaluate(arena.source(BY_NAME["write a file"]), {}, {})

    arena.check_unharmed()


_VERDICTS = {0x7FFF0000: "allow", 0x00050001: "refuse", 0x80000000: "kill"}
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers from the system call tables of both architectures.
_CALLS = {
    "x86_64": {"read": 0, "openat": 257, "socket": 41, "clone": 56, "fork": 57, "execve": 59, "kill": 62, "ptrace": 101}
    | {"clone3": 435, "unlink": 87, "mount": 165, "open": 2, "prlimit64": 302, "io_uring_setup": 425, "fcntl": 72},
    "aarch64": {"read": 63, "openat": 56, "socket": 198, "clone": 220, "execve": 221, "kill": 129, "ptrace": 117}
    | {"clone3": 435, "unlinkat": 35, "mount": 40, "prlimit64": 261, "io_uring_setup": 425, "fcntl": 25},
}


def verdict(machine: str, number: int, flags: int = 0, architecture: int | None = None) -> str:
    """What a classic BPF machine does with the filter: written from the description of BPF, not from the product."""
    data = {0: number, 4: architecture or _ARCH[machine], 32: flags}
    program, at, loaded = child.filter_program(machine), 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == 0x20:
            loaded = data[operand]
        elif code == 0x15:
            at += if_true if loaded == operand else if_false
        elif code == 0x45:
            at += if_true if loaded & operand else if_false
        else:
            assert code == 0x06
            return _VERDICTS[operand]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_verdicts(machine: str) -> None:
    calls = _CALLS[machine]
    assert verdict(machine, calls["read"]) == "allow"
    assert verdict(machine, calls["openat"], os.O_RDONLY | os.O_CLOEXEC) == "allow"
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT, os.O_RDONLY | os.O_TRUNC, os.O_ACCMODE):
        assert verdict(machine, calls["openat"], flags) == "refuse"
    for name in set(calls) - {"read", "openat"}:
        assert verdict(machine, calls[name]) == "refuse", name
    for unknown in (600, 0x40000000 + 1, 2**31):
        assert verdict(machine, unknown) == "refuse"


def test_filter_kills_a_foreign_architecture() -> None:
    assert verdict("x86_64", 0, architecture=0x40000003) == "kill"
    assert verdict("aarch64", 63, architecture=0x40000028) == "kill"


@pytest.mark.parametrize(
    ("machine", "header", "pattern"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+)\s+(\d+)"),
        ("aarch64", "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
    ],
)
def test_call_numbers_are_those_of_the_kernel_headers(machine: str, header: str, pattern: str) -> None:
    if not Path(header).is_file():
        pytest.skip("the kernel headers are not installed")
    numbers = {name: int(number) for name, number in re.findall(pattern, Path(header).read_text())}
    aliases = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    _, seccomp, openat, allowed = child._ARCHITECTURES[machine]

    assert (seccomp, openat) == (numbers["seccomp"], numbers["openat"])
    assert allowed == {name: numbers[aliases.get(name, name)] for name in allowed}


@settings(max_examples=60, deadline=None)
@given(
    value=st.recursive(
        st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20), st.lists, max_leaves=4
    )
)
def test_reports_are_json(value: object) -> None:
    message = {"config": {'k"\\\n\u20ac\U0001f600': value}, "bad": "x"}

    assert json.loads(child._encoded(message)) == message
