"""Every valid config of a space: its words are accepted by the program, and run the card's batch on its devices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers import frameworks
from launchers.frameworks.commands.maxtext import per_device
from launchers.frameworks.commands.megatron_lm import uneven_stages
from launchers.frameworks.deployment import Deployment
from launchers.shell.command import Command
from runs import catalogue
from runs.errors import BadInputError
from tests.launchers.frameworks import mirrors

STRIDE = 13


def commands(
    framework: str, workload: str, environment: str, version: str
) -> Iterator[tuple[dict[str, Any], Any, Command]]:
    """Every thirteenth valid config of the framework's own space, with its plan and its command."""
    what, where = catalogue.workload(workload), catalogue.environment(environment)
    adapter = frameworks.get(framework)
    space = adapter.default_space(what, where)
    found = 0
    for number, config in enumerate(space.valid_configs(what.policy_input(), where.policy_input())):
        if number % STRIDE == 0:
            plan = adapter.plan(config, what, where)
            deployment = Deployment(config, plan, what, where, {"version": version, "path": "/x"})
            yield config, plan, adapter.command(deployment)
            found += 1
    assert found > 3


@pytest.mark.parametrize(
    ("version", "workload"),
    [("0.1.0", "wl4"), ("0.2.0", "wl5"), ("0.2.2", "wl4"), ("2026-03-15", "wl4"), ("2026-05-15", "wl4")],
)
def test_torchtitan_accepts_every_config(version: str, workload: str) -> None:
    what, parser = catalogue.workload(workload), mirrors.torchtitan(version)
    for config, plan, made in commands("torchtitan", workload, "perlmutter-a100-16", version):
        words = made.argv[made.argv.index("torchtitan.train") + 1 :]
        told = vars(mirrors.parse(parser, words))
        degrees = [told[f"parallelism.{name}_degree"] for name in
                   ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "pipeline_parallel",
                    "context_parallel")]  # fmt: skip
        assert math.prod(degrees) == made.world_size == plan.world_size
        dp = degrees[0] * degrees[1]
        local = told["training.local_batch_size"]
        assert told["training.global_batch_size"] == what.batch_size
        assert what.batch_size % (local * dp) == 0
        if degrees[3] > 1:
            assert local * dp == what.batch_size
            assert told["parallelism.pipeline_parallel_microbatch_size"] == config["micro_batch_size"]
        else:
            assert local == config["micro_batch_size"]
        freq, steps = told[next(name for name in told if name.endswith("profile_freq"))], told["training.steps"]
        active = next((told[name] for name in told if name.endswith("profiler_active")), 1)
        assert steps // freq * active == 5 and freq - active >= 5


@pytest.mark.parametrize("workload", ["wl4", "wl5"])
def test_megatron_accepts_every_config(workload: str) -> None:
    what, parser = catalogue.workload(workload), mirrors.megatron()
    for config, plan, made in commands("megatron-lm", workload, "perlmutter-a100-16", "0.12.0"):
        told = mirrors.parse(parser, made.argv[made.argv.index("pretrain_gpt.py") + 1 :])
        model_parallel = told.tensor_model_parallel_size * told.pipeline_model_parallel_size
        model_parallel *= told.context_parallel_size or 1
        assert made.world_size % model_parallel == 0
        dp = made.world_size // model_parallel
        accumulation, rest = divmod(told.global_batch_size, dp * told.micro_batch_size)
        assert (dp, told.global_batch_size, rest) == (config["dp"], what.batch_size, 0)
        assert accumulation == plan.num_microbatches
        assert told.profile_step_start >= 5 and told.profile_step_end - told.profile_step_start >= 5
        assert told.train_iters > told.profile_step_end
        assert told.profile_ranks == list(range(made.world_size))
        assert sum(_stage_layers(told)) == what.model.num_layers


def _stage_layers(told: Any) -> list[int]:
    """Layers of every stage, as transformer_block.py of Megatron-LM hands them out."""
    layers, pp = told.num_layers, told.pipeline_model_parallel_size
    first, last = told.decoder_first_pipeline_num_layers, told.decoder_last_pipeline_num_layers
    if first is None:
        assert layers % pp == 0
        return [layers // pp] * pp
    left = layers - first - last
    assert left % max(pp - 2, 1) == 0 and (pp > 2 or left == 0)
    return [first, *[left // max(pp - 2, 1)] * (pp - 2), last]


@pytest.mark.parametrize(("workload", "environment"), [("wl5", "tpu-v6e-8"), ("wl5", "h100-16")])
def test_maxtexts_mesh_and_batch_multiply(workload: str, environment: str) -> None:
    what = catalogue.workload(workload)
    refused = 0
    iterator = _lenient("maxtext", workload, environment, "0.2.5")
    for config, made in iterator:
        if made is None:
            refused += 1
            continue
        told = dict(word.split("=", 1) for word in made.argv if "=" in word)
        inside = math.prod(int(value) for name, value in told.items() if name.startswith("ici_"))
        between = math.prod(int(value) for name, value in told.items() if name.startswith("dcn_"))
        assert inside * between == made.world_size
        assert between == (made.nodes if environment.startswith("h100") else 1)
        at_once = int(float(told["per_device_batch_size"]) * made.world_size)
        assert at_once * int(told["gradient_accumulation_steps"]) == what.batch_size
        if config["pp"] > 1:
            assert at_once % int(told["num_pipeline_microbatches"]) == 0
    assert refused < 5, "only splits that MaxText's own pipeline refuses"


def _lenient(
    framework: str, workload: str, environment: str, version: str
) -> Iterator[tuple[dict[str, Any], Command | None]]:
    what, where = catalogue.workload(workload), catalogue.environment(environment)
    adapter = frameworks.get(framework)
    space = adapter.default_space(what, where)
    for number, config in enumerate(space.valid_configs(what.policy_input(), where.policy_input())):
        if number % STRIDE == 0:
            plan = adapter.plan(config, what, where)
            try:
                yield config, adapter.command(Deployment(config, plan, what, where, {"version": version}))
            except BadInputError as error:
                assert "pipeline cannot split" in error.message
                yield config, None


@pytest.mark.parametrize(("framework", "version"), [("vllm", "0.19.0"), ("sglang", "0.5.10")])
@pytest.mark.parametrize("workload", ["wl1", "wl3"])
def test_replicas_share_the_whole_batch(framework: str, version: str, workload: str) -> None:
    what = catalogue.workload(workload)
    for config, plan, made in commands(framework, workload, "perlmutter-a100-16", version):
        words = list(made.argv)
        batch = int(words[words.index("--batch-size") + 1])
        if framework == "vllm":
            engines = config["dp"]
        else:
            local = int(words[words.index("--dp-size") + 1]) if "--dp-size" in words else 1
            engines = config["dp"] // local
        assert batch * engines == what.batch_size
        assert made.trace_count == made.world_size == plan.world_size


@given(st.integers(1, 200), st.integers(1, 4096))
def test_per_device_batches_multiply_back(devices: int, sequences: int) -> None:
    assert int(devices * per_device(sequences, devices)) == sequences


@given(st.integers(2, 16), st.integers(0, 100))
def test_uneven_stages_are_full_and_as_short_as_can_be(pp: int, more: int) -> None:
    layers = pp + more
    first, last = uneven_stages(layers, pp)
    left = layers - first - last
    middle = [left // (pp - 2)] * (pp - 2) if pp > 2 else []

    assert first >= 1 and last >= 1 and sum([first, *middle, last]) == layers and all(each >= 1 for each in middle)
    longest = max([first, *middle, last])
    for each in range(1, longest) if pp > 2 else ():
        rest = layers - (pp - 2) * each
        shorter = max(each, math.ceil(rest / 2)) if rest >= 2 else longest
        assert shorter >= longest
