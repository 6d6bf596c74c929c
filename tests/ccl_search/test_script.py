"""`ccl-search script`: the exact script of a config, for this machine or a target; nothing is started or written."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccl_search.loop.suggestion import Suggestion
from ccl_search.loop.trial_files import job_for
from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.proposers.base import Proposal
from ccl_search.scripting import complete, parse_config
from ccl_search.settings import SearchSettings
from launchers.shell.layout import attempt_of, required_command
from launchers.shell.outcome import common_handle, common_provenance
from runs import catalogue
from runs.card import card_from, to_yaml
from runs.errors import BadInputError
from runs.space import ConfigSpace
from tests.ccl_search.cli import Cli

TARGET: dict[str, Any] = {
    "name": "cluster",
    "kind": "slurm",
    "setup": "module load nccl",
    "env": {"SITE": "it's here"},
    "launch_prefix": ["shifter", "--image=nvcr.io/nvidia/pytorch:25.03-py3"],
    "framework": {"torchtitan": {"version": "0.1.0", "path": "/opt/titan", "tokenizer": "/data/tok"}},
    "slurm": {"account": "m0", "qos": "regular", "constraint": "gpu", "gpus_per_node": 4},
}


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """WL4 on 16 A100 under TorchTitan 0.2.2, as a card."""
    where = catalogue.with_framework(catalogue.environment("perlmutter-a100-16"), "torchtitan", "0.2.2")
    path = tmp_path / "card.yaml"
    path.write_text(to_yaml(card_from(catalogue.workload("wl4"), where)))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A Slurm cluster that nobody has."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(TARGET))
    return path


def test_the_script_of_this_machine_goes_to_stdout_and_nothing_is_left(cli: Cli, card: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))

    result = cli("script", "--card", str(card), "--config", "tp=2,dp=2")

    assert result.code == 0 and result.out.startswith("#!/bin/bash\n")
    assert "--parallelism.tensor_parallel_degree 2" in result.out and "--nproc-per-node=4" in result.out
    assert "torchtitan 0.2.2 (toml-0.2.1) on local: 1 node of 4 devices" in result.err
    assert "expects trace files: 4 of profile_traces/**/rank*_trace.json*" in result.err
    assert "note: micro_batch_size is not given: micro_batch_size=1" in result.err
    assert subprocess.run(["bash", "-n"], input=result.out, text=True, check=False).returncode == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_the_script_of_a_cluster_asks_for_its_nodes_and_sets_it_up(cli: Cli, card: Path, target: Path) -> None:
    result = cli("script", "--card", str(card), "--config", "tp=4,dp=4", "--target", str(target), "--time-limit", "600")

    lines = result.out.splitlines()
    options = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert {"--nodes=4", "--ntasks-per-node=1", "--account=m0", "--qos=regular", "--constraint=gpu"} <= options
    assert "module load nccl" in lines and "--no-requeue" in options
    command = next(line for line in lines if line.startswith("exec shifter"))
    assert "torchrun --nnodes=4 --nproc-per-node=4" in command and "--model.tokenizer_path /data/tok" in command
    assert "--training.global_batch_size 4" in command and "cd -- /opt/titan || exit 1" in lines
    assert "torchtitan 0.1.0 (toml-0.1) on cluster: 4 nodes of 4 devices" in result.err


def test_the_named_version_stands_over_target_and_card(cli: Cli, card: Path, target: Path) -> None:
    document = cli(
        "script", "--card", str(card), "--config", "tp=4,dp=4", "--target", str(target), "--framework-version", "0.3.0",
        "--json",
    ).document  # fmt: skip

    assert document["framework"] == "torchtitan 0.3.0 (python-0.3)"
    assert document["argv"][-4:] == ["--module", "ccl_torchtitan", "--config", "ccl_search"]
    assert "config.parallelism.tensor_parallel_degree = 4" in document["files"]["ccl_torchtitan.py"]
    assert (document["nodes"], document["xpus_per_node"], document["trace_count"]) == (4, 4, 16)
    assert document["config"]["dp_shard"] == 4 and document["script"].startswith("#!/bin/bash")


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ("tp=3", "choice_tp"),
        ("tp=4,dp=4,foo=1", "unknown_knob"),
        ("tp=4,dp=4,micro_batch_size=2", "global_batch"),
        ("tp=8,dp=4", "devices"),
        ("tp=4,dp=4,dp_shard=1", "mixed_precision"),
        ("tp", "is no NAME=VALUE"),
        ("tp=1,tp=2", "twice"),
        ("tp=4,dp=4,compile=1", "choice_compile"),
    ],
)
def test_a_bad_config_is_refused_with_the_rule_it_breaks(cli: Cli, card: Path, config: str, rule: str) -> None:
    result = cli("script", "--card", str(card), "--config", config)

    assert (result.code, result.out) == (2, "")
    assert rule in result.err.splitlines()[0] and result.err.splitlines()[1].startswith("hint:")


def test_what_one_machine_cannot_hold_needs_a_target(cli: Cli, card: Path) -> None:
    result = cli("script", "--card", str(card), "--config", "tp=4,dp=4")

    assert result.code == 2 and "4 machines of 4 devices" in result.err


SERVED = "tp=4,max_num_seqs=32,max_num_batched_tokens=8192"


@pytest.mark.parametrize(
    ("workload", "where", "config", "word"),
    [
        ("wl5", ("--framework", "megatron-lm"), "tp=2,dp=2,sequence_parallel=true", "pretrain_gpt.py"),
        ("wl4", ("--environment", "tpu-v6e-8"), "tp=4,dp=2", "maxtext.trainers.pre_train.train"),
        ("wl1", (), SERVED, "bench latency --model Qwen/Qwen3-4B"),
        ("wl1", ("--framework", "sglang"), SERVED, "ccl_sglang.py"),
    ],
)
def test_every_framework_has_a_script(cli: Cli, workload: str, where: tuple[str, ...], config: str, word: str) -> None:
    result = cli("script", "--workload", workload, *where, "--config", config)

    assert result.code == 0 and word in result.out, result.err


def test_a_target_that_is_simulated_runs_no_script(cli: Cli, card: Path, tmp_path: Path) -> None:
    path = tmp_path / "dry.yaml"
    path.write_text("name: dry\nkind: dry-run\n")

    result = cli("script", "--card", str(card), "--config", "tp=4,dp=4", "--target", str(path))

    assert result.code == 2 and "runs no script" in result.err


def test_knobs_that_are_not_given_ask_for_nothing() -> None:
    problem = resolve(ProblemSource(workload="wl5", framework="megatron-lm"))

    config, notes = complete(problem.space, parse_config("tp=2, dp=8 ,sequence_parallel=TRUE"))

    assert (config["tp"], config["dp"], config["sequence_parallel"]) == (2, 8, True)
    assert (config["pp"], config["zero_stage"], config["activation_checkpointing"]) == (1, 0, "none")
    assert (config["collective_algorithm"], config["pipeline_schedule"]) == ("auto", "1f1b")
    assert len(notes) == len(problem.space.keys) - 3


@pytest.mark.parametrize("framework", ["vllm", "sglang"])
@pytest.mark.parametrize(("dp", "sequences"), [("1", 128), ("2", 64), ("4", 32)])
def test_caps_of_a_server_that_are_not_given_hold_nothing_back(framework: str, dp: str, sequences: int) -> None:
    serving = resolve(ProblemSource(workload="wl1", framework=framework))

    config, _ = complete(serving.space, {"tp": "4", "dp": dp})

    assert (serving.workload.batch_size, config["max_num_seqs"]) == (128, sequences)  # dp * sequences is the batch
    assert config.get("max_num_batched_tokens", 32768) == 32768
    assert not serving.space.violations(config, serving.workload_input, serving.environment_input)


def test_a_knob_without_a_choice_that_asks_for_nothing_is_to_be_given() -> None:
    space = ConfigSpace.from_dict({"name": "own", "world_size": "1", "knobs": [{"key": "blocks", "choices": [7, 9]}]})

    with pytest.raises(BadInputError, match="missing_knob: blocks"):
        complete(space, {})


def suggested(problem: Problem, **given: str) -> Suggestion:
    """A config as a proposer suggests it."""
    config, _ = complete(problem.space, given)
    plan = problem.framework.plan(config, problem.workload, problem.environment)
    return Suggestion(1, 1, config, plan, Proposal("def generate_config(workload, environment):\n    return {}\n"))


def test_a_trial_on_a_real_target_keeps_its_command(tmp_path: Path) -> None:
    problem = resolve(ProblemSource(workload="wl4"))
    suggestion = suggested(problem, tp="4", dp="4")
    dry = job_for(problem, SearchSettings(), "run", tmp_path / "dry", suggestion)
    told = {"framework": {"version": "0.2.2"}}
    real = job_for(problem, SearchSettings(target="cluster", extras=told), "run", tmp_path / "real", suggestion)

    assert dry.command is None
    assert real.command is not None and real.command.framework_version == "torchtitan 0.2.2 (toml-0.2.1)"
    assert real.command.world_size == 16


def test_the_steps_that_a_program_is_told_are_part_of_the_record(tmp_path: Path) -> None:
    problem = resolve(ProblemSource(workload="wl4"))
    suggestion = suggested(problem, tp="2", dp="2")
    job = job_for(problem, SearchSettings(target="local"), "run", tmp_path / "trial", suggestion)

    handle = common_handle("local", attempt_of(job), required_command(job))
    facts = common_provenance(handle, None)

    assert (facts["warmup_steps"], facts["recorded_steps"]) == (5, 5)
    assert facts["argv"][0] == "torchrun" and facts["framework_version"].startswith("torchtitan")
