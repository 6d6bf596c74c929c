"""What `benchmarks/calibration.py` takes from the recorded scripts, and what it says noise allows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.calibration import ceiling, explicit, measured, noise, unseen
from ccl_search.calibrating.measurements import Measurement
from runs import catalogue
from runs.plan import ParallelPlan
from tests.reference import shared_path

ROW = {"framework": "megatron-lm", "model": "deepseek-v2-lite", "tp": "4"}


def _measured(*seconds: float) -> Measurement:
    workload, place = catalogue.workload("wl4"), catalogue.environment("perlmutter-a100-16")
    return Measurement("stack", workload, place, ParallelPlan("megatron-lm"), seconds)


def test_the_table_is_padded_as_megatron_does() -> None:
    assert explicit(ROW)["vocab_size"] == "140800"  # 11 times 3200 * 4
    assert explicit({**ROW, "tp": "2"})["vocab_size"] == "134400"  # 21 times 3200 * 2
    llama = explicit({**ROW, "model": "llama-3.1-8b"})
    assert (llama["vocab_size"], llama["tied_embeddings"]) == ("128512", "true")  # 251 times 128 * 4
    assert explicit({**ROW, "model": "llama-3.1-8b"}, 64128)["vocab_size"] == "64512"  # 126 times 128 * 4


def test_the_noise_of_one_measurement_is_pooled_over_repetitions() -> None:
    stacks = {"a": [_measured(1.0, math.exp(0.2)), _measured(7.0)], "b": [_measured(3.0, 3.0)]}
    assert noise(stacks) == pytest.approx(0.1)  # deviations of 0.1 twice, two degrees of freedom


def test_noise_hides_the_order_of_close_times_only() -> None:
    apart, close = [_measured(2.0**k) for k in range(8)], [_measured(1 + 0.01 * k) for k in range(8)]
    assert ceiling(apart, 0.03)[:2] == (1.0, 1.0)
    mean, low, error = ceiling(close, 0.03)
    assert low < mean < 0.8
    assert error == pytest.approx(0.03 * 0.6745, rel=0.1)  # the median of |normal| is 0.6745 deviations
    assert ceiling([replace(one, seconds=one.seconds * 9) for one in close], 0.03)[0] > mean


@pytest.mark.shared
def test_what_is_unseen_is_in_no_stack() -> None:
    known = measured(shared_path("data/recorded_trials.csv"))
    others = unseen(shared_path("data/recorded_trials_from_cards.csv"), known)
    assert [len(configs) for configs in known.values()] == [24, 12, 12]
    plans = {stack: [config.plan for config in configs] for stack, configs in known.items()}
    found = [(stack, config.plan) for stack, configs in others.items() for config in configs]
    assert sorted((plan.tp, plan.dp, plan.pp, plan.micro_batch_size) for _, plan in found) == [
        (4, 1, 3, 1), (4, 1, 4, 4), (4, 2, 2, 2), (4, 4, 1, 1), (16, 1, 1, 1),
    ]  # fmt: skip
    assert not any(plan in plans[stack] for stack, plan in found)
