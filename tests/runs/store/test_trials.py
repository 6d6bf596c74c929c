"""Trials: their life from proposal to score, and what the store refuses to believe."""

from __future__ import annotations

import hashlib
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import objective
from runs.errors import BadInputError
from runs.metric import MetricValue
from runs.plan import ParallelPlan
from runs.space import config_key
from runs.store import NewTrial, Store, StoreError, Timings, TraceFile, TrialOutcome
from runs.store.encoding import clean, redact
from runs.trial import Execution, FailureClass, Fidelity, TrialState
from tests.runs.store import make


@pytest.fixture
def run_id(store: Store) -> str:
    return store.create_run(make.new_run())


def test_every_proposal_gets_the_next_number_and_keeps_its_iteration(store: Store, run_id: str) -> None:
    other = store.create_run(make.new_run())
    refused = NewTrial(iteration=1, state=TrialState.PRUNED, failure=FailureClass.DUPLICATE, evidence="as trial 0")
    numbers = [store.add_trial(run_id, new) for new in (NewTrial(iteration=0), refused, NewTrial(iteration=1))]
    assert numbers == [0, 1, 2]
    assert store.add_trial(other, NewTrial(iteration=0)) == 0
    assert [(trial.iteration, trial.state) for trial in store.trials(run_id)] == [
        (0, TrialState.QUEUED),
        (1, TrialState.PRUNED),
        (1, TrialState.QUEUED),
    ]
    pruned = store.trial(run_id, 1)
    assert (pruned.failure, pruned.evidence, pruned.launched) == (FailureClass.DUPLICATE, "as trial 0", None)
    assert pruned.finished == pruned.proposed


def test_a_trial_from_proposal_to_score(store: Store, run_id: str) -> None:
    config = {"tp": 2, "dp": 4, "compile": True}
    number = store.add_trial(
        run_id,
        NewTrial(iteration=3, policy_source=make.POLICY, config=config, rationale="less tp", proposer_seconds=1.5),
    )
    plan = ParallelPlan("torchtitan", tp=2, dp_replicate=2, dp_shard=2, micro_batch_size=4, num_microbatches=2)
    store.prepare_trial(run_id, number, plan=plan, card="tp: 2\n", script="#!/bin/sh\ntrue\n")
    attempt = store.begin_attempt(run_id, number)
    assert store.trial(run_id, number).state is TrialState.RUNNING
    store.set_handle(run_id, number, attempt, {"job": "17", "host": "a"})
    execution = Execution(TrialState.SUCCEEDED, seconds=30.0, xpu_hours=0.5, provenance={"job": "17"})
    store.finish_attempt(run_id, number, attempt, execution)
    traces = (TraceFile(f"runs/{run_id}/trials/{number}/trace/rank0.json", 12, "ab" * 32),)
    missing = MetricValue.none(make.MFU, "no flops in the trace", warnings=("rank 3 is empty",))
    store.finish_trial(
        run_id,
        number,
        make.success(
            1.25,
            metrics=(MetricValue.of(make.STEP, 1.25, detail={"steps": [1.2, 1.3]}), missing),
            fidelity=Fidelity.MEASURED,
            backend=None,
            provenance={"nodes": 1},
            timings=Timings(launch=31.0, metrics=0.25, overhead=0.125),
            traces=traces,
        ),
    )
    trial = store.trial(run_id, number)
    assert (trial.state, trial.score, trial.objective) == (TrialState.SUCCEEDED, -1.25, "avg_step_time")
    assert (trial.config, trial.config_key) == (config, config_key(config))
    assert trial.parallel_plan() == plan
    assert (trial.num_xpus, trial.card, trial.script) == (8, "tp: 2\n", "#!/bin/sh\ntrue\n")
    assert (trial.policy_source, trial.rationale) == (make.POLICY, "less tp")
    assert trial.policy_id == hashlib.sha256(make.POLICY.encode()).hexdigest()
    assert trial.values == {"avg_step_time": 1.25}
    assert trial.metrics["avg_step_time"].detail == {"steps": [1.2, 1.3]}
    assert trial.metrics["mfu"] == missing
    assert trial.timings == Timings(1.5, 31.0, 0.25, 0.125)
    assert (trial.fidelity, trial.provenance, trial.xpu_hours) == (Fidelity.MEASURED, {"nodes": 1}, 0.5)
    assert trial.launched is not None and trial.finished is not None
    assert trial.proposed <= trial.launched <= trial.finished
    assert tuple(store.trace_files(run_id, number)) == traces
    (stored,) = store.attempts(run_id, number)
    assert (stored.handle, stored.state, stored.seconds) == ({"job": "17", "host": "a"}, TrialState.SUCCEEDED, 30.0)


def test_a_handle_is_on_disk_before_anybody_waits(store: Store, run_id: str, home: Path) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    attempt = store.begin_attempt(run_id, number)
    store.set_handle(run_id, number, attempt, {"pid": 12})
    assert make.raw(home, "SELECT handle, state, finished FROM attempts") == [('{"pid": 12}', "running", None)]


def test_attempts_are_counted_and_their_hours_add_up(store: Store, run_id: str) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    lost = Execution(TrialState.FAILED, failure=FailureClass.NODE_FAILURE, evidence="node 3 died", xpu_hours=0.25)
    for execution in (lost, Execution(TrialState.SUCCEEDED, xpu_hours=1.0)):
        store.finish_attempt(run_id, number, store.begin_attempt(run_id, number), execution)
    store.finish_trial(run_id, number, make.success(1.0))
    assert [(a.number, a.failure, a.evidence) for a in store.attempts(run_id, number)] == [
        (0, FailureClass.NODE_FAILURE, "node 3 died"),
        (1, None, ""),
    ]
    assert store.trial(run_id, number).xpu_hours == 1.25


@pytest.mark.parametrize("hours", [(None, 1.0), (None,)])
def test_unknown_hours_of_one_attempt_make_the_trials_hours_unknown(
    store: Store, run_id: str, hours: tuple[float | None, ...]
) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    for value in hours:
        execution = Execution(TrialState.SUCCEEDED, xpu_hours=value)
        store.finish_attempt(run_id, number, store.begin_attempt(run_id, number), execution)
    store.finish_trial(run_id, number, make.success(1.0))
    assert store.trial(run_id, number).xpu_hours is None


S, F = TrialState, FailureClass


@pytest.mark.parametrize(
    ("state", "failure", "more"),
    [
        (S.SUCCEEDED, F.OOM, {}),
        (S.FAILED, None, {}),
        (S.FAILED, F.DUPLICATE, {}),
        (S.FAILED, F.CANCELLED, {}),
        (S.PRUNED, F.OOM, {}),
        (S.CANCELLED, None, {}),
        (S.RUNNING, None, {}),
        (S.QUEUED, None, {}),
        (S.FAILED, F.OOM, {"score": 1.0}),
        (S.SUCCEEDED, None, {"score": float("nan")}),
        (S.SUCCEEDED, None, {"score": 1.0, "fidelity": None}),
    ],
)
def test_an_outcome_that_contradicts_itself_is_refused(
    store: Store, run_id: str, state: TrialState, failure: FailureClass | None, more: dict[str, Any]
) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    with pytest.raises(StoreError):
        store.finish_trial(
            run_id, number, TrialOutcome(**{"state": state, "failure": failure, "fidelity": Fidelity.MEASURED, **more})
        )
    assert store.trial(run_id, number).state is TrialState.QUEUED


@pytest.mark.parametrize("state", [S.RUNNING, S.SUCCEEDED])
def test_a_new_trial_has_neither_run_nor_succeeded(store: Store, run_id: str, state: TrialState) -> None:
    with pytest.raises(StoreError, match="a new trial cannot be"):
        store.add_trial(run_id, NewTrial(iteration=0, state=state))


def test_an_outcome_is_stored_whole_or_not_at_all(store: Store, run_id: str, home: Path) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    traces = (TraceFile("runs/good", 1, "0" * 64), TraceFile("/not/below", 1, "0" * 64))
    with pytest.raises(BadInputError, match="not below the home"):
        store.finish_trial(run_id, number, make.success(1.0, traces=traces))
    assert store.trial(run_id, number).state is TrialState.QUEUED
    counts = "SELECT (SELECT count(*) FROM metric_values), (SELECT count(*) FROM trace_files)"
    assert make.raw(home, counts) == [(0, 0)]
    store.finish_trial(run_id, number, make.success(1.0))


def test_a_trial_ends_once(store: Store, run_id: str) -> None:
    number = make.add_success(store, run_id, 1.0)
    failed = TrialOutcome(state=TrialState.FAILED, failure=FailureClass.OOM)
    for change in (
        lambda: store.finish_trial(run_id, number, failed),
        lambda: store.begin_attempt(run_id, number),
        lambda: store.prepare_trial(run_id, number, script="other"),
    ):
        with pytest.raises(StoreError, match="has ended"):
            change()
    assert store.trial(run_id, number).score == -1.0


def test_unknown_runs_trials_and_attempts_are_named(store: Store, run_id: str) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    with pytest.raises(BadInputError, match="no run 'x'"):
        store.add_trial("x", NewTrial(iteration=0))
    with pytest.raises(BadInputError, match="no run 'x'"):
        store.trials("x")
    with pytest.raises(BadInputError, match="has no trial 5"):
        store.trial(run_id, 5)
    with pytest.raises(BadInputError, match="has no attempt 2"):
        store.set_handle(run_id, number, 2, {})


def test_a_policy_is_stored_once_and_read_by_the_beginning_of_its_hash(store: Store, run_id: str) -> None:
    first = store.add_policy(make.POLICY)
    for _ in range(3):
        make.add_success(store, run_id, 1.0)
    child = store.add_policy(make.POLICY + "# better\n", parent=first)
    assert store.query("SELECT count(*) AS n FROM policies") == [{"n": 2}]
    assert store.policy(child[:16]).parent == first
    assert store.policy(first).source == make.POLICY
    with pytest.raises(BadInputError, match="no policy begins"):
        store.policy("zz")
    with pytest.raises(BadInputError, match="several policies begin"):
        store.policy("")


def test_a_new_score_keeps_the_old_one(store: Store, run_id: str) -> None:
    number = make.add_success(store, run_id, 2.0)
    other = objective.build([make.MFU], None)
    store.rescore_trial(run_id, number, objective=other, score=0.4, metrics=(MetricValue.of(make.MFU, 0.4),))
    assert [(s.objective, s.score) for s in store.scores(run_id, number)] == [("avg_step_time", -2.0), ("mfu", 0.4)]
    assert store.scores(run_id, number)[1].definition == other.as_dict()
    trial = store.trial(run_id, number)
    assert (trial.score, trial.objective) == (0.4, "mfu")
    assert trial.values == {"avg_step_time": 2.0, "mfu": 0.4}


def test_a_trial_whose_metric_failed_is_mended_but_one_that_did_not_run_is_not(store: Store, run_id: str) -> None:
    goal = objective.build([make.STEP], None)
    mended, broken = (store.add_trial(run_id, NewTrial(iteration=i)) for i in (0, 1))
    store.finish_trial(
        run_id,
        mended,
        TrialOutcome(state=S.FAILED, failure=F.METRIC_ERROR, fidelity=Fidelity.MEASURED, evidence="tool broke"),
    )
    store.finish_trial(run_id, broken, TrialOutcome(state=S.FAILED, failure=F.OOM))
    store.rescore_trial(run_id, mended, objective=goal, score=-3.0, metrics=[MetricValue.of(make.STEP, 3.0)])
    assert (store.trial(run_id, mended).state, store.trial(run_id, mended).failure) == (S.SUCCEEDED, None)
    with pytest.raises(StoreError, match="nothing to score"):
        store.rescore_trial(run_id, broken, objective=goal, score=1.0)


def test_newer_versions_count_and_retracted_ones_do_not(store: Store, run_id: str) -> None:
    number = make.add_success(store, run_id, 2.0)
    elsewhere = store.create_run(make.new_run())
    make.add_success(store, elsewhere, 5.0, metrics=(MetricValue("avg_step_time", "1.1", "s", 5.0),))
    store.add_metric_values(run_id, number, [MetricValue("avg_step_time", "1.1", "s", 2.5)])
    assert store.trial(run_id, number).values == {"avg_step_time": 2.5}
    assert store.retract("avg_step_time", "1.1", "counted warm-up") == 2
    assert store.trial(run_id, number).values == {"avg_step_time": 2.0}
    assert store.trials(elsewhere)[0].values == {}
    assert [(m.value.version, m.retracted, m.retracted_reason) for m in store.metric_values(run_id, number)] == [
        ("1.0", False, ""),
        ("1.1", True, "counted warm-up"),
    ]
    columns = "SELECT avg_step_time FROM leaderboard ORDER BY run_id = ? DESC"
    assert [row["avg_step_time"] for row in store.query(columns, [run_id])] == [2.0, None]


def test_the_same_version_computed_again_replaces_its_value(store: Store, run_id: str) -> None:
    number = make.add_success(store, run_id, 2.0)
    store.retract("avg_step_time", "1.0", "bad")
    store.add_metric_values(run_id, number, [MetricValue("avg_step_time", "1.0", "s", 2.25)])
    assert [(m.value.value, m.retracted) for m in store.metric_values(run_id, number)] == [(2.25, False)]


def test_the_best_is_the_highest_score_the_earlier_of_equals(store: Store, run_id: str) -> None:
    assert store.best(run_id) is None
    for seconds in (3.0, 1.0, 2.0, 1.0):
        make.add_success(store, run_id, seconds)
    store.finish_trial(
        run_id,
        store.add_trial(run_id, NewTrial(iteration=9)),
        TrialOutcome(state=S.FAILED, failure=F.OOM),
    )
    best = store.best(run_id)
    assert best is not None and (best.number, best.score) == (1, -1.0)


def test_measured_and_simulated_trials_are_not_ranked_together(store: Store, run_id: str) -> None:
    make.add_success(store, run_id, 1.0)
    make.add_success(store, run_id, 2.0, fidelity=Fidelity.MEASURED)
    measured, simulated = store.best(run_id), store.best(run_id, Fidelity.SIMULATED)
    assert measured is not None and measured.number == 1
    assert simulated is not None and simulated.number == 0


def test_trials_can_be_read_by_state(store: Store, run_id: str) -> None:
    make.add_success(store, run_id, 1.0)
    store.add_trial(run_id, NewTrial(iteration=1, policy_source="other"))
    assert [trial.number for trial in store.trials(run_id, states=(S.QUEUED, S.RUNNING))] == [1]
    assert [trial.policy_source for trial in store.trials(run_id)] == [make.POLICY, "other"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", ""])
def test_trace_files_stay_below_the_home(store: Store, run_id: str, path: str) -> None:
    number = make.add_success(store, run_id, 1.0)
    with pytest.raises(BadInputError, match="not below the home"):
        store.add_trace_files(run_id, number, [TraceFile(path, 1, "0" * 64)])


def test_a_dropped_trace_file_stays_known(store: Store, run_id: str) -> None:
    number = make.add_success(store, run_id, 1.0, traces=(TraceFile("runs/t/b", 5, "0" * 64),))
    store.add_trace_files(run_id, number, [TraceFile("runs/t/a", 6, "1" * 64)])
    before = datetime.now(UTC)
    store.drop_trace_file(run_id, number, "runs/t/b", "not among the best 3")
    kept, dropped = store.trace_files(run_id, number)
    assert kept == TraceFile("runs/t/a", 6, "1" * 64)
    assert dropped.dropped is not None and before <= dropped.dropped <= datetime.now(UTC)
    assert dropped == TraceFile("runs/t/b", 5, "0" * 64, False, "not among the best 3", dropped.dropped)
    with pytest.raises(BadInputError, match="no trace file"):
        store.drop_trace_file(run_id, number, "runs/t/c", "")


def test_a_transaction_is_all_or_nothing(store: Store, run_id: str, home: Path) -> None:
    with pytest.raises(RuntimeError, match="power"), store.transaction():
        number = store.add_trial(run_id, NewTrial(iteration=0, policy_source=make.POLICY))
        store.finish_trial(run_id, number, make.success(1.0))
        assert store.trial(run_id, number).score == -1.0  # seen from inside
        assert make.raw(home, "SELECT count(*) FROM trials") == [(0,)]  # not from outside
        raise RuntimeError("power")
    assert store.trials(run_id) == []
    assert make.raw(home, "SELECT count(*) FROM policies") == [(0,)]
    assert make.add_success(store, run_id, 1.0) == 0


def test_threads_of_the_writer_take_turns(store: Store, run_id: str) -> None:
    def work() -> None:
        for _ in range(6):
            make.add_success(store, run_id, 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = store.trials(run_id)
    assert [trial.number for trial in trials] == list(range(24))
    assert all(trial.values == {"avg_step_time": 1.0} for trial in trials)


def test_a_trial_has_a_folder_of_its_own(store: Store, run_id: str, home: Path) -> None:
    number = store.add_trial(run_id, NewTrial(iteration=0))
    folder = store.trial_dir(run_id, number)
    assert folder == home / "runs" / run_id / "trials" / "0"
    assert folder.is_dir()
    with pytest.raises(BadInputError, match="no run"):
        store.run_dir("../elsewhere")


def test_reading_many_trials_takes_as_many_queries_as_reading_few(store: Store, run_id: str) -> None:
    from sqlalchemy import event

    def queries() -> int:
        seen: list[str] = []

        def record(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
            seen.append(statement)

        event.listen(store._database.engine, "before_cursor_execute", record)
        store.trials(run_id)
        event.remove(store._database.engine, "before_cursor_execute", record)
        return len(seen)

    make.add_success(store, run_id, 1.0)
    make.add_success(store, run_id, 1.0)
    few = queries()
    for _ in range(10):
        make.add_success(store, run_id, 1.0)
    assert queries() == few <= 5


def test_evidence_with_broken_text_and_keys_is_stored_without_them(store: Store, run_id: str) -> None:
    evidence = "a\ud800b\0c sk-ant-api03-abcdefgh12345678 Authorization: Bearer abcdefghijklmnopqrstuvwx end"
    refused = NewTrial(iteration=0, state=S.PRUNED, failure=F.SCREENED, evidence=evidence)
    stored = store.trial(run_id, store.add_trial(run_id, refused)).evidence
    assert stored == "a\ufffdb\ufffdc [secret] Authorization: [secret] end"


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_can_be_stored_and_good_text_is_not_touched(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert "\0" not in cleaned
    assert clean(cleaned) == cleaned
    if "\0" not in text and not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert cleaned == text


def test_words_that_only_resemble_keys_stay() -> None:
    assert redact("task-antenna, Bearer of news, sk-ant-") == "task-antenna, Bearer of news, sk-ant-"
