"""Runners as long-lived objects: closing, use from threads, speed, and what becomes of workers if their owner dies."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policies import confinement
from policies.monty_runner import MontyRunner
from policies.process_runner import ProcessRunner
from policies.runner import PolicyError, PolicyLimits, PolicyRunner
from tests.policies.arena import Arena, left_over, outcome, process_runner, running_children
from tests.policies.attacks import body
from tests.policies.styles import CHOICES_AND_HELPERS

GOOD = body("return {'tp': workload['n']}")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed owner cannot clean up, and other tests make folders at the same time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def _monty_folders(place: Path) -> set[Path]:
    return set(place.glob("ccl-search-monty-*"))


def test_close_ends_the_workers_and_can_be_repeated(arena: Arena) -> None:
    before = running_children()
    runner = MontyRunner()
    runner.evaluate(GOOD, {"n": 1}, {})
    assert len(running_children() - before) == 1

    runner.close()
    runner.close()

    assert left_over(before) == set()


def test_nothing_starts_before_the_first_evaluation(arena: Arena) -> None:
    before = running_children()

    MontyRunner().close()

    assert running_children() == before


def test_a_closed_runner_leaves_no_files(tmp_path: Path) -> None:
    runner = MontyRunner()
    runner.evaluate(GOOD, {"n": 1}, {})
    assert len(_monty_folders(tmp_path)) == 1

    runner.close()

    assert _monty_folders(tmp_path) == set()


@pytest.mark.parametrize("make", [lambda: MontyRunner(workers=2), lambda: ProcessRunner(unconfined=True)])
def test_threads_share_a_runner(make: Callable[[], PolicyRunner]) -> None:
    runner = make()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: runner.evaluate(GOOD, {"n": n}, {})["tp"], range(8)))
    runner.close()

    assert found == list(range(8))


def test_the_thread_that_started_the_workers_may_end() -> None:
    runner = MontyRunner()
    starter = threading.Thread(target=lambda: runner.evaluate(GOOD, {"n": 1}, {}))
    starter.start()
    starter.join()
    time.sleep(0.1)

    assert runner.evaluate(GOOD, {"n": 2}, {}) == {"tp": 2}
    runner.close()


def test_a_worker_killed_from_outside_is_replaced(arena: Arena) -> None:
    before = running_children()
    runner = MontyRunner()
    runner.evaluate(GOOD, {"n": 1}, {})
    (worker,) = running_children() - before
    subprocess.run(["kill", "-9", str(worker)], check=True)
    left_over(running_children() - {worker})
    try:
        runner.evaluate(GOOD, {"n": 1}, {})
    except PolicyError as error:
        assert error.kind == "crashed"

    assert runner.evaluate(GOOD, {"n": 2}, {}) == {"tp": 2}
    runner.close()


_OWNER = """
import sys
from policies.monty_runner import MontyRunner
from policies.process_runner import ProcessRunner
from policies.runner import PolicyLimits
limits = PolicyLimits(seconds=60)
kind = sys.argv[1]
runner = MontyRunner(limits=limits) if kind == "monty" else ProcessRunner(limits=limits, level=kind, unconfined=True)
runner.evaluate("def generate_config(w, e):\\n    return {'tp': 1}\\n", {}, {})
print("started", flush=True)
if sys.argv[2] == "loop":
    runner.evaluate("def generate_config(w, e):\\n    while True: pass\\n", {}, {})
"""


@pytest.mark.parametrize("kind", ["monty", *confinement.LEVELS])
def test_workers_end_with_an_owner_that_is_killed(kind: str, arena: Arena) -> None:
    if kind != "monty":
        process_runner(kind)  # type: ignore[arg-type]
    if kind == "monty" and not confinement.bubblewrap().works:
        pytest.skip("a Monty worker ends with its owner only behind bubblewrap")
    before = running_children()
    argv = [sys.executable, "-c", _OWNER, kind, "loop"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"started\n"
        time.sleep(0.3)
        owner.send_signal(signal.SIGKILL)

    assert left_over(before) == set()


def test_workers_end_with_an_owner_that_forgets_to_close(arena: Arena, tmp_path: Path) -> None:
    before = running_children()

    subprocess.run([sys.executable, "-c", _OWNER, "monty", "end"], check=True, cwd=ROOT, capture_output=True)

    assert left_over(before) == set()
    assert _monty_folders(tmp_path) == set()


def test_a_dying_worker_writes_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    runner = MontyRunner(limits=PolicyLimits(memory_bytes=8 * 2**20))

    kind, _ = outcome(runner, body("return {str(i): [i] * 50 for i in range(10**6)}"))
    runner.close()

    assert kind == "memory"
    assert capfd.readouterr() == ("", "")


def test_memory_errors_of_a_process_say_where() -> None:
    source = body("x = []", "while True:", "    x.append(str(len(x)) * 1000)")
    with pytest.raises(PolicyError) as caught:
        process_runner("none").evaluate(source, {}, {})

    assert caught.value.kind in ("memory", "timeout")
    if caught.value.kind == "memory":
        assert 'File "policy.py", line 4, in generate_config' in caught.value.traceback


_SPACE = {"batch_size": 32, "config_space": [{"key": "tp", "choices": [1, 2, 4, 8]}]}
_CLUSTER = {"total_gpus": 16, "gpus_per_node": 4}


def test_speed_of_monty() -> None:
    runner = MontyRunner()
    runner.evaluate(GOOD, {"n": 1}, {})
    found = []
    for _ in range(40):
        began = time.perf_counter()
        runner.evaluate(CHOICES_AND_HELPERS, _SPACE, _CLUSTER)
        found.append(time.perf_counter() - began)
    runner.close()

    assert min(found) < 0.010


def test_speed_of_processes() -> None:
    runner = process_runner("none")  # the processor time of name spaces is not counted for this process
    runner.evaluate(CHOICES_AND_HELPERS, _SPACE, _CLUSTER)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(4):
        runner.evaluate(CHOICES_AND_HELPERS, _SPACE, _CLUSTER)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)

    assert (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 4 < 0.3


def test_monty_without_bubblewrap_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "bubblewrap", lambda: confinement.Probe(False, "not installed"))
    runner = MontyRunner()

    assert runner.level == "none"
    assert runner.evaluate(GOOD, {"n": 5}, {}) == {"tp": 5}
    runner.close()


def test_monty_starts_where_no_script_may_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.monty_runner._script", lambda path, argv: str(path))
    runner = MontyRunner()

    assert runner.evaluate(GOOD, {"n": 6}, {}) == {"tp": 6}
    assert runner.level == "none"
    runner.close()
