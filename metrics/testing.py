"""A contract suite for metric tools, to be subclassed by whoever writes one.

    from metrics.testing import MetricToolContract
    import my_package.my_metric

    class TestMyMetric(MetricToolContract):
        tool = my_package.my_metric

Every test builds its own traces in memory; nothing is read from disk. Needs pytest only to be collected.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import fields
from typing import ClassVar

import numpy as np

from metrics.facts import CardFacts
from metrics.tool import MetricTool, Options
from metrics.traces.timeline import Collectives, Copies, Kernels, Lane, Marks, Op, Steps, Timeline
from runs.metric import MetricSpec, MetricValue


def sample_lane(rank: int = 0, shift: int = 0) -> Lane:
    """A lane of three steps of 1 ms: two GEMMs, an all-reduce that one of them hides in part, and a copy, in each
    step."""
    at = np.arange(3, dtype=np.int64) * 1_000_000 + shift
    start = np.concatenate([at + 100_000, at + 400_000, at + 450_000])
    end = np.concatenate([at + 400_000, at + 500_000, at + 750_000])
    name = np.repeat(np.arange(3, dtype=np.int64), 3)
    comm = (name == 2).astype(np.int64)
    nothing = np.full(3, -1, np.int64)
    return Lane(
        "kineto", f"rank{rank}.json", rank, "device 0", ranks=(rank,), world_size=2, device_name="sample", sm_count=132,
        launches=True, step_kind="ProfilerStep", names=["gemm_a", "gemm_b", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"],
        groups=["0 [0, 1]"],
        kernels=Kernels(
            start, end, name, name * 0 + 7, np.tile(at + 50_000, 3), np.where(comm == 1, 0.1, 2.0), comm, comm * 0
        ),
        collectives=Collectives(
            np.arange(6, 9, dtype=np.int64), nothing * 0 + int(Op.ALLREDUCE), nothing * 0 + 2_000_000,
            nothing * 0 + 2_000_000, nothing * 0 + 2, nothing * 0, np.arange(3, dtype=np.int64),
        ),
        copies=Copies(at + 800_000, at + 900_000, nothing * 0 + 1, nothing * 0 + 1_000_000, at + 60_000),
        steps=Steps(at, at + 1_000_000, nothing * 0, nothing, nothing, nothing, nothing),
    )  # fmt: skip


def sample_trace(lanes: int = 2, shift: int = 0) -> Timeline:
    """A Kineto timeline of some ranks."""
    return Timeline("sample", "kineto", [sample_lane(rank, shift) for rank in range(lanes)])


def sample_facts() -> CardFacts:
    """Facts of a small dense model in training on two devices."""
    return CardFacts(
        phase="training", moe=False, batch_size=8, seq_len=128, num_params=1_000_000, num_params_embedding=100_000,
        num_layers=2, num_heads=4, head_dim=16, device="sample", peak_bf16_flops=1e12, total_xpus=2, dp=2, pp=1,
    )  # fmt: skip


def empty_traces() -> list[Timeline]:
    """Timelines without device work, without steps, and without anything, of each family."""
    bare = sample_lane()
    bare.steps, bare.kernels, bare.collectives = Steps(), Kernels(), Collectives()
    bare.copies, bare.marks, bare.names = Copies(), Marks(), []
    stepless = sample_lane()
    stepless.steps = Steps()
    out = []
    for family in ("kineto", "xla", "nsys"):
        for lanes in ([], [copy.deepcopy(bare)], [copy.deepcopy(stepless)]):
            for lane in lanes:
                lane.family = family
                lane.why = {"step": "no steps here"} if family == "nsys" else {}
            out.append(Timeline("empty", family, lanes))
    return out


class MetricToolContract:
    """What every metric tool keeps. Set `tool`; set `facts` when the tool needs more than `sample_facts()`."""

    tool: ClassVar[MetricTool]
    facts: ClassVar[CardFacts] = sample_facts()

    def answer(self, trace: Timeline, options: Options | None = None, facts: CardFacts | None = None) -> MetricValue:
        """The tool's answer."""
        return self.tool.compute(self.facts if facts is None else facts, trace, options or Options())

    def test_spec_names_the_tool(self) -> None:
        """A spec with a snake_case name, a version and a unit."""
        spec = self.tool.SPEC
        assert isinstance(spec, MetricSpec)
        assert re.fullmatch(r"[a-z][a-z0-9_]*", spec.name), spec.name
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", spec.version), f"{spec.version} is no version such as 1.0.0"
        assert spec.unit

    def test_documents_itself(self) -> None:
        """`metrics explain` shows the docstring."""
        assert (self.tool.__doc__ or "").strip(), "the tool needs a docstring with its definition and source"

    def test_value_or_reason(self) -> None:
        """A finite number, or a reason; never both, never a sentinel for nothing found."""
        value = self.answer(sample_trace())
        self.check(value)

    def test_answers_traces_without_content(self) -> None:
        """A trace with nothing to measure gives a reason or an honest value, and raises nothing."""
        for trace in empty_traces():
            for facts in (self.facts, CardFacts()):
                self.check(self.answer(trace, facts=facts))

    def test_is_deterministic(self) -> None:
        """The same trace gives the same value."""
        assert self.answer(sample_trace()) == self.answer(sample_trace())

    def test_knows_both_rules(self) -> None:
        """Both attribution rules give an answer."""
        for rule in ("sound", "paper"):
            self.check(self.answer(sample_trace(), Options(rule, None, True)))

    def test_clock_origin_is_irrelevant(self) -> None:
        """Shifting every clock by the same amount changes nothing."""
        near, far = self.answer(sample_trace()), self.answer(sample_trace(shift=7_000_000_000_123))
        assert (near.value is None) == (far.value is None)
        if near.value is not None and far.value is not None:
            assert math.isclose(near.value, far.value, rel_tol=1e-9)

    def test_leaves_the_trace_alone(self) -> None:
        """A tool reads columns and changes none."""
        trace = sample_trace()
        before = copy.deepcopy(trace)
        self.answer(trace)
        for lane, old in zip(trace.lanes, before.lanes, strict=True):
            for table in ("kernels", "collectives", "copies", "steps", "marks", "samples"):
                for field in fields(getattr(lane, table)):
                    now, then = (getattr(getattr(x, table), field.name) for x in (lane, old))
                    assert np.array_equal(now, then, equal_nan=now.dtype.kind == "f"), f"{table}.{field.name} changed"

    def check(self, value: MetricValue) -> None:
        """What every answer keeps."""
        spec = self.tool.SPEC
        assert isinstance(value, MetricValue)
        assert (value.name, value.version, value.unit) == (spec.name, spec.version, spec.unit)
        assert (value.value is None) == bool(value.reason), "a value has no reason, no value has one"
        assert value.value is None or math.isfinite(value.value)
