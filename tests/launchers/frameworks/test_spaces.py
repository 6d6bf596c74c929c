"""Default spaces: knobs that suit the workload and the machine, constraints that are the framework's own rules."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import pytest

from launchers import frameworks
from launchers.frameworks import templates
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.space import Config, ConfigSpace
from runs.workload import Workload

TRAINING = ("wl4", "wl5", "wl6", "wl7")
TRIPLES = [
    *((w, "perlmutter-a100-16", f) for w in TRAINING for f in ("torchtitan", "megatron-lm")),
    ("wl5", "h100-64", "torchtitan"),
    ("wl6", "h100-64", "megatron-lm"),
    ("wl7", "perlmutter-a100-256", "torchtitan"),
    ("wl7", "perlmutter-a100-256", "megatron-lm"),
    *((w, "tpu-v6e-16", "maxtext") for w in TRAINING),
    ("wl7", "tpu-v6e-256", "maxtext"),
    ("wl5", "h100-16", "maxtext"),
    *((w, e, "vllm") for w in ("wl1", "wl3", "moe-prefill-kimi-k3") for e in ("perlmutter-a100-16", "tpu-v6e-8")),
    *((w, "h100-64", "sglang") for w in ("wl2", "wl3", "moe-prefill-v4-pro", "moe-prefill-glm-5")),
]


@cache
def problem(workload: str, environment: str, framework: str) -> tuple[Workload, Environment, ConfigSpace]:
    """The triple and its default space."""
    what, where = catalogue.workload(workload), catalogue.environment(environment)
    return what, where, frameworks.get(framework).default_space(what, where)


@cache
def some_valid(workload: str, environment: str, framework: str) -> list[Config]:
    """Up to 200 valid configs spread over the space."""
    what, where, space = problem(workload, environment, framework)
    configs = list(islice(space.valid_configs(what.policy_input(), where.policy_input()), 60_000))
    return configs if len(configs) <= 200 else random.Random(0).sample(configs, 200)


@pytest.mark.parametrize(("workload", "environment", "framework"), TRIPLES)
def test_every_valid_config_has_a_plan_of_its_world_size_and_the_workloads_batch(
    workload: str, environment: str, framework: str
) -> None:
    what, where, space = problem(workload, environment, framework)
    configs = some_valid(workload, environment, framework)
    assert configs

    for config in configs:
        plan = frameworks.get(framework).plan(config, what, where)
        world = plan.tp * plan.cp * plan.pp * plan.dp
        assert plan.world_size == world == space.world_size(config, what.policy_input(), where.policy_input())
        assert world <= where.total_xpus
        assert world <= where.xpus_per_node or world % where.xpus_per_node == 0
        assert plan.dp * plan.micro_batch_size * plan.num_microbatches == what.batch_size
        assert plan.framework == framework
        assert ParallelPlan.from_dict(plan.as_dict()) == plan


@pytest.mark.parametrize(("workload", "environment", "framework"), TRIPLES)
def test_every_choice_is_used_by_some_valid_config(workload: str, environment: str, framework: str) -> None:
    what, where, space = problem(workload, environment, framework)
    configs = list(space.valid_configs(what.policy_input(), where.policy_input()))

    for knob in space.knobs:
        assert {config[knob.key] for config in configs} == set(knob.choices), knob.key


def test_dense_models_have_no_expert_knob_and_mixtures_have_one() -> None:
    for framework in ("torchtitan", "megatron-lm", "maxtext"):
        assert "ep" not in problem("wl4", "h100-16", framework)[2].keys
        assert "ep" in problem("wl5", "h100-16", framework)[2].keys
    assert "ep" not in problem("wl1", "h100-16", "vllm")[2].keys
    assert "ep" in problem("wl3", "h100-16", "vllm")[2].keys


def test_context_parallelism_is_offered_for_long_sequences_and_tiny_batches() -> None:
    where = catalogue.environment("perlmutter-a100-64")
    assert "cp" not in problem("wl6", "perlmutter-a100-64", "torchtitan")[2].keys

    long = replace(catalogue.workload("wl6"), seq_len=32768)
    for framework in ("torchtitan", "megatron-lm", "maxtext"):
        space = frameworks.get(framework).default_space(long, where)
        assert space.knob("cp").choices == (1, 2, 4, 8)
        assert space.world_size_expression.text == "tp * cp * pp * dp"


def test_a_knob_that_is_not_offered_leaves_no_trace_in_the_expressions() -> None:
    space = problem("wl6", "perlmutter-a100-64", "torchtitan")[2]

    assert space.world_size_expression.text == "tp * pp * dp"
    for constraint in space.constraints:
        assert "cp" not in constraint.expression.knobs
    assert {c.name for c in space.constraints} >= {"devices", "whole_nodes", "global_batch", "mixed_precision"}


BASE: dict[str, dict[str, Any]] = {
    "torchtitan": {
        "tp": 2, "pp": 2, "dp": 4, "dp_shard": 4, "ep": 2, "zero_stage": 3, "micro_batch_size": 1,
        "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "compile": False,
    },
    "megatron-lm": {
        "tp": 2, "pp": 3, "dp": 2, "ep": 2, "zero_stage": 1, "sequence_parallel": True, "micro_batch_size": 1,
        "pipeline_schedule": "1f1b", "activation_checkpointing": "full", "collective_algorithm": "ring",
    },
    "maxtext": {
        "tp": 2, "pp": 1, "dp": 8, "dp_shard": 8, "ep": 4, "sequence_parallel": False, "micro_batch_size": 1,
        "pipeline_schedule": "gpipe", "activation_checkpointing": "full",
    },
    "vllm": {
        "tp": 2, "pp": 1, "dp": 2, "ep": 4, "max_num_seqs": 32, "max_num_batched_tokens": 8192, "cuda_graph": True,
    },
    "sglang": {
        "tp": 4, "pp": 1, "dp": 2, "ep": 4, "max_num_seqs": 32, "max_num_batched_tokens": 8192, "cuda_graph": True,
    },
}  # fmt: skip
WORKLOAD = {"torchtitan": "wl5", "megatron-lm": "wl6", "maxtext": "wl5", "vllm": "wl3", "sglang": "wl3"}
BROKEN = [
    ("torchtitan", {"tp": 4}, {"devices", "ep_holds_tp"}),
    ("torchtitan", {"pp": 3, "dp": 1, "dp_shard": 1, "ep": 1}, {"whole_nodes", "mixed_precision"}),
    ("torchtitan", {"micro_batch_size": 4}, {"global_batch", "enough_micro_batches"}),
    ("torchtitan", {"dp_shard": 8}, {"shard_divides_dp"}),
    ("torchtitan", {"dp_shard": 1, "ep": 1}, {"mixed_precision", "replicas_of_shards"}),
    ("torchtitan", {"tp": 1, "pp": 1, "dp": 1, "dp_shard": 1, "ep": 1, "zero_stage": 2}, {"zero_stage_needs_shards"}),
    ("torchtitan", {"ep": 1, "dp": 8, "dp_shard": 8, "tp": 1}, {"enough_micro_batches"}),
    ("torchtitan", {"ep": 16}, {"ep_divides_shards"}),
    ("torchtitan", {"pp": 1, "pipeline_schedule": "interleaved"}, {"schedule_needs_pp"}),
    ("megatron-lm", {"sequence_parallel": False}, {"moe_with_tp"}),
    ("megatron-lm", {"tp": 1, "dp": 4}, {"sequence_parallel_needs_tp"}),
    ("megatron-lm", {"dp": 1, "ep": 1, "pp": 2}, {"optimizer_needs_dp"}),
    ("megatron-lm", {"ep": 4}, {"ep_divides_dp"}),
    ("megatron-lm", {"tp": 1, "pp": 1, "dp": 16, "micro_batch_size": 8, "sequence_parallel": False}, {"global_batch"}),
    ("megatron-lm", {"pp": 8}, {"devices"}),
    ("maxtext", {"ep": 8, "dp_shard": 4}, {"ep_divides_shards"}),
    ("maxtext", {"tp": 1, "sequence_parallel": True}, {"sequence_parallel_needs_tp"}),
    ("vllm", {"ep": 2}, {"expert_group"}),
    ("vllm", {"ep": 1}, {"replicas_share_experts"}),
    ("vllm", {"max_num_seqs": 128}, {"waves"}),
    ("vllm", {"tp": 16, "dp": 2}, {"devices", "expert_group"}),
    ("sglang", {"ep": 2}, {"expert_group"}),
    ("sglang", {"max_num_seqs": 128}, {"waves"}),
]  # fmt: skip


@pytest.mark.parametrize("framework", BASE)
def test_the_base_configs_of_these_tests_are_valid(framework: str) -> None:
    what, where, space = problem(WORKLOAD[framework], "perlmutter-a100-16", framework)

    assert space.violations(BASE[framework], what.policy_input(), where.policy_input()) == []


@pytest.mark.parametrize(("framework", "change", "rules"), BROKEN)
def test_each_rule_of_a_framework_names_itself(framework: str, change: dict[str, Any], rules: set[str]) -> None:
    what, where, space = problem(WORKLOAD[framework], "perlmutter-a100-16", framework)

    found = space.violations({**BASE[framework], **change}, what.policy_input(), where.policy_input())

    assert {violation.rule for violation in found} == rules
    assert all(violation.message for violation in found)


def test_maxtexts_pipeline_rules_name_themselves() -> None:
    what, where, space = problem("wl4", "tpu-v6e-16", "maxtext")
    config = {**BASE["maxtext"], "cp": 1, "tp": 1, "pp": 2, "dp": 4, "dp_shard": 4}
    del config["ep"]

    def rules(**change: Any) -> list[str]:
        found = space.violations({**config, **change}, what.policy_input(), where.policy_input())
        return [violation.rule for violation in found]

    assert rules() == ["pipeline_micro_batches"]
    assert rules(dp=2, dp_shard=2, pipeline_schedule="interleaved", tp=2) == []
    assert rules(pp=1, pipeline_schedule="interleaved") == ["schedule_needs_pp"]


@pytest.mark.parametrize(
    ("workload", "degrees"),
    [("wl4", {1, 2, 4, 8, 16}), ("wl6", {1, 2, 13}), ("wl7", {1})],  # 32 layers; 27 and 60 less one dense layer each
)
def test_maxtexts_pipeline_takes_the_layers_after_the_dense_ones(workload: str, degrees: set[int]) -> None:
    """Source: the default of `pipeline_parallel_layers` in MaxText's configs/types.py, for DeepSeek's decoder block."""
    what = replace(catalogue.workload(workload), batch_size=208)
    where = catalogue.environment("h100-104")
    adapter = frameworks.get("maxtext")
    (pp,) = (knob for knob in adapter.default_space(what, where).knobs if knob.key == "pp")

    assert set(pp.choices) <= degrees and {1, max(degrees & {1, 2, 13})} <= set(pp.choices)
    layers = what.model.num_layers - what.model.first_dense_layers
    for degree in (2, 3, 4, 5, 13):
        config = {"tp": 1, "pp": degree, "dp": 1, "micro_batch_size": 1}
        if layers % degree:
            with pytest.raises(BadInputError, match=f"{layers} layers over pp={degree}"):
                adapter.plan(config, what, where)
        else:
            assert adapter.plan(config, what, where).pp == degree


def test_megatrons_pipeline_rules_name_themselves() -> None:
    what, where, space = problem("wl4", "perlmutter-a100-16", "megatron-lm")
    config = {**BASE["megatron-lm"], "cp": 1, "pp": 4, "dp": 1, "zero_stage": 0, "pipeline_schedule": "interleaved"}
    del config["ep"]

    def rules(**change: Any) -> list[str]:
        found = space.violations({**config, **change}, what.policy_input(), where.policy_input())
        return [violation.rule for violation in found]

    assert rules() == []
    assert rules(micro_batch_size=2) == ["interleaved_rounds"]
    assert rules(pp=1) == ["interleaved_needs_pp"]
    assert rules(pp=8, tp=1, sequence_parallel=False) == ["interleaved_rounds"]


def test_spaces_are_found_by_name_and_unknown_names_are_refused() -> None:
    assert {"torchtitan", "megatron-lm", "maxtext", "vllm", "sglang"} <= set(templates.names())
    with pytest.raises(BadInputError, match="'nope'") as caught:
        templates.build("nope", {}, {})
    assert "torchtitan" in caught.value.hint


def test_a_template_without_a_suitable_choice_says_which_knob() -> None:
    template = {"name": "t", "knobs": [{"key": "tp", "type": "int", "choices": [2, 4], "keep": "value > 8"}]}

    with pytest.raises(BadInputError, match="knob tp"):
        templates.specialise(template, {}, {})


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("tp * cp * pp", "tp * pp"),
        ("cp * tp", "tp"),
        ("cp > 1 or tp == 1", "1 > 1 or tp == 1"),
        ("dp // cp * tp", "dp // 1 * tp"),
        ("ep * tp * pp", "3 * tp * pp"),
    ],
)
def test_absent_knobs_fold_to_their_value(text: str, folded: str) -> None:
    assert templates.fold(text, {"cp": 1, "ep": 3}) == folded


def test_unset_facts_withhold_nothing() -> None:
    space = templates.build("torchtitan", {"batch_size": 8, "phase": "training"}, {})

    assert space.knob("tp").choices == (1, 2, 4, 8, 16)
    assert "ep" in space.keys


def test_odd_batches_and_odd_machines_still_have_a_space() -> None:
    for batch, count in ((1, 3), (6, 256), (7, 1000), (100, 8)):
        what = replace(catalogue.workload("wl5"), batch_size=batch)
        where = replace(catalogue.environment("h100-8"), total_xpus=count)
        for framework in ("torchtitan", "megatron-lm", "maxtext"):
            space = frameworks.get(framework).default_space(what, where)
            assert next(space.valid_configs(what.policy_input(), where.policy_input()), None) is not None


def test_the_moe_studys_space_is_its_matrix_of_192_configs_a_model() -> None:
    what, where = catalogue.workload("moe-prefill-v4-flash"), catalogue.environment("h100-32")
    space = frameworks.named_space("moe-study", what, where)

    configs = list(space.valid_configs(what.policy_input(), where.policy_input()))

    # 6 topologies, TP/EP of 2/16, 4/8, 8/4 and 16/2, 2 algorithms, 4 network modes
    assert len(configs) == 6 * 4 * 2 * 4
    assert {(config["tp"], config["ep"]) for config in configs} == {(2, 16), (4, 8), (8, 4), (16, 2)}
    plans = [frameworks.get("command").plan(config, what, where) for config in configs]
    assert {(plan.world_size, plan.expert_placement) for plan in plans} == {(32, "own_axis")}


@pytest.mark.parametrize("framework", ["torchtitan", "megatron-lm", "maxtext", "vllm", "sglang"])
def test_every_constraint_says_what_it_means(framework: str) -> None:
    for rule in templates.read(framework)["constraints"]:
        assert set(rule) <= {"name", "expression", "message", "when", "source"}
        assert rule["message"]


def torchtitan_accepts(c: Config, batch: int, seq: int, layers: int, kv_heads: int, gpus: int, node: int) -> bool:
    """TorchTitan's rules for a mixture of experts in bf16, written down once more."""
    world = c["tp"] * c["pp"] * c["dp"]
    if world > gpus or (world > node and world % node) or c["dp"] % c["dp_shard"]:
        return False
    if c["dp_shard"] < c["dp"] and c["dp_shard"] < node:
        return False
    per_rank, rest = divmod(batch, c["dp"] * c["micro_batch_size"])
    if rest or kv_heads % c["tp"] or seq % (2 * c["tp"]):
        return False
    if c["dp_shard"] == 1 and (c["tp"] * c["pp"] > 1 or c["zero_stage"] == 2):
        return False
    if c["ep"] > 1 and (c["ep"] % c["tp"] or (c["dp_shard"] * c["tp"]) % c["ep"]):
        return False
    if c["pp"] == 1:
        return c["pipeline_schedule"] == "1f1b"
    if per_rank < c["pp"]:
        return False
    return c["pipeline_schedule"] == "1f1b" or (per_rank % c["pp"] == 0 and 2 * c["pp"] <= layers)


def megatron_accepts(c: Config, batch: int, seq: int, layers: int, kv_heads: int, gpus: int, node: int) -> bool:
    """Megatron-LM's rules for a mixture of experts, written down once more (experts are 1408 wide)."""
    world = c["tp"] * c["pp"] * c["dp"]
    if world > gpus or (world > node and world % node) or c["dp"] % c["ep"]:
        return False
    per_rank, rest = divmod(batch, c["dp"] * c["micro_batch_size"])
    if rest or (kv_heads % c["tp"] and c["tp"] % kv_heads) or 1408 % c["tp"]:
        return False
    if c["sequence_parallel"] != (c["tp"] > 1) or seq % c["tp"]:
        return False
    if c["zero_stage"] == 1 and c["dp"] == 1:
        return False
    if c["pipeline_schedule"] == "1f1b":
        return True
    return c["pp"] > 1 and per_rank % c["pp"] == 0 and layers % c["pp"] == 0 and layers // c["pp"] > 1


@pytest.mark.parametrize(
    ("framework", "accepts"), [("torchtitan", torchtitan_accepts), ("megatron-lm", megatron_accepts)]
)
def test_the_rules_agree_with_their_second_statement(framework: str, accepts: Any) -> None:
    what, where, space = problem("wl6", "perlmutter-a100-32", framework)
    facts = {"batch": 64, "seq": 2048, "layers": 27, "kv_heads": 16, "gpus": 32, "node": 4}
    draw = random.Random(7)
    mixed = [{knob.key: draw.choice(knob.choices) for knob in space.knobs} for _ in range(3000)]
    valid = some_valid("wl6", "perlmutter-a100-32", framework)

    for config in mixed + valid:
        broken = space.violations(config, what.policy_input(), where.policy_input())
        assert (broken == []) is accepts(config, **facts), (config, [str(rule) for rule in broken])


def test_where_a_framework_does_not_run_it_has_no_space_but_a_reason() -> None:
    for framework in ("torchtitan", "megatron-lm", "maxtext", "vllm", "sglang"):
        adapter = frameworks.get(framework)
        for name in catalogue.workload_names():
            for place in ("perlmutter-a100-16", "tpu-v6e-8"):
                what, where = catalogue.workload(name), catalogue.environment(place)
                reason = adapter.supports(what, where)
                if reason is None:
                    assert adapter.default_space(what, where).knobs
                    continue
                with pytest.raises(BadInputError, match="infeasible") as caught:
                    adapter.default_space(what, where)
                assert reason in caught.value.message
