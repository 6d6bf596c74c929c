"""The roofline: never above the peaks, shapes and launch costs matter, calibration scales."""

from __future__ import annotations

import pytest

from backends.calibration import UNCALIBRATED, Calibration
from backends.compute import System, parameters
from backends.ops import Compute, Transfer
from runs import catalogue
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from tests.backends.doubles import perlmutter


def system(environment: Environment | None = None, calibration: Calibration = UNCALIBRATED, **plan: bool) -> System:
    return System.of(environment or perlmutter(), ParallelPlan("test", **plan), "bf16", calibration)  # type: ignore[arg-type]


def gemm(m: float, n: float, k: float) -> Compute:
    return Compute("g", "gemm", 2 * m * n * k, 2 * (m * n + n * k + m * k), (m, n, k))


@pytest.mark.parametrize("size", [16, 100, 1000, 4096, 16384])
def test_no_product_beats_the_peak(size: int) -> None:
    op = gemm(size, size, size)
    seconds = system().kernel(op).seconds
    assert seconds >= op.flops / 312e12
    assert seconds >= op.nbytes / 1555e9


def test_large_products_reach_most_of_the_ceiling_and_small_ones_do_not() -> None:
    def share(size: int) -> float:
        op = gemm(size, size, size)
        return op.flops / 312e12 / system().kernel(op).seconds

    assert 0.7 < share(8192) <= 0.8
    assert share(512) < 0.5


def test_one_row_too_many_needs_another_wave() -> None:
    # 108 multiprocessors: 108 tiles of 128 x 256 run at once, a 109th waits for a second wave
    full, over = gemm(128 * 108, 256, 8192), gemm(128 * 108 + 1, 256, 8192)
    assert system().kernel(over).seconds > 1.02 * system().kernel(full).seconds


def test_copying_kernels_run_at_a_share_of_the_memory_bandwidth() -> None:
    seconds = system().kernel(Compute("copy", "copy", 0.0, 1e9)).seconds
    assert seconds == pytest.approx(1e9 / (1555e9 * parameters()["classes"]["copy"]["bandwidth"]), rel=0.05)


def test_small_kernels_wait_for_their_launch_unless_captured() -> None:
    op = Compute("tiny", "elementwise", 0.0, 1024.0, launches=3)
    eager, compiled, graph = (system(**mode).kernel(op) for mode in ({}, {"compile": True}, {"cuda_graph": True}))
    assert eager.slot == pytest.approx(3 * 20e-6)
    assert eager.slot > compiled.slot > graph.slot
    assert graph.seconds <= graph.slot


def test_a_tpu_is_never_launch_bound() -> None:
    kernel = system(catalogue.environment("tpu-v6e-16")).kernel(Compute("tiny", "elementwise", 0.0, 1024.0))
    assert kernel.slot == kernel.seconds


def test_fp32_runs_at_its_own_peak() -> None:
    op = gemm(8192, 8192, 8192)
    slow = System.of(perlmutter(), ParallelPlan("test"), "fp32").kernel(op).seconds
    assert slow > op.flops / 19.5e12


def test_calibration_scales_a_class_and_only_that() -> None:
    fitted = Calibration("half", compute={"gemm": 0.5}, launch=2.0)
    op = gemm(8192, 8192, 8192)
    assert system(calibration=fitted).kernel(op).seconds == pytest.approx(2 * system().kernel(op).seconds, rel=1e-3)
    other = Compute("n", "norm", 0.0, 1e9)
    assert system(calibration=fitted).kernel(other).seconds == system().kernel(other).seconds
    tiny = Compute("tiny", "elementwise", 0.0, 1.0)
    assert system(calibration=fitted).kernel(tiny).slot == 2 * system().kernel(tiny).slot


def test_calibration_scales_links() -> None:
    fitted = Calibration("slow", bandwidth={"inter_node": 0.25}, latency={"intra_node": 3.0})
    scaled = fitted.apply(perlmutter())
    assert scaled.inter_node_gbps == 50
    assert scaled.intra_node_gbps == 2400
    assert scaled.intra_node_latency_us == 3.0


@pytest.mark.parametrize("bad", [{"compute": {"gemm": 0.0}}, {"launch": float("nan")}, {"step_overhead_s": -1.0}])
def test_senseless_calibrations_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match="no positive finite number"):
        Calibration("bad", **bad)  # type: ignore[arg-type]


def test_calibration_survives_json() -> None:
    fitted = Calibration("x", compute={"gemm": 0.9}, step_overhead_s=0.01, source="run 1")
    assert Calibration.from_dict(fitted.as_dict()) == fitted


def test_copies_to_the_host_run_at_pcie_speed() -> None:
    assert system().transfer(Transfer("c", "DtoH", 24e9)) == pytest.approx(1.0)


def test_every_class_of_the_data_file_has_a_share_of_both_peaks() -> None:
    for name, entry in parameters()["classes"].items():
        assert 0 < entry["flops"] <= 1, name
        assert 0 < entry["bandwidth"] <= 1, name
