"""Comparing runs: same work first, one ranking for each kind of result, and the published mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccl_search import comparing
from runs.store import Store
from runs.trial import FailureClass, Fidelity
from tests.ccl_search.cli import Cli
from tests.ccl_search.recorded import Recorded, record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "home", write=True) as found:
        yield found


def step(seconds: float, xpus: int = 16, **more: Any) -> dict[str, Any]:
    return {"avg_step_time": seconds, "num_xpus": float(xpus), "tokens_per_s": 4096 / seconds, **more}


def test_runs_of_the_same_work_are_ranked_by_step_time(store: Store) -> None:
    slow = record(store, [step(2.0), step(1.5, 8)], objectives=("step_time",))
    fast = record(store, [Recorded(failure=FailureClass.INVALID_CONFIG), step(1.0), step(1.2)], ("step_time",))

    found = comparing.compare(store, [slow, fast])

    assert found["refused"] == []
    (group,) = found["groups"]
    assert (group["fidelity"], group["ranked_by"]) == ("measured", "avg_step_time")
    assert [row["run_id"] for row in group["ranking"]] == [fast, slow]
    assert [row["ratio_to_fastest"] for row in group["ranking"]] == [1.0, pytest.approx(1.5)]
    rows = {row["run_id"]: row for row in found["runs"]}
    assert rows[slow]["trials_to_best"] == 2
    assert rows[fast]["trials_to_best"] == 1
    assert rows[slow]["best"]["xpu_seconds_per_step"] == pytest.approx(12.0)
    assert rows[slow]["best"]["tokens_per_s"] == pytest.approx(4096 / 1.5)
    assert rows[slow]["llm_cost_usd"] == 0.0


@pytest.mark.parametrize(
    "change",
    [{"batch_size": 1}, {"seq_len": 8192}, {"precision": "fp8"}, {"model_family": "other"}, {"phase": "inference"},
     {"num_layers": 16}, {"output_len": 7}],
)  # fmt: skip
def test_runs_whose_work_differs_are_refused_a_ranking_with_the_reason(change: dict[str, Any], store: Store) -> None:
    first, second = record(store, [step(1.5)]), record(store, [step(0.44)], workload=change)

    found = comparing.compare(store, [first, second])

    ((name, value),) = change.items()
    assert found["groups"] == []
    assert len(found["refused"]) == 1
    assert f"{name} is " in found["refused"][0]
    assert f"{value} in {second}" in found["refused"][0]


def test_a_fact_of_the_model_that_only_one_card_has_is_no_difference(store: Store) -> None:
    first, second = record(store, [step(1.5)]), record(store, [step(1.0)], workload={"num_kv_heads": None})

    assert comparing.compare(store, [first, second])["refused"] == []


def test_measured_and_simulated_and_two_simulators_are_ranked_apart(store: Store) -> None:
    simulated = Fidelity.SIMULATED
    runs = [
        record(store, [step(1.5)]),
        record(store, [Recorded(step(0.1), fidelity=simulated, backend="flow")]),
        record(store, [Recorded(step(0.2), fidelity=simulated, backend="astra-sim")]),
        record(store, [step(1.0)]),
    ]

    groups = comparing.compare(store, runs)["groups"]

    assert {(g["fidelity"], g["backend"]): [row["run_id"] for row in g["ranking"]] for g in groups} == {
        ("measured", None): [runs[3], runs[0]],
        ("simulated", "flow"): [runs[1]],
        ("simulated", "astra-sim"): [runs[2]],
    }


def test_perturbed_times_are_ranked_among_themselves(store: Store) -> None:
    runs = [record(store, [step(seconds)]) for seconds in (1.0, 1.1, 1.2)]
    for run in runs[1:]:
        store.set_option(run, "imported", {"anonymised": {"perturbation": {"seed": 1}}})

    groups = comparing.compare(store, runs)["groups"]

    assert [(g["perturbed"], [row["run_id"] for row in g["ranking"]]) for g in groups] == [
        (False, runs[:1]),
        (True, runs[1:]),
    ]


def test_a_difference_inside_the_measured_spread_is_said_to_be_one(store: Store) -> None:
    steady = record(store, [{"avg_step_time": (1.00, 1.04), "num_xpus": 16.0}], repeats=2)
    close = record(store, [{"avg_step_time": (1.03, 1.05), "num_xpus": 16.0}], repeats=2)
    slow = record(store, [{"avg_step_time": (1.30, 1.32), "num_xpus": 16.0}], repeats=2)

    (group,) = comparing.compare(store, [slow, close, steady])["groups"]

    assert [(row["run_id"], row["told_apart"]) for row in group["ranking"]] == [
        (steady, True),
        (close, False),
        (slow, True),
    ]


def test_a_run_without_a_result_is_shown_and_not_ranked(store: Store) -> None:
    empty = record(store, [Recorded(failure=FailureClass.OOM)])
    good = record(store, [step(1.0)])

    found = comparing.compare(store, [empty, good])

    assert [row["best"] is None for row in found["runs"]] == [True, False]
    assert [row["run_id"] for row in found["groups"][0]["ranking"]] == [good]


def test_without_a_common_time_there_is_no_ranking(store: Store) -> None:
    first = record(store, [{"mfu": 10.0}], objectives=("mfu",))
    second = record(store, [{"mfu": 20.0}], objectives=("mfu",))

    (group,) = comparing.compare(store, [first, second])["groups"]

    assert (group["ranked_by"], group["ranking"]) == (None, [])


def test_the_command_line_shows_different_work_and_ends_with_2(cli: Cli) -> None:
    with Store.open(cli.home, write=True) as found:
        titan = record(found, [step(1.5)], workload={"batch_size": 32})
        megatron = record(found, [step(0.44)], workload={"batch_size": 1})

    result = cli("compare", titan, megatron, "--json")

    assert result.code == 2
    assert f"batch_size is 32 in {titan}, 1 in {megatron}" in result.err
    assert [row["best"]["avg_step_time"] for row in result.document["runs"]] == [1.5, 0.44]
    assert result.document["groups"] == []


def test_the_command_line_ranks(cli: Cli) -> None:
    with Store.open(cli.home, write=True) as found:
        runs = [record(found, [step(1.5)]), record(found, [step(1.0)])]

    result = cli("compare", *runs)

    assert result.code == 0
    assert f"by avg_step_time: 1. {runs[1]} 1 s; 2. {runs[0]} 1.5 s (1.5x)" in result.err


def test_one_run_is_nothing_to_compare(cli: Cli) -> None:
    with Store.open(cli.home, write=True) as found:
        run = record(found, [step(1.5)])

    assert cli("compare", run, run).code == 2
