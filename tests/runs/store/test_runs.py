"""Runs: what goes in comes out, and a run is found by what a person types."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from runs import objective
from runs.errors import BadInputError
from runs.store import RunStatus, Store, StoreError
from tests.runs.store import make


def test_everything_of_a_run_comes_back(store: Store) -> None:
    parent = store.create_run(make.new_run())
    run_id = store.create_run(
        make.new_run(
            parent=parent,
            kind="replay",
            model="some-model",
            sandbox="monty",
            target_settings={"partition": "gpu", "nodes": [1, 2]},
            budgets={"iterations": 20, "cost_usd": 1.5},
            tool_versions={"avg_step_time": "1.0"},
            product_version="0.1.0",
            options={"settings": {"nested": None}},
            notes="é\u2028",
        )
    )
    run = store.run(run_id)
    assert (run.id, run.parent, run.kind, run.status, run.finished) == (
        run_id,
        parent,
        "replay",
        RunStatus.RUNNING,
        None,
    )
    assert (run.model, run.sandbox, run.seed, run.target, run.proposer) == (
        "some-model",
        "monty",
        7,
        "dry-run",
        "random",
    )
    assert run.target_settings == {"partition": "gpu", "nodes": [1, 2]}
    assert run.budgets == {"iterations": 20, "cost_usd": 1.5}
    assert (run.workload, run.environment, run.card) == (make.WORKLOAD, make.ENVIRONMENT, "version: 1\n")
    assert run.options == {"settings": {"nested": None}}
    assert (run.tool_versions, run.product_version, run.notes) == ({"avg_step_time": "1.0"}, "0.1.0", "é\u2028")
    assert abs((datetime.now(UTC) - run.created).total_seconds()) < 60


def test_space_and_objective_become_objects_again(store: Store) -> None:
    wanted = objective.build([make.STEP, make.MFU], [0.75, 0.25], {"avg_step_time": 2.0})
    run = store.run(store.create_run(make.new_run(objective=wanted)))
    assert run.typed_objective() == wanted  # labels, formats and aliases of the specs included
    assert run.config_space().as_dict() == make.SPACE.as_dict()


def test_the_objective_gets_its_baselines_later(store: Store) -> None:
    first = objective.build([make.STEP, make.MFU], None)
    run_id = store.create_run(make.new_run(objective=first))
    store.set_objective(run_id, first.with_baseline({"avg_step_time": 2.0, "mfu": 0.5}))
    assert [term.baseline for term in store.run(run_id).typed_objective().terms] == [2.0, 0.5]


def test_an_id_says_when_in_utc_and_sorts(store: Store) -> None:
    moments = [datetime(2026, 11, 30, 10, 45, second, tzinfo=UTC) for second in (12, 13)]
    early, late = (store.create_run(make.new_run(created=moment)) for moment in moments)
    assert re.fullmatch(r"20261130-104512-[0-9a-f]{4}", early)
    assert early < late
    assert store.run(early).created == moments[0]


def test_runs_of_one_second_get_different_ids(store: Store) -> None:
    moment = datetime(2026, 11, 30, 10, 45, 12, tzinfo=UTC)
    assert len({store.create_run(make.new_run(created=moment)) for _ in range(40)}) == 40


def test_a_run_is_found_by_the_beginning_of_its_id_or_as_the_latest(store: Store) -> None:
    day = [datetime(2026, 11, number, 8, tzinfo=UTC) for number in (28, 30, 29)]
    first, newest, _ = (store.create_run(make.new_run(created=moment)) for moment in day)
    assert store.run("20261128").id == first
    assert store.run("latest").id == newest
    assert store.run(first).id == first
    with pytest.raises(BadInputError, match="beginning of several runs"):
        store.run("2026112")
    with pytest.raises(BadInputError, match="no run '1999'"):
        store.run("1999")
    with pytest.raises(BadInputError, match="no run '%'"):
        store.run("%")


def test_latest_of_an_empty_store_is_an_error(store: Store) -> None:
    with pytest.raises(BadInputError, match="holds no run"):
        store.run("latest")


def test_runs_are_listed_newest_first_and_by_kind_and_status(store: Store) -> None:
    moments = [datetime(2026, 11, number, tzinfo=UTC) for number in (2, 3, 1)]
    middle, newest, oldest = (store.create_run(make.new_run(created=moment)) for moment in moments)
    sweep = store.create_run(make.new_run(created=datetime(2026, 10, 1, tzinfo=UTC), kind="sweep"))
    store.finish_run(middle, RunStatus.FAILED, "target gone")
    assert [run.id for run in store.list_runs()] == [newest, middle, oldest, sweep]
    assert [run.id for run in store.list_runs(limit=2)] == [newest, middle]
    assert [run.id for run in store.list_runs(kind="sweep")] == [sweep]
    assert [run.id for run in store.list_runs(status=RunStatus.FAILED)] == [middle]


def test_a_run_ends_with_a_reason_and_can_go_on(store: Store) -> None:
    run_id = store.create_run(make.new_run())
    store.finish_run(run_id, RunStatus.CANCELLED, "Ctrl-C")
    ended = store.run(run_id)
    assert (ended.status, ended.stop_reason) == (RunStatus.CANCELLED, "Ctrl-C")
    assert ended.finished is not None and ended.finished >= ended.created
    store.reopen_run(run_id)
    assert (store.run(run_id).status, store.run(run_id).finished) == (RunStatus.RUNNING, None)
    with pytest.raises(StoreError, match="cannot end as running"):
        store.finish_run(run_id, RunStatus.RUNNING)


def test_what_cannot_be_stored_is_refused_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(BadInputError, match="no run 'nobody'"):
        store.create_run(make.new_run(parent="nobody"))
    with pytest.raises(StoreError, match="budgets is not plain JSON data"):
        store.create_run(make.new_run(budgets={"cost_usd": Decimal(1)}))
    with pytest.raises(StoreError, match="options is not plain JSON data"):
        store.create_run(make.new_run(options={"x": float("nan")}))
    with pytest.raises(BadInputError, match=r"target_settings\.headers\.Authorization looks like a credential"):
        store.create_run(make.new_run(target_settings={"headers": {"Authorization": "x"}}))
    assert store.list_runs() == []


def test_prompts_are_kept_once_by_hash(store: Store, home: object) -> None:
    name = store.add_prompt("You tune {framework}.")
    assert store.add_prompt("You tune {framework}.") == name
    assert store.prompt(name) == "You tune {framework}."
    assert store.query("SELECT count(*) AS n FROM prompts") == [{"n": 1}]
    with pytest.raises(BadInputError, match="no prompt"):
        store.prompt("0" * 64)
