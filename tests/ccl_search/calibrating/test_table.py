"""Measured trials read from CSV files and runs: what is used, what is dropped, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccl_search.calibrating.measurements import Measurements, replicate_spread
from ccl_search.calibrating.table import read_table
from runs.errors import BadInputError
from tests.reference import shared_path

HEAD = "framework,model,environment,tp,dp,pp,micro_batch_size,global_batch_size,seq_len,status,step_time_s"
GOOD = "megatron-lm,llama-3.1-8b,perlmutter-a100-16,4,2,2,1,8,1024,ok,{}"


def _table(tmp_path: Path, *rows: str, head: str = HEAD) -> Path:
    path = tmp_path / "trials.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_equal_configs_are_repetitions(tmp_path: Path) -> None:
    found = read_table(_table(tmp_path, GOOD.format(1.0), GOOD.format(1.2), GOOD.format(1.1).replace(",2,2,", ",4,1,")))
    assert [config.seconds for config in found.configs] == [(1.0, 1.2), (1.1,)]
    assert found.configs[0].median == 1.1
    assert found.configs[0].rows == ("line 2", "line 3")
    spread = replicate_spread(found.configs)
    assert (spread.configs, spread.median) == (1, pytest.approx(0.2))


def test_the_batch_is_the_one_that_ran(tmp_path: Path) -> None:
    head = f"{HEAD},global_batch_size_effective,micro_batch_size_effective"
    found = read_table(_table(tmp_path, GOOD.format(1.0) + ",2,1", head=head))
    plan = found.configs[0].plan
    assert (found.configs[0].workload.batch_size, plan.dp, plan.num_microbatches) == (2, 2, 1)


def test_the_table_that_really_ran_may_be_padded_and_shared(tmp_path: Path) -> None:
    head = f"{HEAD},vocab_size,tied_embeddings"
    found = read_table(_table(tmp_path, GOOD.format(1.0) + ",140800,true", GOOD.format(2.0) + ",,", head=head))
    models = [config.workload.model for config in found.configs]
    assert [(model.vocab_size, model.tied_embeddings) for model in models] == [(140800, True), (128256, False)]
    with pytest.raises(BadInputError, match="line 2: vocab_size is 0"):
        read_table(_table(tmp_path, GOOD.format(1.0) + ",0,", head=head))


def test_failures_and_cached_repeats_are_dropped_with_their_reason(tmp_path: Path) -> None:
    head = f"{HEAD},failure_category,repeat_of"
    rows = [
        GOOD.format(1.0) + ",,",
        GOOD.format("").replace("ok", "failed") + ",rendezvous_error,",
        GOOD.format(1.0) + ",,run/3",
        GOOD.format("") + ",,",
    ]
    found = read_table(_table(tmp_path, *rows, head=head))
    assert len(found.configs) == 1
    assert found.dropped == {
        "failed: rendezvous_error": ("line 3",),
        "repeats the outcome of an earlier row": ("line 4",),
        "no step time": ("line 5",),
    }


def test_rows_can_be_picked_and_given_an_environment(tmp_path: Path) -> None:
    rows = [GOOD.format(1.0).replace("perlmutter-a100-16", ""), GOOD.format(2.0).replace("llama-3.1-8b", "qwen3-4b")]
    found = read_table(_table(tmp_path, *rows), "perlmutter-a100-sockets", ["model=llama*"])
    assert [config.seconds for config in found.configs] == [(1.0,)]
    environment = found.configs[0].environment
    assert (environment.name, environment.nics_per_node) == ("perlmutter-a100-sockets-16", 1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (GOOD.format("nan"), ("line 2", "step_time_s='nan'")),
        (GOOD.format("-1"), ("line 2", "positive")),
        (GOOD.format("inf"), ("line 2", "finite")),
        (GOOD.format("1.0").replace(",4,2,2,", ",4,x,2,"), ("line 2", "dp='x'")),
        (GOOD.format("1.0").replace("megatron-lm", "megatronn"), ("line 2", "megatronn")),
        (GOOD.format("1.0").replace("llama-3.1-8b", "llama-9"), ("line 2", "llama-9")),
        (GOOD.format("1.0").replace("perlmutter-a100-16", ""), ("line 2", "no environment")),
        (GOOD.format("1.0").replace(",4,2,2,", ",4,3,1,"), ("line 2", "dp=3", "global batch of 8")),
        (GOOD.format("1.0").replace(",4,2,2,", ",8,8,1,"), ("line 2", "64 devices", "has 16")),
    ],
)
def test_a_bad_value_is_named_with_its_line(tmp_path: Path, row: str, words: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError) as caught:
        read_table(_table(tmp_path, row))
    assert all(word in caught.value.message for word in words), caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("column", ["framework", "step_time_s", "micro_batch_size", "model"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    with pytest.raises(BadInputError, match=f"lacks the column .*{column}"):
        read_table(_table(tmp_path, GOOD.format(1.0), head=HEAD.replace(column, "other")))


def test_simulated_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="line 2 is simulated"):
        read_table(_table(tmp_path, GOOD.format(1.0) + ",simulated", head=f"{HEAD},fidelity"))


def test_one_config_is_too_little(tmp_path: Path) -> None:
    found = read_table(_table(tmp_path, GOOD.format(1.0)))
    with pytest.raises(BadInputError, match=r"trials\.csv has 1 distinct measured configs, a calibration needs 5"):
        found.require_enough()


@pytest.mark.shared
def test_the_recorded_trials() -> None:
    found = read_table(shared_path("data/recorded_trials.csv"), "perlmutter-a100-sockets")
    used = sum(len(config.seconds) for config in found.configs)
    assert isinstance(found, Measurements)
    assert used == 79  # 85 successes, 6 of them cached repeats
    assert found.date == "2026-05-05"
    assert sum(len(rows) for rows in found.dropped.values()) == 154 - 79
    megatron = next(c for c in found.configs if c.stack.startswith("megatron-lm llama") and c.plan.dp == 4)
    assert megatron.workload.batch_size == megatron.plan.global_batch  # dp * mbs, whatever the card said
