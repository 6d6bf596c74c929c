"""Measuring: a trace that breaks a reader is a trial without a score, not the end of the search."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from ccl_search import measuring
from ccl_search.problem import Problem
from metrics.traces import load
from runs import catalogue
from runs.plan import ParallelPlan
from runs.trial import FailureClass
from tests.metrics.build import Kineto


class About:
    """What `measure` reads of a problem."""

    workload = catalogue.workload("wl4")
    environment = catalogue.environment("perlmutter-a100-16")


PLAN = ParallelPlan(framework="torchtitan")


def measured(folder: Path) -> measuring.Measurement:
    trace = Kineto(rank=0)
    trace.step(0, 0, 1000)
    trace.kernel("gemm", 0, 900, launch=1)
    trace.write(folder / "rank0.json")
    return measuring.measure(folder, cast("Problem", About()), PLAN)


def test_a_fault_of_a_reader_is_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise OverflowError("Python int too large")

    monkeypatch.setattr(load, "load", broken)
    found = measured(tmp_path)

    assert found.failure is FailureClass.METRIC_ERROR
    assert found.evidence == "the trace could not be read: OverflowError: Python int too large"


def test_a_fault_of_one_tool_costs_its_own_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metrics.tools import mfu

    def broken(*_: object) -> object:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(mfu, "compute", broken)
    found = measured(tmp_path)

    assert found.values["mfu"].reason == "the tool failed: ZeroDivisionError: oh"
    assert found.values["avg_step_time"].value == pytest.approx(1e-6)
