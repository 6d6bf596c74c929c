"""Replicas of a serving engine that each count their ranks from 0, against values by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics import compute
from metrics.facts import CardFacts
from metrics.traces.load import load
from runs.metric import MetricValue
from tests.metrics.build import ALLREDUCE, Kineto, collective

MS = 1_000_000
TPOT = (10 * MS, 14 * MS)
FACTS = CardFacts(phase="inference", dp=2, total_xpus=4)


def scheduler(replica: int, rank: int = 0, world: int = 2, start: int = 0, process: int | None = None) -> Kineto:
    """One rank of a replica: a prefill iteration and five decode iterations, with an all-reduce in each."""
    trace = Kineto(rank=rank, world=world)
    time, length = 1_000 * MS + start, TPOT[replica]
    for number in range(6):
        name = "step[EXTEND bs=4 toks=400]" if number == 0 else "step[DECODE bs=4]"
        trace.event("user_annotation", name, time, length)
        device = 2 * replica + rank
        trace.kernel("gemm", time + MS, 5 * MS, launch=time + 1000, device=device)
        size = collective("allreduce", 10, 10, 2, Seq=number)
        # the ranks of a replica differ by a fifth, the replicas by much more
        trace.kernel(ALLREDUCE, time + 6 * MS, (4 - rank * replica * 2) * MS, launch=time + 2000, device=device, **size)
        time += length
    for event in trace.events:
        if event["cat"] in ("user_annotation", "cuda_runtime"):
            event["pid"] = process or 1000 + 10 * replica + rank
    return trace


def values(folder: Path) -> dict[str, MetricValue]:
    return compute(folder, facts=FACTS, detail=True)


def both(folder: Path, names: str) -> Path:
    for replica in (0, 1):
        for rank in (0, 1):
            scheduler(replica, rank, start=replica * MS // 3).write(folder / names.format(rank=rank, replica=replica))
    return folder


@pytest.mark.parametrize("names", ["7.5-TP-{rank}-DP-{replica}.trace.json.gz", "node-{replica}/9.1-TP-{rank}.json"])
def test_replicas_are_ranks_of_their_own(tmp_path: Path, names: str) -> None:
    found = load(both(tmp_path, names))

    assert [(lane.rank, lane.world_size) for lane in found.lanes] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert found.warnings == ["ranks are there in 2 processes at once: taken as 2 replicas of 2 rank(s)"]


def test_values_of_replicas_by_hand(tmp_path: Path) -> None:
    found = values(both(tmp_path, "7.5-TP-{rank}-DP-{replica}.trace.json.gz"))

    assert found["tpot"].value == pytest.approx(0.012) and found["ttft"].value == pytest.approx(0.012)
    # 24 tokens of a replica in 6 iterations: the mean rate of the two, times two
    assert found["tokens_per_s"].value == pytest.approx(24 / 0.060 + 24 / 0.084)
    # collectives are compared within their replica: no spread in one, (4 - 2) / 4 in the other
    assert found["straggler"].value == pytest.approx((0.0 + 0.5) / 2)
    assert (found["straggler"].detail or {})["collectives"] == 12


def test_collectives_without_a_group_stay_in_their_replica(tmp_path: Path) -> None:
    both(tmp_path, "7.5-TP-{rank}-DP-{replica}.json")
    for path in tmp_path.iterdir():
        path.write_text(path.read_text().replace('"Process Group Name"', '"no name"'))

    assert values(tmp_path)["straggler"].value == pytest.approx(0.25)


def test_two_runs_one_after_the_other_are_no_replicas(tmp_path: Path) -> None:
    scheduler(0, world=1).write(tmp_path / "a-TP-0.json")
    scheduler(1, world=1, start=5_000 * MS).write(tmp_path / "b-TP-0.json")
    found = load(tmp_path)

    assert [lane.source for lane in found.lanes] == ["a-TP-0.json"]
    assert found.warnings == ["rank 0 is there twice: a-TP-0.json was used, b-TP-0.json left out"]


def test_what_iterations_did_stands_over_the_loop_around_them(tmp_path: Path) -> None:
    trace = scheduler(0, world=1)
    for event in [e for e in trace.events if e["cat"] == "user_annotation"]:
        name = "sglang/srt/managers/scheduler.py(2345): run_batch"
        trace.event("python_function", name, event["ts"] - 1000, event["dur"] + 2000)
    trace.write(tmp_path / "1-TP-0.json")
    found = compute(tmp_path, facts=CardFacts(phase="inference"), metrics=["ttft", "tpot", "avg_step_time"])

    assert [found[name].value for name in found] == [pytest.approx(0.010)] * 3


def test_the_loop_alone_still_gives_the_time_of_an_iteration(tmp_path: Path) -> None:
    trace = Kineto(rank=0)
    for number in range(4):
        trace.event("python_function", "scheduler.py(9): run_batch", number * 20 * MS, 10 * MS)
        trace.kernel("gemm", number * 20 * MS + 1000, MS, launch=number * 20 * MS + 500)
    trace.write(tmp_path / "1-TP-0.json")
    found = compute(tmp_path, facts=CardFacts(phase="inference"), metrics=["avg_step_time", "tpot"])

    assert found["avg_step_time"].value == pytest.approx(0.010)
    assert found["tpot"].reason == "inference trace without serving spans that tell prefill from decode"
