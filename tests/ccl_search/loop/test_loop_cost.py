"""What a trial costs beside proposer, launch and metrics: transactions, waits for the disk, and CPU time."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from ccl_search import ProblemSource, SearchSettings, create, open_store, repeats
from ccl_search.loop.execution import Executor
from ccl_search.loop.observer import Observer
from ccl_search.measuring import Measurement
from ccl_search.proposers.base import TrialView
from launchers.base import Handle, Job, JobState
from metrics import registry
from runs.metric import MetricValue
from runs.trial import Execution, Fidelity, TrialState

MOST_CPU_S = 0.1
"""Several times what a trial takes on a machine with nothing else to do (see benchmarks/loop_overhead.py)."""


class Instant:
    """A launcher whose jobs are over at once."""

    name = "instant"

    def __init__(self, fidelity: Fidelity) -> None:
        self.fidelity = fidelity

    def submit(self, job: Job) -> Handle:
        job.trace_dir.mkdir(parents=True)
        (job.trace_dir / "rank0.json").write_bytes(b" " * 100_000)
        return {"directory": str(job.directory)}

    def poll(self, _handle: Handle) -> JobState:
        return JobState.FINISHED

    def cancel(self, _handle: Handle) -> None:
        """Nothing runs."""

    def collect(self, handle: Handle) -> Execution:
        place = Path(handle["directory"]) / "trace"
        provenance = {"backend": "flow", "warmup_steps": 5, "recorded_steps": 5}
        return Execution(
            TrialState.SUCCEEDED, trace_dir=place, fidelity=self.fidelity, seconds=0.0, xpu_hours=0.0,
            provenance=provenance,
        )  # fmt: skip


class Ticks(Observer):
    """CPU time of the process at the end of every trial."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def trial_finished(self, trial: TrialView) -> None:
        self.at.append(time.process_time())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with open_store(str(tmp_path), write=True) as found:
        yield found


def run(store: Any, monkeypatch: pytest.MonkeyPatch, iterations: int, fidelity: Fidelity, observer: Observer) -> None:
    values = [MetricValue.of(registry.spec(name), 1.5) for name in registry.BUNDLED]
    measured = Measurement({value.name: value for value in values})
    monkeypatch.setattr(repeats, "measure", lambda *_: measured)
    search = create(ProblemSource(), SearchSettings(iterations=iterations, proposer="random"), store, observer=observer)
    search.recorder.fidelity = fidelity
    search.target = replace(search.target, fidelity=fidelity)
    assert search.run(Executor(Instant(fidelity), search.interrupt)) == "finished"


@pytest.mark.parametrize(("fidelity", "flushed"), [(Fidelity.SIMULATED, 0), (Fidelity.MEASURED, 2)])
def test_a_trial_is_five_transactions_and_waits_for_the_disk_only_where_something_was_measured(
    store: Any, monkeypatch: pytest.MonkeyPatch, fidelity: Fidelity, flushed: int
) -> None:
    counts: Counter[str] = Counter()

    class Counting(Observer):
        def __init__(self) -> None:
            self.per_trial: list[Counter[str]] = []

        def trial_finished(self, trial: TrialView) -> None:
            self.per_trial.append(Counter(counts))
            counts.clear()

    def committed(connection: Any) -> None:
        level = connection.connection.dbapi_connection.execute("PRAGMA synchronous").fetchone()[0]
        writes = connection.get_execution_options().get("ccl_write") is not None
        counts[{1: "quick", 2: "durable"}[level] if writes else "read"] += 1

    event.listen(store._database.engine, "commit", committed)
    watching = Counting()
    run(store, monkeypatch, 2, fidelity, watching)

    second = watching.per_trial[1]
    pruned = sum(trial.state is TrialState.PRUNED for trial in store.trials(store.run("latest").id))
    assert pruned == 0
    # proposed, begun, handle, attempt over, result
    assert (second["quick"] + second["durable"], second["durable"]) == (5, flushed)


def test_the_loop_itself_takes_little_cpu_time_and_no_more_as_the_history_grows(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks()
    run(store, monkeypatch, 24, Fidelity.SIMULATED, ticks)

    each = [after - before for before, after in zip(ticks.at, ticks.at[1:], strict=False)]
    assert statistics.median(each) < MOST_CPU_S, each
    assert statistics.median(each[-8:]) < 2.5 * statistics.median(each[:8]), each
