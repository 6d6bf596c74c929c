"""What the search loop itself costs per trial: everything but the proposer, the launch and the metrics.

    python benchmarks/loop_overhead.py
    python benchmarks/loop_overhead.py --iterations 14 --proposer guided --json

Runs a real search (dry run, monty sandbox, the record in a folder of its own) with clocks around its parts, and prints
the median over the trials for each, in milliseconds: wall time and CPU time of this process. Other work on the machine
lengthens wall time; CPU time stays. The sandbox works in a process of its own, so that only its wall time says much.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rich.console import Console

from ccl_search import ProblemSource, SearchSettings, create, feasibility, open_store, repeats, targets
from ccl_search.cli.progress import LiveTable
from ccl_search.loop import trial_files
from ccl_search.loop.execution import Executor
from ccl_search.loop.search import Search
from ccl_search.proposers.base import TrialView

EXCLUDED = ("proposer", "launch", "metrics")
STORE = ("add_trial", "prepare_trial", "begin_attempt", "set_handle", "finish_attempt", "finish_trial", "totals")
FILES = ("write_entry", "write_execution", "step_findings", "trace_files", "write_metrics")


@dataclass(frozen=True)
class Cost:
    """Seconds: on the clock on the wall, and of this process's CPU time."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.cpu - other.cpu)


def now() -> Cost:
    """This moment on both clocks."""
    return Cost(time.perf_counter(), time.process_time())


@dataclass
class Clocks:
    """Adds up what each part costs within the current trial. Parts that lie in another part count as that one."""

    parts: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    depth: int = 0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the body as `name`."""
        began, self.depth = now(), self.depth + 1
        try:
            yield
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.parts[name] = self.parts[name] + (now() - began)

    def wrap(self, owner: Any, method: str, name: str) -> Callable[[], None]:
        """Count every call of `owner.method` as `name`; how to undo it."""
        inner = getattr(owner, method)

        def timed(*args: Any, **named: Any) -> Any:
            with self.part(name):
                return inner(*args, **named)

        setattr(owner, method, timed)
        return lambda: setattr(owner, method, inner)


def trials(iterations: int, proposer: str, seed: int = 0, workload: str | None = None) -> list[dict[str, Cost]]:
    """The cost of every launched trial of one search by part; `overhead` is all but `EXCLUDED`, `total` everything."""
    console = Console(file=io.StringIO(), width=200)
    with tempfile.TemporaryDirectory(prefix="loop-overhead-") as home, open_store(home, write=True) as store:
        settings = SearchSettings(iterations=iterations, proposer=proposer, seed=seed)
        table = Watching(console, lambda run: store.totals(run).known_llm_cost_usd)
        search = create(ProblemSource(workload=workload), settings, store, observer=table)
        executor = Executor(targets.launcher(search.target), search.interrupt)
        undo = _instrument(table.clocks, search, executor)
        try:
            search.run(executor)
        finally:
            for restore in undo:
                restore()
        return table.trials


class Watching(LiveTable):
    """The table of a search, which also takes the time from the end of one trial to the end of the next."""

    def __init__(self, console: Console, cost: Callable[[str], Decimal]) -> None:
        super().__init__(console, cost)
        self.clocks = Clocks()
        self.trials: list[dict[str, Cost]] = []
        self.began = now()

    def trial_finished(self, trial: TrialView) -> None:
        """Show the trial, and close its account."""
        super().trial_finished(trial)
        self.trials.append(_of_trial(dict(self.clocks.parts), now() - self.began))
        self.clocks.parts.clear()
        self.began = now()


def _instrument(clocks: Clocks, search: Search, executor: Executor) -> list[Callable[[], None]]:
    """Clocks around the parts; those around functions of modules have to be taken away again."""
    clocks.wrap(search.proposer, "propose", "proposer")
    for method in ("submit", "poll", "collect"):
        clocks.wrap(executor.launcher, method, "launch")
    clocks.wrap(search.runner, "evaluate", "sandbox")
    for method in STORE:
        clocks.wrap(search.recorder.store, method, f"store: {method}")
    modules = [clocks.wrap(trial_files, name, f"files: {name}") for name in FILES]
    modules.append(clocks.wrap(repeats, "measure", "metrics"))
    modules.append(clocks.wrap(feasibility, "check", "feasibility"))
    return modules


def _of_trial(parts: dict[str, Cost], total: Cost) -> dict[str, Cost]:
    known = sum(parts.values(), Cost())
    left_out = sum((parts.get(name, Cost()) for name in EXCLUDED), Cost())
    return {**parts, "other": total - known, "overhead": total - left_out, "total": total}


def medians(found: list[dict[str, Cost]]) -> dict[str, dict[str, float]]:
    """Median over the trials of every part, in milliseconds. The first trial, which loads libraries, is left out."""
    names = dict.fromkeys(name for trial in found[1:] for name in trial)
    return {
        name: {
            kind: 1e3 * statistics.median(getattr(trial.get(name, Cost()), kind) for trial in found[1:])
            for kind in ("wall", "cpu")
        }
        for name in names
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=14)
    parser.add_argument("--proposer", default="guided")
    parser.add_argument("--workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = medians(trials(asked.iterations, asked.proposer, asked.seed, asked.workload))
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'per trial, ms (median)':<28}{'wall':>9}{'cpu':>9}")
    last = (*EXCLUDED, "total", "overhead")
    inner = sorted((name for name in rows if name not in last), key=lambda name: -rows[name]["wall"])
    for name in (*inner, *(name for name in last if name in rows)):
        print(f"{name:<28}{rows[name]['wall']:>9.2f}{rows[name]['cpu']:>9.2f}")


if __name__ == "__main__":
    main()
