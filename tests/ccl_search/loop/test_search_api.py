"""Ask and tell: the search driven from Python, with results the caller measured."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccl_search import ProblemSource, Search, SearchSettings, create, open_store, reopen
from runs.trial import FailureClass
from tests.ccl_search.cli import Cli


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with open_store(str(tmp_path), write=True) as found:
        yield found


def search(store: Any, iterations: int = 4, **settings: Any) -> Search:
    return create(
        ProblemSource(workload="wl4"), SearchSettings(iterations=iterations, proposer="random", **settings), store
    )


def test_told_metrics_decide_the_best(store: Any) -> None:
    found = search(store)
    told = {}
    while (suggestion := found.ask()) is not None:
        told[suggestion.number] = 10.0 - suggestion.iteration
        found.tell(suggestion, {"avg_step_time": told[suggestion.number]})
    found.finish()

    best = found.best
    assert len(told) == 5
    assert best is not None
    assert best.score == -min(told.values())
    assert found.stop_reason == "4 iterations done"
    assert store.best(found.run_id).number == best.number


def test_asking_twice_gives_the_same_suggestion_until_it_is_told(store: Any) -> None:
    found = search(store)

    first = found.ask()
    assert found.ask() == first
    assert first is not None
    found.tell(first, failure=FailureClass.OOM, evidence="CUDA out of memory")
    second = found.ask()
    found.close()

    assert second is not None
    assert second.number > first.number
    assert store.trial(found.run_id, first.number).failure is FailureClass.OOM


def test_a_told_failure_of_the_config_is_remembered_and_one_of_the_machines_is_not(store: Any) -> None:
    found = search(store)
    for failure, remembered in ((FailureClass.OOM, True), (FailureClass.NODE_FAILURE, False)):
        suggestion = found.ask()
        assert suggestion is not None
        found.tell(suggestion, failure=failure, evidence="x")
        seen = [view.config for view in found.recorder.seen.values()]
        assert (suggestion.config in seen) is remembered
    found.close()


def test_telling_nothing_or_nonsense_is_refused(store: Any) -> None:
    found = search(store)
    suggestion = found.ask()
    assert suggestion is not None

    with pytest.raises(ValueError, match="either metrics or a failure"):
        found.tell(suggestion)
    with pytest.raises(ValueError, match="finite"):
        found.tell(suggestion, {"avg_step_time": float("nan")})
    found.close()


def test_a_search_left_in_the_middle_goes_on_with_the_same_suggestions(tmp_path: Path) -> None:
    def drive(home: Path, stop_after: int) -> list[Any]:
        configs = []
        with open_store(str(home), write=True) as store:
            found = search(store)
            while (suggestion := found.ask()) is not None:
                if len(configs) == stop_after:
                    found.recorder.finish("interrupted", "test")
                    found.close()
                    break
                configs.append(suggestion.config)
                found.tell(suggestion, {"avg_step_time": 5.0 + suggestion.number})
            else:
                found.finish()
        if len(configs) == stop_after:
            with open_store(str(home), write=True) as store:
                again = reopen("latest", store)
                for flight in again.recorder.in_flight():
                    configs.append(flight.suggestion.config)
                    again.tell(flight.suggestion, {"avg_step_time": 5.0 + flight.suggestion.number})
                while (suggestion := again.ask()) is not None:
                    configs.append(suggestion.config)
                    again.tell(suggestion, {"avg_step_time": 5.0 + suggestion.number})
                again.finish()
        return configs

    assert drive(tmp_path / "broken", 2) == drive(tmp_path / "whole", 99)


def test_the_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = Path(__file__).resolve().parents[3] / "README.md"
    code = readme.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    printed: list[Any] = []

    exec(code, {"run_it_myself": lambda config: 1.0 + config["tp"], "print": printed.append})

    assert printed[0].score == pytest.approx(-2.0) or printed[0].score < -1.0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_is_one_line_and_leaves_a_run_that_can_go_on(cli: Cli, tmp_path: Path) -> None:
    cli.home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(cli.home)], check=False)
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        result = cli("run", "--iterations", "3")
    finally:
        subprocess.run(["umount", "-l", str(cli.home)], check=True)

    assert result.code != 0
    assert "Traceback" not in result.err
    assert result.err.count("error: ") == 1
    assert "hint:  " in result.err
