"""Runs without the profiler, and the lines by which frameworks log their steps."""

from __future__ import annotations

from typing import Any

import pytest

from launchers import frameworks
from launchers.frameworks.commands.eras import read
from launchers.frameworks.commands.profiling import StepLog, Unprofiled
from launchers.frameworks.deployment import Deployment
from runs import catalogue
from runs.errors import BadInputError
from tests.launchers.frameworks.commands import command, training

BATCH_32 = training(batch_size=32, seq_len=1024)
CONFIG = {"tp": 2, "dp": 4, "micro_batch_size": 1}
TITAN_LINE = (
    "[rank0]:[titan] 2026-02-01 10:00:{second:02d},123 - root - INFO - step: {step:2}  loss: 12.2507  "
    "grad_norm:  1.2345  memory: 21.50GiB(54.43%)  tps: {tps:,}  tflops: 120.10  mfu: 38.49%"
)


def unprofiled(framework: str, version: str, workload: Any = BATCH_32, **settings: Any) -> Unprofiled:
    where = catalogue.with_framework(catalogue.environment("h100-8"), framework, version)
    adapter = frameworks.get(framework)
    config = CONFIG if workload.is_training else {"tp": 2, "dp": 4, "max_num_seqs": 64}
    plan = adapter.plan(config, workload, where)
    return adapter.unprofiled(Deployment(config, plan, workload, where, {"path": "/src", **settings}))


def versions(framework: str) -> list[str]:
    """One version or day in each era."""
    return [str(era.versions[0] or era.dates[0]) for era in read(framework).eras]


TRAINING = [(name, version) for name in ("torchtitan", "megatron-lm", "maxtext") for version in versions(name)]


@pytest.mark.parametrize(("framework", "version"), TRAINING)
def test_without_its_profiler_a_run_is_the_same_otherwise(framework: str, version: str) -> None:
    made = command(framework, CONFIG, version, BATCH_32, "h100-8")
    plain = unprofiled(framework, version).command

    switches = {"torchtitan": ("enable_profiling",), "megatron-lm": ("--profile", "--use-pytorch-profiler"),
                "maxtext": ("profiler=xplane",)}[framework]  # fmt: skip
    words = [word for word in made.argv if any(word == s or word.endswith("." + s) for s in switches)]
    lines = [line for text in made.files.values() for line in text.splitlines() if "enable_profiling" in line]
    assert words or lines
    assert [word for word in made.argv if word not in words] == list(plain.argv)
    assert not any("enable_profiling = True" in text for text in plain.files.values())
    assert (made.env, made.nodes, made.steps) == (plain.env, plain.nodes, plain.steps)
    assert (plain.trace_globs, plain.trace_count) == ((), None)


def test_torchtitans_steps_follow_from_its_tokens_a_second() -> None:
    """32 sequences of 1024 tokens on 8 devices are 4096 tokens a device; at 8192 a second a step takes 0.5 s."""
    log = unprofiled("torchtitan", "0.2.2").log
    rates = {step: 8192 if step <= 5 else 4096 for step in range(1, 11)}
    lines = [TITAN_LINE.format(step=step, second=step, tps=rate) for step, rate in rates.items()]
    noise = ["step by step", "validate step: 10  loss: 1.0  memory: 1.00GiB(1.00%)  tps: 1", "tps: 7"]

    steps = log.steps([[*noise, *lines], lines])

    assert steps == [0.5] * 5 + [1.0] * 5
    assert log.recorded == (6, 7, 8, 9, 10) and log.length(steps, log.recorded) == 1.0
    assert log.length(steps[:9], log.recorded) is None


def test_the_steps_that_torchtitan_01_records_lie_apart() -> None:
    assert unprofiled("torchtitan", "0.1.0").log.recorded == (6, 12, 18, 24, 30)


def test_megatrons_line() -> None:
    line = (
        " [2025-08-01 07:19:37] iteration        {step}/      12 | consumed samples:          128 | elapsed time per "
        "iteration (ms): {ms} | throughput per GPU (TFLOP/s/GPU): 80.2 | learning rate: 6.9E-08 | lm loss: 1.0E+01 |"
    )
    log = unprofiled("megatron-lm", "0.12.0").log

    assert log.steps([[line.format(step=n, ms=100.5 + n) for n in (1, 2, 3)]]) == pytest.approx(
        [0.1015, 0.1025, 0.1035]
    )
    assert log.recorded == (6, 7, 8, 9, 10)


def test_maxtexts_line_counts_from_zero() -> None:
    line = "I0706 16:50:26.2 140 metric_logger.py:214] completed step: {step}, seconds: {s:.3f}, TFLOP/s/device: 37.6"
    log = unprofiled("maxtext", "2026-08-01").log
    steps = log.steps([[line.format(step=n, s=0.1 * n) for n in range(11)]])

    assert len(steps) == 11 and log.length(steps, log.recorded) == pytest.approx(0.7)  # the median of steps 5 to 9


def test_sglangs_own_run_has_batches_with_and_without() -> None:
    log = unprofiled("sglang", "0.5.10", catalogue.workload("wl1")).log
    lines = [
        "warm-up batch: 9.0000 s",
        "warm-up batch: 2.0000 s",
        "warm-up batch: 2.2000 s",
        "profiled batch: 3.1000 s",
    ]
    steps = log.steps([lines])

    assert log.length(steps, log.recorded) == 3.1
    assert log.length(steps, log.plain) == pytest.approx(2.1)


@pytest.mark.parametrize("settings", [{}, {"step_log": r"Avg latency: (?P<seconds>[\d.]+)"}])
def test_vllm_tells_no_time_under_its_profiler(settings: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match="vllm does not log how long a step takes"):
        unprofiled("vllm", "0.19.0", catalogue.workload("wl1"), **settings)


def test_a_program_of_ones_own_is_told_and_says_how_it_logs() -> None:
    told = {"command": ["prog", "--profile={profile}"], "path": None}
    plain = unprofiled("command", "", step_log=r"took (?P<ms>\d+)", **told)

    assert plain.command.argv == ("prog", "--profile=false")
    assert plain.command.env["CCL_SEARCH_PROFILE"] == "false"
    assert plain.log.steps([["step took 250 ms", "step took 500 ms"]]) == [0.25, 0.5]
    with pytest.raises(BadInputError, match="does not log") as caught:
        unprofiled("command", "", **told)
    assert "step_log" in caught.value.hint


@pytest.mark.parametrize(("pattern", "why"), [("took (", "no regular expression"), (r"took \d+", "has no group")])
def test_a_wrong_step_log_is_refused_with_its_name(pattern: str, why: str) -> None:
    with pytest.raises(BadInputError, match=f"step_log.*{why}"):
        unprofiled("command", "", command=["prog"], step_log=pattern)


def test_a_rate_of_nothing_is_no_division_by_zero() -> None:
    assert StepLog(r"tps: (?P<tps>[\d,]+)", (1,), 100.0).steps([["tps: 0"]]) == [100.0]
