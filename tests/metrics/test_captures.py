"""Traces of one step each, in folders of their own, as TorchTitan 0.1 leaves them: one trace of several steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metrics import compute
from metrics.traces.load import load
from runs import catalogue
from runs.plan import ParallelPlan
from tests.metrics.build import ALLREDUCE, Kineto, collective

MS = 1_000_000
RANKS = 4
LENGTHS = [10 * MS, 11 * MS, 12 * MS, 13 * MS, 14 * MS]
FREQ = 6
"""TorchTitan 0.1 records one step in six: it waits for two and warms up for three."""


def step(trace: Kineto, number: int, start: int, length: int) -> None:
    """Two kernels, an all-reduce that the second one covers half of, and a copy; ranks differ a little."""
    rank = trace.rank or 0
    trace.step(number, start, length)
    trace.kernel(f"gemm{number // FREQ % 2}", start + 1000, 3 * MS + rank * 100_000, launch=start + 100)
    trace.kernel("ampere_bf16_gemm", start + 4 * MS, 2 * MS, launch=start + 200)
    facts = collective("allreduce", 1 << 20, 1 << 20, RANKS, group=f"g{number // FREQ % 2}")
    trace.kernel(ALLREDUCE, start + 5 * MS, 2 * MS, launch=start + 300, stream=20, **facts)
    trace.copy("Memcpy DtoH (Device -> Pinned)", start + 8 * MS, MS // 2, 4096, launch=start + 400)


def starts(gap: int) -> list[int]:
    """When the recorded steps begin, `gap` after the end of the one before."""
    found, at = [], 7 * MS
    for length in LENGTHS:
        found.append(at)
        at += length + gap
    return found


def in_captures(folder: Path, chosen: Callable[[int, int], bool] = lambda rank, capture: True) -> Path:
    """The files of TorchTitan 0.1: iteration_6, iteration_12, ... with a file of each rank."""
    for capture, (start, length) in enumerate(zip(starts(5 * 12 * MS), LENGTHS, strict=True)):
        for rank in range(RANKS):
            if chosen(rank, capture):
                trace = Kineto(rank=rank, world=RANKS)
                step(trace, FREQ * (capture + 1) - 1, start, length)
                name = f"iteration_{FREQ * (capture + 1)}/rank{rank}_trace.json"
                trace.write(folder / "profile_traces" / name)
    return folder


def at_once(folder: Path) -> Path:
    """The same five steps recorded one after another, in one file a rank."""
    for rank in range(RANKS):
        trace = Kineto(rank=rank, world=RANKS)
        for capture, (start, length) in enumerate(zip(starts(0), LENGTHS, strict=True)):
            step(trace, FREQ * (capture + 1) - 1, start, length)
        trace.write(folder / "profile_traces" / "iteration_30" / f"rank{rank}_trace.json")
    return folder


def values(folder: Path) -> dict[str, float | str | None]:
    workload = catalogue.workload("wl4")
    plan = ParallelPlan("torchtitan", dp_replicate=RANKS, micro_batch_size=1)
    found = compute(folder, workload=workload, environment=catalogue.environment("perlmutter-a100-4"), plan=plan)
    assert not [text for value in found.values() for text in value.warnings]
    return {name: value.value if value.reason is None else value.reason for name, value in found.items()}


def test_every_metric_is_that_of_steps_in_a_row(tmp_path: Path) -> None:
    captures, whole = values(in_captures(tmp_path / "a")), values(at_once(tmp_path / "b"))

    assert captures.keys() == whole.keys()
    for name, value in whole.items():
        if isinstance(value, float):
            assert captures[name] == pytest.approx(value, rel=1e-12), name
        else:
            assert captures[name] == value, name
    assert sum(isinstance(value, float) for value in whole.values()) > 20


def test_the_step_time_is_that_of_the_inner_steps(tmp_path: Path) -> None:
    assert values(in_captures(tmp_path))["avg_step_time"] == pytest.approx(0.012)


def test_names_and_groups_stay_with_their_kernels(tmp_path: Path) -> None:
    lanes = load(in_captures(tmp_path)).lanes

    assert [lane.rank for lane in lanes] == list(range(RANKS))
    for lane in lanes:
        names = [lane.names[i] for i in lane.kernels.name.tolist()]
        assert names[0::3] == ["gemm0", "gemm1", "gemm0", "gemm1", "gemm0"]
        groups = [lane.groups[i] for i in lane.collectives.group.tolist()]
        assert groups == [f"g{n} [0, 1, 2, 3]" for n in (0, 1, 0, 1, 0)]
        assert [names[i] for i in lane.collectives.kernel.tolist()] == [ALLREDUCE] * 5
        assert ((lane.steps.start[:, None] <= lane.kernels.launch.reshape(5, 3)).all()) and lane.launches
        assert lane.steps.start[1:].tolist() == lane.steps.end[:-1].tolist()
        assert (lane.steps.end - lane.steps.start).tolist() == LENGTHS
        assert lane.facts["captures"] == 5


def test_a_rank_that_lacks_a_capture_is_told_of(tmp_path: Path) -> None:
    found = load(in_captures(tmp_path, lambda rank, capture: (rank, capture) != (2, 3)))

    assert found.warnings == ["rank 2 has 4 of 5 captures"]
    assert [len(lane.steps) for lane in found.lanes] == [5, 5, 4, 5]


def test_longer_captures_stand_for_themselves(tmp_path: Path) -> None:
    for capture in (1, 2):
        trace = Kineto(rank=0, world=1)
        for number in range(3):
            step(trace, number, (capture * 100 + number * 10) * MS, 10 * MS)
        trace.write(tmp_path / f"iteration_{capture}" / "rank0_trace.json")
    found = load(tmp_path)

    assert len(found.lanes) == 1 and len(found.lanes[0].steps) == 3
    assert "rank 0 is there twice" in found.warnings[0]


def test_a_capture_that_begins_before_the_other_ended_is_a_copy(tmp_path: Path) -> None:
    for capture in (1, 2):
        trace = Kineto(rank=0, world=1)
        step(trace, 0, 5 * MS * capture, 10 * MS)
        trace.write(tmp_path / f"iteration_{capture}" / "rank0_trace.json")
    found = load(tmp_path)

    assert len(found.lanes) == 1 and len(found.lanes[0].steps) == 1
    assert "rank 0 is there twice" in found.warnings[0]
