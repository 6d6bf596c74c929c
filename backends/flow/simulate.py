"""`simulate`: an execution graph on a system and a network, as the built-in `flow` backend runs it."""

from __future__ import annotations

from backends.compute import System
from backends.flow.accounting import link_bytes, rank_timelines
from backends.flow.engine import EventLoop, runs_of
from backends.flow.timing import Network, SegmentTimer, ns
from backends.graph import ExecutionGraph
from backends.memory import MemoryEstimate
from backends.timeline import Detail, RankTimeline, SimulationResult
from runs.errors import CclSearchError

BACKEND = "flow"
VERSION = "2"
KERNEL_LIMIT = 40_000
"""Operations per trace file set (recorded steps included) above which kernels are folded, to keep files moderate."""
RECORDED_STEPS = 5


def simulate(
    graph: ExecutionGraph, system: System, network: Network, memory: MemoryEstimate | None = None,
    detail: Detail | None = None,
) -> SimulationResult:  # fmt: skip
    """Run `graph` once.

    `detail` fixes how far kernels are folded (None: as far as a moderate trace needs); times do not depend on it
    beyond where launch gaps fall.

    Raises:
        BadInputError: the network cannot carry a collective, or would carry it in no time.
        CclSearchError: the step took no time, deadlocked, or lost the communication its plan asks for.
    """
    timer = SegmentTimer(graph, system, network, detail or _detail(graph))
    runs = EventLoop(graph, timer).run()
    timelines = rank_timelines(graph, runs, ns(system.calibration.step_overhead_s))
    slowest = max(timelines, key=lambda t: (t.figures.wall_s, t.figures.compute_s + t.figures.exposed_s))
    _check(graph, slowest)
    figures = slowest.figures
    ttft, tpot = latencies(graph, timelines)
    return SimulationResult(
        graph, timelines, figures.wall_s, figures.compute_s, figures.comm_s, figures.exposed_s, figures.bubble_s,
        memory, BACKEND, VERSION, system.calibration.name, timer.detail, ttft, tpot, link_bytes(graph, timer),
        system.device.name, system.multiprocessors,
    )  # fmt: skip


def _detail(graph: ExecutionGraph) -> Detail:
    """The finest detail whose trace stays moderate."""
    steps = RECORDED_STEPS if graph.steps == 1 else 1
    kernels = steps * sum(runs_of(task.segments) for task in graph.tasks)
    communications = steps * sum(4 * len(task.segments) + 1 for task in graph.tasks)
    if kernels <= KERNEL_LIMIT:
        return "kernel"
    return "block" if communications <= KERNEL_LIMIT else "pass"


def _check(graph: ExecutionGraph, slowest: RankTimeline) -> None:
    figures = slowest.figures
    if figures.wall_s <= 0 or figures.compute_s <= 0:
        raise CclSearchError("the simulated step took no time", "the workload or the device has sizes of zero")
    if graph.has_communication and graph.plan.world_size > 1 and figures.comm_s <= 0 and _expects(graph):
        raise CclSearchError("the simulated step lost its communication", "report this plan; it must communicate")


def _expects(graph: ExecutionGraph) -> bool:
    """Whether ranks of one replica have to talk (replicas that only serve requests do not)."""
    plan = graph.plan
    return graph.workload.is_training or plan.tp > 1 or plan.pp > 1 or plan.cp > 1


def latencies(graph: ExecutionGraph, timelines: tuple[RankTimeline, ...]) -> tuple[float | None, float | None]:
    """In seconds, None for training: time to first token (all prefill iterations, last stage) and mean decode step."""
    if graph.workload.is_training:
        return None, None
    last = timelines[-1]
    phases = {run.task.step: run.task.phase for run in last.runs if run.task.phase in ("prefill", "decode")}
    prefill = [span for step, span in enumerate(last.spans) if phases.get(step) == "prefill"]
    decode = [span for step, span in enumerate(last.spans) if phases.get(step) == "decode"]
    ttft = prefill[-1][1] * 1e-9 if prefill else None
    return ttft, (sum(b - a for a, b in decode) / len(decode) * 1e-9 if decode else None)
