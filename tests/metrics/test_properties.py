"""Laws that hold for any trace: parts sum to the step, the clock's origin and the split into files do not matter."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from metrics import compute, registry
from runs.metric import MetricValue
from tests.metrics.build import ALLREDUCE, SENDRECV, Kineto, collective

US = 1_000
PARTS = (
    "step_compute_time",
    "step_exposed_comm_time",
    "step_overlapped_comm_time",
    "step_memory_time",
    "step_idle_time",
)
work = st.tuples(
    st.sampled_from(["gemm", "fused_moe_kernel", ALLREDUCE, SENDRECV, "Memcpy DtoD (Device)", "Memset (Device)"]),
    st.integers(0, 4000), st.integers(0, 900), st.integers(-1, 3500), st.integers(1, 9),
)  # fmt: skip
steps = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 200)), min_size=1, max_size=5)


def trace_of(pieces: list[tuple[str, int, int, int, int]], spans: list[tuple[int, int]], base: int = 0) -> Kineto:
    """A rank with these device events (name, start, duration, launch or -1, size) and steps (duration, gap), in us."""
    trace, at = Kineto(rank=0, world=1), 0
    for number, (length, gap) in enumerate(spans):
        trace.step(number, base + at * US, length * US)
        at += length + gap
    for name, start, duration, launch, size in pieces:
        called = base + launch * US if launch >= 0 else None
        if name.startswith("Mem"):
            trace.copy(name, base + start * US, duration * US, size * 1000, called)
        else:
            args = collective("allreduce", size, size, 4) if name == ALLREDUCE else {"blocks per SM": size / 4}
            trace.kernel(name, base + start * US, duration * US, called, stream=7 + size, **args)
    return trace


def values(*traces: Kineto, rule: str = "sound") -> dict[str, MetricValue]:
    with tempfile.TemporaryDirectory() as folder:
        for number, trace in enumerate(traces):
            trace.write(Path(folder, f"rank0_part{number}.json"), "compact")
        return compute(folder, rule=rule, metrics=registry.BUNDLED)  # type: ignore[arg-type]


def check_same(a: dict[str, MetricValue], b: dict[str, MetricValue]) -> None:
    for name, one in a.items():
        other = b[name]
        if one.value is None or other.value is None:
            assert (one.value, one.reason) == (other.value, other.reason), name
        else:
            assert math.isclose(one.value, other.value, rel_tol=1e-9, abs_tol=1e-15), name


@settings(max_examples=30, deadline=None)
@given(st.lists(work, min_size=1, max_size=12), steps, st.sampled_from(["sound", "paper"]))
def test_parts_sum_to_the_step(
    pieces: list[tuple[str, int, int, int, int]], spans: list[tuple[int, int]], rule: str
) -> None:
    found = values(trace_of(pieces, spans), rule=rule)
    parts = [found[name].value for name in PARTS]
    assert all(part is not None and part >= 0 for part in parts)
    assert math.isclose(sum(part or 0.0 for part in parts), found["avg_step_time"].value or 0.0, rel_tol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(work, min_size=1, max_size=12), steps, st.integers(-(10**16), 1_800_000_000_000_000_000))
def test_the_clocks_origin_changes_nothing(
    pieces: list[tuple[str, int, int, int, int]], spans: list[tuple[int, int]], base: int
) -> None:
    check_same(values(trace_of(pieces, spans)), values(trace_of(pieces, spans, base)))


@settings(max_examples=25, deadline=None)
@given(st.lists(work, min_size=2, max_size=12), steps, st.randoms())
def test_splitting_a_rank_over_two_files_changes_nothing(
    pieces: list[tuple[str, int, int, int, int]], spans: list[tuple[int, int]], random: Random
) -> None:
    pieces = list({(p[0], p[1], p[2]): p for p in pieces}.values())
    whole = trace_of(pieces, spans)
    halves = [replace(whole, events=[]), replace(whole, events=[])]
    for event in whole.events:
        halves[random.randrange(2)].events.append(event)
    check_same(values(whole), values(*halves))


@settings(max_examples=20, deadline=None)
@given(st.lists(work, min_size=1, max_size=10), steps)
def test_shares_lie_between_nothing_and_all(
    pieces: list[tuple[str, int, int, int, int]], spans: list[tuple[int, int]]
) -> None:
    for rule in ("sound", "paper"):
        for name, found in values(trace_of(pieces, spans), rule=rule).items():
            assert found.value is None or found.value >= 0, name
            if found.unit == "%" and found.value is not None:
                assert found.value <= 100 + 1e-9, name
