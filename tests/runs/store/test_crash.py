"""A writer that is killed in the middle of its writes leaves a store that opens, without half a trial."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from runs.store import RunStatus, Store
from tests.runs.store import make

ROOT = Path(__file__).parents[3]
WRITE = """
import sys; from pathlib import Path
from runs.ledger import LlmRequest
from runs.metric import MetricValue
from runs.store import NewTrial, Store, TraceFile
from runs.trial import Execution, TrialState
from tests.runs.store import make
with Store.open(Path(sys.argv[1]), write=True, metric_columns=["avg_step_time"]) as store:
    run_id = store.create_run(make.new_run())
    for iteration in range(100_000):
        call = store.ledger.begin(LlmRequest(run_id, iteration, 0, "propose", "m", {"x": "y" * 3000}, ""))
        number = store.add_trial(run_id, NewTrial(
            iteration=iteration, policy_source=f"# {iteration}" + "p" * 5000, config={"tp": iteration},
            llm_calls=(call,)))
        attempt = store.begin_attempt(run_id, number)
        store.set_handle(run_id, number, attempt, {"job": iteration})
        store.finish_attempt(run_id, number, attempt, Execution(TrialState.SUCCEEDED, xpu_hours=0.5))
        values = tuple(MetricValue(f"m{k}", "1", "s", float(iteration)) for k in range(20))
        store.finish_trial(run_id, number, make.success(float(iteration), metrics=values,
            traces=(TraceFile(f"t/{iteration}/a", 1, "0" * 64), TraceFile(f"t/{iteration}/b", 1, "1" * 64))))
        print(number, flush=True)
"""


def _killed_writer(home: Path, delay: float) -> int:
    """The last trial the child said it had finished, before SIGKILL came."""
    child = subprocess.Popen([sys.executable, "-c", WRITE, str(home)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(delay)
    child.kill()
    rest = child.communicate()[0]
    return int((first + rest).splitlines()[-1])


def test_kill_9_leaves_whole_rows_and_loses_nothing_that_was_promised(home: Path) -> None:
    generator = random.Random(5)
    for round_number in range(2):
        promised = _killed_writer(home, generator.uniform(0.05, 0.4))
        with Store.open(home, write=True) as store:
            assert store.check() == []
            run = store.run("latest")
            assert run.status is RunStatus.INTERRUPTED
            trials = store.trials(run.id)
            assert [trial.number for trial in trials] == list(range(len(trials)))
            done = [trial for trial in trials if trial.state.value == "succeeded"]
            assert len(done) in (promised + 1, promised + 2)
            assert len(trials) - len(done) in (0, 1)
            for trial in done:
                assert trial.score == -float(trial.number)
                assert len(trial.values) == 20
            assert _counts(store, run.id) == {"scores": len(done), "traces": 2 * len(done)}
            assert all(trial.policy_source.startswith(f"# {trial.number}") for trial in trials)
            assert len(store.llm_calls(run.id)) in (len(trials), len(trials) + 1)
            assert len(store.list_runs()) == round_number + 1
            make.add_success(store, run.id, 1.0)


def _counts(store: Store, run_id: str) -> dict[str, int]:
    own = "trial_id IN (SELECT id FROM trials WHERE run_id = ?)"
    return {
        name: store.query(f"SELECT count(*) AS n FROM {table} WHERE {own}", [run_id])[0]["n"]
        for name, table in (("scores", "scores"), ("traces", "trace_files"))
    }
