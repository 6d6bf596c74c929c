"""Adapters: how they are found, where they run, what their configs mean, and recorded spellings."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from launchers import frameworks
from launchers.frameworks.megatron_lm import virtual_stages
from runs import catalogue
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from tests.reference import shared_path


def plan(framework: str, workload: str, environment: str = "perlmutter-a100-16", **config: Any) -> ParallelPlan:
    """The plan a framework makes of a config."""
    return frameworks.get(framework).plan(config, catalogue.workload(workload), catalogue.environment(environment))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torchtitan-0.1.0", "torchtitan"),
        ("torchtitan-0.1.0.dev20251215+cu126", "torchtitan"),
        ("Megatron_LM", "megatron-lm"),
        ("megatron-lm-0.12", "megatron-lm"),
        ("sglang-0.5.10.post1", "sglang"),
        ("vLLM", "vllm"),
        ("maxtext", "maxtext"),
        ("command", "command"),
    ],
)
def test_frameworks_are_found_under_the_spellings_of_cards(spelling: str, name: str) -> None:
    assert frameworks.get(spelling).name == frameworks.canonical(spelling) == name


@pytest.mark.parametrize("spelling", ["", "pytorch", "megatron", "torchtitan2x", "vllm/../os"])
def test_an_unknown_framework_lists_the_known_ones(spelling: str) -> None:
    with pytest.raises(BadInputError) as caught:
        frameworks.get(spelling)
    assert all(name in caught.value.hint for name in frameworks.names())


def test_naming_frameworks_imports_no_adapter() -> None:
    code = (
        "import sys; from launchers import frameworks; frameworks.canonical('vllm-0.19.0'); "
        "print([m for m in sys.modules if m.startswith('launchers.frameworks.') and m.split('.')[-1] in "
        "('torchtitan', 'megatron_lm', 'maxtext', 'vllm', 'sglang', 'command')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("framework", "workload", "environment", "reason"),
    [
        ("megatron-lm", "wl4", "tpu-v6e-8", "TPU"),
        ("torchtitan", "wl4", "tpu-v6e-8", "TPU"),
        ("sglang", "wl1", "tpu-v6e-8", "TPU"),
        ("torchtitan", "wl1", "perlmutter-a100-16", "inference"),
        ("vllm", "wl4", "perlmutter-a100-16", "training"),
        ("maxtext", "wl4", "tpu-v6e-8", None),
        ("maxtext", "wl4", "h100-8", None),
        ("vllm", "wl1", "tpu-v6e-8", None),
        ("command", "wl1", "tpu-v6e-8", None),
    ],
)
def test_where_a_framework_runs(framework: str, workload: str, environment: str, reason: str | None) -> None:
    adapter = frameworks.get(framework)

    found = adapter.supports(catalogue.workload(workload), catalogue.environment(environment))

    assert found is None if reason is None else (found is not None and reason in found)


def test_torchtitan_shards_within_dp_and_keeps_sequence_parallelism_with_tp() -> None:
    found = plan("torchtitan", "wl5", tp=2, dp=8, dp_shard=4, ep=8, micro_batch_size=1, zero_stage=2)

    assert (found.dp_replicate, found.dp_shard, found.dp) == (2, 4, 8)
    assert (found.zero_stage, found.reshard_after_forward, found.sequence_parallel) == (2, False, True)
    assert (found.expert_placement, found.ep, found.num_microbatches) == ("inside_dp_tp", 8, 1)
    assert (found.state_bytes.parameter, found.state_bytes.gradient, found.state_bytes.optimizer) == (4, 4, 8)


def test_torchtitan_without_shards_has_no_zero_stage() -> None:
    assert plan("torchtitan", "wl4", dp=1).zero_stage == 0
    assert plan("torchtitan", "wl4", dp=2).dp_shard == 2


def test_megatrons_zero_stage_is_the_distributed_optimizer() -> None:
    sharded = plan("megatron-lm", "wl4", tp=4, dp=4, zero_stage=1, sequence_parallel=True)
    plain = plan("megatron-lm", "wl4", tp=4, dp=4, zero_stage=0)

    assert (sharded.dp_shard, sharded.dp_replicate, sharded.zero_stage) == (4, 1, 1)
    assert (plain.dp_shard, plain.dp_replicate, plain.zero_stage, plain.sequence_parallel) == (1, 4, 0, False)
    assert (plain.state_bytes.parameter, plain.state_bytes.gradient, plain.state_bytes.optimizer) == (2, 4, 12)


def test_uneven_pipeline_stages_are_legal_under_1f1b_only() -> None:
    what, where = catalogue.workload("wl7"), catalogue.environment("perlmutter-a100-256")
    adapter = frameworks.get("megatron-lm")
    space = adapter.default_space(what, where)
    config = {
        "tp": 4, "pp": 8, "dp": 8, "ep": 8, "zero_stage": 1, "sequence_parallel": True, "micro_batch_size": 1,
        "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "collective_algorithm": "auto",
    }  # fmt: skip
    assert what.model.num_layers % 8 != 0

    assert space.violations(config, what.policy_input(), where.policy_input()) == []
    found = adapter.plan(config, what, where)
    assert (found.pp, found.world_size, found.num_microbatches, found.virtual_stages) == (8, 256, 8, 1)

    (violation,) = space.violations(
        {**config, "pipeline_schedule": "interleaved"}, what.policy_input(), where.policy_input()
    )
    assert violation.rule == "interleaved_layers" and "workload.num_layers=60" in violation.message


@pytest.mark.parametrize(
    ("layers", "pp", "chunks"), [(32, 4, 2), (27, 3, 3), (27, 9, 3), (60, 4, 3), (60, 2, 2), (28, 4, 7)]
)
def test_interleaved_stages_are_the_fewest_equal_chunks(layers: int, pp: int, chunks: int) -> None:
    assert virtual_stages(layers, pp) == chunks
    assert layers % (pp * chunks) == 0


@pytest.mark.parametrize(("layers", "pp"), [(60, 8), (8, 8), (27, 2)])
def test_layers_that_do_not_split_have_no_interleaved_plan(layers: int, pp: int) -> None:
    with pytest.raises(BadInputError, match="interleaved"):
        virtual_stages(layers, pp)


def test_maxtexts_expert_axis_is_a_part_of_its_shards() -> None:
    found = plan("maxtext", "wl6", "tpu-v6e-32", tp=2, dp=16, dp_shard=8, ep=4, micro_batch_size=2)

    assert (found.dp_replicate, found.dp_shard, found.zero_stage) == (2, 8, 3)
    assert (found.compile, found.pipeline_schedule, found.expert_placement) == (True, "gpipe", "inside_dp")
    assert found.num_microbatches == 64 // (16 * 2)


@pytest.mark.parametrize(
    ("config", "waves"),
    [
        ({"tp": 4, "dp": 2, "max_num_seqs": 16}, (16, 4)),
        ({"tp": 4, "dp": 2, "max_num_seqs": 64}, (64, 1)),
        ({"tp": 4, "dp": 2, "max_num_seqs": 256}, (64, 1)),
        ({"tp": 4}, (128, 1)),
    ],
)
def test_serving_runs_the_whole_batch_in_waves(config: dict[str, int], waves: tuple[int, int]) -> None:
    found = plan("vllm", "wl3", **config)

    assert (found.micro_batch_size, found.num_microbatches) == waves
    assert found.global_batch == 128
    assert (found.state_bytes.parameter, found.state_bytes.gradient, found.state_bytes.optimizer) == (2, 0, 0)


@pytest.mark.parametrize("framework", ["torchtitan", "megatron-lm", "maxtext", "command"])
def test_a_config_that_cannot_realise_the_batch_has_no_plan(framework: str) -> None:
    with pytest.raises(BadInputError, match="global batch of 4"):
        plan(framework, "wl4", dp=8, micro_batch_size=1)
    with pytest.raises(BadInputError, match="global batch of 4"):
        plan(framework, "wl4", dp=1, micro_batch_size=3)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"tp": 0}, "tp=0"),
        ({"tp": True}, "tp=True"),
        ({"pp": "2"}, "pp='2'"),
        ({"activation_checkpointing": True}, "activation_checkpointing=True"),
        ({"pipeline_schedule": "zigzag"}, "zigzag"),
        ({"dp": 4, "dp_shard": 3}, "dp_shard=3"),
    ],
)
def test_values_without_a_meaning_are_refused(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        plan("command", "wl4", **config)


def test_a_command_has_no_space_of_its_own_and_knobs_with_their_plain_meaning() -> None:
    adapter = frameworks.get("command")
    with pytest.raises(BadInputError, match="no default space"):
        adapter.default_space(catalogue.workload("wl4"), catalogue.environment("h100-8"))

    found = plan(
        "command", "wl4", tp=2, dp_replicate=2, dp_shard=2, collective_algorithm="ring", all2all_backend="auto"
    )

    assert (found.dp, found.dp_shard, found.zero_stage, found.world_size) == (4, 2, 3, 8)
    assert (found.collective_algorithm, found.all2all_backend) == ("ring", None)
    assert plan("command", "wl4", dp=2, zero_stage=1).dp_shard == 2
    assert plan("command", "wl4", dp=2).zero_stage == 0


def test_experts_have_an_axis_of_their_own_where_nothing_is_data_parallel() -> None:
    found = plan("command", "moe-prefill-kimi-k3", "h100-64", tp=8, ep=8, topology=3, network_mode="ib-hpcc")

    assert (found.expert_placement, found.world_size, found.dp) == ("own_axis", 64, 1)
    assert (found.topology, found.network_mode, found.global_batch) == (3, "ib-hpcc", 1)


@pytest.mark.parametrize(
    ("recorded", "framework", "config"),
    [
        ({"micro_batch": 2}, "", {"micro_batch_size": 2}),
        ({"activation_checkpointing": True}, "torchtitan", {"activation_checkpointing": "full"}),
        ({"activation_checkpointing": True}, "megatron-lm", {"activation_checkpointing": "selective"}),
        ({"activation_checkpointing": "False"}, "megatron-lm", {"activation_checkpointing": "none"}),
        ({"compile_mode": "eager"}, "torchtitan", {"compile": False}),
        ({"compile_mode": "max-autotune"}, "torchtitan", {"compile": True}),
        ({"tp": "4", "dp": "2"}, "torchtitan", {"tp": 4, "dp": 2}),
    ],
)
def test_recorded_spellings_are_translated_with_a_note_each(
    recorded: dict[str, Any], framework: str, config: dict[str, Any]
) -> None:
    found, notes = frameworks.translate_legacy(recorded, framework)

    assert found == config
    assert [type(value) for value in found.values()] == [type(value) for value in config.values()]
    assert len(notes) == len(recorded)


def test_a_config_in_todays_words_needs_no_translation() -> None:
    config = {"tp": 4, "activation_checkpointing": "selective", "compile": True, "micro_batch_size": 1}

    assert frameworks.translate_legacy(config, "torchtitan") == (config, [])


@pytest.mark.shared
def test_every_recorded_config_of_the_published_searches_has_a_plan() -> None:
    with shared_path("data/recorded_trials.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["micro_batch_key"]]
    assert len(rows) == 151  # of 154; the other three are policies that raised

    for row in rows:
        recorded = {
            key: int(row[key]) if row[key].isdecimal() else row[key]
            for key in ("tp", "dp", "pp", "ep", "activation_checkpointing", "compile_mode")
            if row[key]
        }
        recorded[row["micro_batch_key"]] = int(row["micro_batch_size"])
        config, notes = frameworks.translate_legacy(recorded, row["framework"])
        batch = config.get("dp", 1) * config["micro_batch_size"]
        what = replace(catalogue.workload("wl4"), batch_size=batch)
        made = frameworks.get(row["framework"]).plan(config, what, catalogue.environment("perlmutter-a100-16"))
        assert made.world_size == int(row["num_gpus"])
        assert made.recompute in ("none", "selective", "full")
        assert bool(notes)
