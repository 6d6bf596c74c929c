"""What a process leaves when it dies: a job that has ended is not launched again, nothing stays open for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccl_search import ProblemSource, SearchSettings, create, measuring, open_store, reopen, targets
from ccl_search.loop.execution import Executor
from launchers.base import Handle, Job, JobState
from runs.errors import BadInputError
from runs.trial import Execution, FailureClass, TrialState
from tests.ccl_search.cli import Cli


class Watched:
    """The dry run's launcher, which tells the trials it was given."""

    name = "dry-run"

    def __init__(self) -> None:
        self.inner = targets.launcher(targets.find("dry-run"))
        self.trials: list[int] = []

    def submit(self, job: Job) -> Handle:
        self.trials.append(job.trial)
        return self.inner.submit(job)

    def poll(self, handle: Handle) -> JobState:
        return self.inner.poll(handle)

    def cancel(self, handle: Handle) -> None:
        self.inner.cancel(handle)

    def collect(self, handle: Handle) -> Execution:
        return self.inner.collect(handle)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with open_store(str(tmp_path), write=True) as found:
        yield found


class PowerFailureError(Exception):
    """Ends a search where no part of it expects that."""


def test_a_job_that_had_ended_is_measured_and_not_launched_again(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> Any:
        raise PowerFailureError

    search = create(ProblemSource(), SearchSettings(iterations=0, proposer="random"), store)
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "measure", dies)
        with pytest.raises(PowerFailureError):
            search.run(Executor(Watched(), search.interrupt))
    (left,) = store.trials(search.run_id)
    assert (left.state, left.score) == (TrialState.RUNNING, None)

    launcher = Watched()
    again = reopen(search.run_id, store)
    assert again.run(Executor(launcher, again.interrupt)) == "finished"

    trial = store.trial(search.run_id, 0)
    assert launcher.trials == []
    assert (trial.state, trial.backend, trial.fidelity.value) == (TrialState.SUCCEEDED, "flow", "simulated")
    assert trial.score == -trial.values["avg_step_time"]
    assert len(store.attempts(search.run_id, 0)) == 1


def test_a_job_that_the_config_failed_is_not_launched_again(store: Any) -> None:
    search = create(ProblemSource(), SearchSettings(iterations=0, proposer="random"), store)
    suggestion = search.ask()
    assert suggestion is not None
    attempt = store.begin_attempt(search.run_id, 0)
    out = Execution(TrialState.FAILED, failure=FailureClass.OOM, evidence="CUDA out of memory", seconds=3.0)
    store.finish_attempt(search.run_id, 0, attempt, out)
    search.close()

    launcher = Watched()
    again = reopen(search.run_id, store)
    again.run(Executor(launcher, again.interrupt))

    trial = store.trial(search.run_id, 0)
    assert launcher.trials == []
    assert (trial.state, trial.failure, trial.evidence) == (TrialState.FAILED, FailureClass.OOM, "CUDA out of memory")


def test_what_was_asked_and_never_told_is_asked_again(store: Any) -> None:
    search = create(ProblemSource(), SearchSettings(iterations=1, proposer="random"), store)
    asked = search.ask()
    search.close()

    again = reopen(search.run_id, store)
    same = again.ask()
    assert asked is not None and same is not None
    assert (same.number, same.config, same.proposal.source) == (asked.number, asked.config, asked.proposal.source)
    again.tell(same, {"avg_step_time": 2.0})
    following = again.ask()
    assert following is not None and following.number == 1
    again.tell(following, {"avg_step_time": 1.0})
    assert again.ask() is None
    again.finish()

    assert [trial.state for trial in store.trials(search.run_id)] == [TrialState.SUCCEEDED] * 2


def test_a_told_trial_has_its_files(store: Any, tmp_path: Path) -> None:
    search = create(ProblemSource(), SearchSettings(iterations=0, proposer="random"), store)
    suggestion = search.ask()
    assert suggestion is not None
    search.tell(suggestion, {"avg_step_time": 2.0})
    search.finish()

    folder = store.trial_dir(search.run_id, 0)
    trial = store.trial(search.run_id, 0)
    assert (folder / "policy.py").read_text() == suggestion.proposal.source == trial.policy_source
    assert (folder / "card.yaml").read_text() == trial.card != ""
    assert (folder / "script.sh").read_text() == trial.script != ""
    assert '"avg_step_time": {' in (folder / "metrics.json").read_text()


def test_a_limit_is_raised_by_resuming(cli: Cli) -> None:
    run = cli("run", "--iterations", "0", "--proposer", "random", "--json").document["run_id"]

    refused = cli("resume", run)
    more = cli("resume", run, "--iterations", "1", "--max-cost", "2.50", "--max-xpu-hours", "7", "--json")
    with open_store(str(cli.home), write=False) as store:
        record = store.run(run)

    assert refused.code == 2 and "--iterations" in refused.err
    assert (more.code, more.document["status"], more.document["stop_reason"]) == (0, "finished", "1 iteration done")
    assert record.budgets == {"iterations": 1, "cost_usd": "2.50", "xpu_hours": 7.0}
    assert record.options["settings"]["max_cost_usd"] == "2.50"
    assert cli("resume", run, "--max-minutes", "0").code == 2


def test_an_llm_without_a_key_is_told_before_anything_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    result = cli("run", "--proposer", "claude", "--iterations", "1")

    assert result.code == 2
    assert "no Anthropic API key" in result.err and "--proposer guided" in result.err
    assert cli("list", "--json").document == []


def test_a_run_that_cannot_be_taken_up_stays_as_it_was(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "placed-for-a-test")
    search = create(ProblemSource(), SearchSettings(iterations=1, proposer="claude"), store)
    search.interrupt.count = 1
    search.finish()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)

    with pytest.raises(BadInputError, match="no Anthropic API key"):
        reopen(search.run_id, store)

    assert store.run(search.run_id).status.value == "interrupted"
