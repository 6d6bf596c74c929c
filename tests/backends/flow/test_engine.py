"""The event loop on graphs small enough to schedule by hand, with a network whose times are plain arithmetic."""

from __future__ import annotations

import pytest

from backends.compute import System
from backends.flow.engine import EventLoop
from backends.flow.timing import SegmentTimer, fold_all, fold_compute, repeat
from backends.graph import COMPUTE, ExecutionGraph, RankClass, Segment
from backends.layout import Layout
from backends.ops import Communication, Compute
from backends.timeline import Piece, TaskRun
from runs import catalogue
from runs.errors import CclSearchError
from runs.plan import ParallelPlan
from runs.workload import Workload
from tests.backends.doubles import FlatNetwork, perlmutter

MS = 1_000_000
SYSTEM = System.of(perlmutter(), ParallelPlan("test", cuda_graph=True))
WORKLOAD = Workload("test", catalogue.model("llama-3.1-8b"), "training", 1, 1024)


def busy(milliseconds: float) -> Compute:
    """A copy kernel that takes about that long."""
    bandwidth = 1555e9 * 0.8
    return Compute("busy", "copy", 0.0, (milliseconds * 1e-3 - 2e-6) * bandwidth)


def message(milliseconds: float, axis: str = "tp", name: str = "message") -> Communication:
    return Communication(name, "all_reduce", axis, milliseconds * 1e6)  # type: ignore[arg-type]


def empty(classes: int = 1, **fields: int) -> ExecutionGraph:
    plan = ParallelPlan("test", **fields)  # type: ignore[arg-type]
    layout = Layout(plan)
    return ExecutionGraph(WORKLOAD, plan, layout, tuple(RankClass(i, i, layout.stage_ranks(i)) for i in range(classes)))


def run(graph: ExecutionGraph) -> dict[str, TaskRun]:
    timer = SegmentTimer(graph, SYSTEM, FlatNetwork())
    return {run.task.label: run for run in EventLoop(graph, timer).run()}


def test_tasks_of_a_stream_follow_each_other() -> None:
    graph = empty()
    for name in ("a", "b"):
        graph.add((0,), COMPUTE, (Segment(name, (busy(2),)),), name, "forward")
    done = run(graph)
    assert done["b"].start == done["a"].end == pytest.approx(2 * MS, rel=1e-3)


def test_streams_overlap_unless_they_depend() -> None:
    graph = empty(tp=2)
    a = graph.add((0,), COMPUTE, (Segment("a", (busy(2),)),), "a", "forward")
    graph.add((0,), "side", (Segment("b", (message(3),)),), "b", "communication")
    graph.add((0,), "other", (Segment("c", (busy(1),)),), "c", "forward", deps=(a,))
    done = run(graph)
    assert done["b"].start == 0
    assert done["b"].end == 3 * MS
    assert done["c"].start == done["a"].end


def test_a_collective_inside_a_segment_holds_up_what_follows() -> None:
    graph = empty(tp=2)
    graph.add((0,), COMPUTE, (Segment("s", (busy(1), message(4), busy(1))),), "s", "forward")
    run_of = run(graph)["s"]
    starts = [piece.start for piece in run_of.runs[0].pieces]
    assert starts == pytest.approx([0, 1 * MS, 5 * MS], abs=2000)
    assert run_of.end == pytest.approx(6 * MS, rel=1e-3)


def test_two_collectives_on_one_link_take_twice_as_long() -> None:
    graph = empty(tp=2)
    graph.add((0,), "one", (Segment("x", (message(4),)),), "x", "communication")
    graph.add((0,), "two", (Segment("y", (message(4),)),), "y", "communication")
    done = run(graph)
    assert done["x"].end == done["y"].end == pytest.approx(8 * MS, rel=1e-6)


def test_a_late_collective_slows_the_rest_of_the_early_one() -> None:
    # x alone for 2 of its 4 ms; then both at half speed: x ends at 2 + 4 = 6, y has 2 ms left and ends at 8
    graph = empty(tp=2)
    wait = graph.add((0,), COMPUTE, (Segment("w", (busy(2),)),), "w", "forward")
    graph.add((0,), "one", (Segment("x", (message(4),)),), "x", "communication")
    graph.add((0,), "two", (Segment("y", (message(4),)),), "y", "communication", deps=(wait,))
    done = run(graph)
    assert done["x"].end == pytest.approx(6 * MS, rel=1e-3)
    assert done["y"].end == pytest.approx(8 * MS, rel=1e-3)


def test_a_blocking_collective_contends_with_a_background_one() -> None:
    # compute 1, then a 2 ms collective at half speed beside the 10 ms background one: 1 + 4 + 1
    graph = empty(tp=2)
    graph.add((0,), "side", (Segment("x", (message(10),)),), "x", "communication")
    graph.add((0,), COMPUTE, (Segment("s", (busy(1), message(2), busy(1))),), "s", "forward")
    done = run(graph)
    assert done["s"].end == pytest.approx(6 * MS, rel=1e-3)
    assert done["x"].end == pytest.approx(12 * MS, rel=1e-3)
    assert [p.duration for p in done["s"].runs[0].pieces] == pytest.approx([1 * MS, 4 * MS, 1 * MS], rel=5e-3)


def test_collectives_on_different_devices_do_not_touch() -> None:
    graph = empty(classes=2, tp=2, pp=2)
    graph.add((0,), "side", (Segment("x", (message(4),)),), "x", "communication")
    graph.add((1,), "side", (Segment("y", (message(4),)),), "y", "communication")
    done = run(graph)
    assert done["x"].end == done["y"].end == 4 * MS


def test_a_task_of_two_classes_waits_for_both() -> None:
    graph = empty(classes=2, pp=2)
    early = graph.add((0,), COMPUTE, (Segment("a", (busy(1),)),), "a", "forward")
    late = graph.add((1,), COMPUTE, (Segment("b", (busy(5),)),), "b", "forward")
    graph.add(
        (0, 1), "world", (Segment("c", (message(1, "world"),)),), "c", "communication", deps=(early, late),
        groups=((0, 1),),
    )  # fmt: skip
    done = run(graph)
    assert done["c"].start == done["b"].end


def test_a_cycle_is_an_error_not_a_fast_step() -> None:
    graph = empty()
    a = graph.add((0,), COMPUTE, (Segment("a", (busy(1),)),), "a", "forward")
    b = graph.add((0,), COMPUTE, (Segment("b", (busy(1),)),), "b", "forward")
    graph.tasks[a].deps.append(b)
    with pytest.raises(CclSearchError, match="deadlocks at 'a'"):
        run(graph)


def piece(name: str, start: int, duration: int, size: float = 0.0) -> Piece:
    if size:
        return Piece(name, "communication", start, duration, Communication(name, "all_reduce", "tp", size))
    return Piece(name, "compute", start, duration, Compute(name, "gemm", 1.0, 1.0), blocks=duration)


def test_folding_keeps_busy_time_and_bytes() -> None:
    pieces = [piece("a", 0, 5), piece("b", 10, 7), piece("m", 20, 3, 100.0), piece("c", 30, 2), piece("n", 40, 4, 50.0)]
    block, whole = fold_compute(pieces), fold_all(pieces)
    assert [(p.what, p.start, p.duration) for p in block] == [
        ("compute", 0, 12), ("communication", 20, 3), ("compute", 30, 2), ("communication", 40, 4),
    ]  # fmt: skip
    assert [(p.what, p.start, p.duration) for p in whole] == [("compute", 0, 14), ("communication", 14, 7)]
    assert isinstance(whole[1].item, Communication)
    assert whole[1].item.nbytes == 150.0
    assert whole[0].item.name == "b"  # the longest kernel names the fold


def test_repetition_multiplies_time_and_bytes() -> None:
    folded = repeat([piece("a", 0, 5), piece("m", 5, 3, 100.0)], 4)
    assert [(p.start, p.duration, p.count) for p in folded] == [(0, 20, 4), (20, 12, 4)]
    assert isinstance(folded[1].item, Communication)
    assert folded[1].item.nbytes == 400.0
