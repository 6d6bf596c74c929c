"""Nsight Systems exports against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics import compute
from metrics.traces.load import load
from metrics.traces.nsys import pid_of
from runs.errors import BadInputError
from runs.metric import MetricValue
from tests.metrics.build import SENDRECV, global_pid, nsys

US = 1_000
A, B = global_pid(1701), global_pid(1702)
STRINGS = [
    (1, "void gemm<128>(P)"),
    (2, "gemm"),
    (3, SENDRECV),
    (4, "ncclDevKernel_SendRecv"),
    (5, "void gemm<256>(P)"),
]


def kernel(start: int, length: int, device: int, pid: int, name: int, short: int, blocks: int) -> tuple[int, ...]:
    return start * US, (start + length) * US, device, 7, 1, pid, name, short, blocks, 1, 1


KERNELS = [
    kernel(0, 300, 0, A, 1, 2, 66), kernel(300, 100, 0, A, 5, 2, 400), kernel(350, 100, 0, A, 3, 4, 8),
    kernel(0, 200, 0, B, 1, 2, 66),
]  # fmt: skip


def value(found: dict[str, MetricValue], name: str) -> float:
    assert found[name].value is not None, (name, found[name].reason)
    return found[name].value or 0.0


def test_devices_by_process(tmp_path: Path) -> None:
    """Both processes call their GPU device 0; unions and the SM counts are per process."""
    nsys(tmp_path / "n.sqlite", {
        "StringIds": STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL": KERNELS,
        "TARGET_INFO_CUDA_DEVICE": [(0, 0, 1701, "u", 132), (1, 0, 1702, "v", 66)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(500 * US, 600 * US, 0, 7, A, 3_000_000, 1),
                                       (100 * US, 150 * US, 0, 7, B, 1_000_000, 8)],
        "CUPTI_ACTIVITY_KIND_MEMSET": [(700 * US, 750 * US, 0, A, 0, 64)],
        "META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", "3.25.0")],
    })  # fmt: skip
    lanes = load(tmp_path).lanes
    assert [(lane.device, lane.sm_count) for lane in lanes] == [
        ("process 1701 device 0", 132),
        ("process 1702 device 0", 66),
    ]
    found = compute(tmp_path)
    # A: communication 350-450 of kernels 0-450; B: none of 200
    assert value(found, "communication_fraction") == pytest.approx(100 * (100 / 450 + 0) / 2)
    assert value(found, "compute_comm_overlap") == pytest.approx(50)
    assert value(found, "load_imbalance_ratio") == pytest.approx(2)
    # A: 0.5 x 300, 1 x 100, 8/132 x 100; B: 1 x 200
    assert value(found, "mean_sm_coverage") == pytest.approx(100 * (150 + 100 + 100 * 8 / 132 + 200) / 700)
    assert value(found, "memory_bound_fraction") == 0
    assert value(found, "compute_bound_fraction") == pytest.approx(50)
    assert value(found, "dominant_kernel_concentration") == pytest.approx(100 * 500 / 700)
    short = compute(tmp_path, metrics=["dominant_kernel_concentration"], variant="grouped_by_short_name")
    assert value(short, "dominant_kernel_concentration") == pytest.approx(100 * 600 / 700)
    assert value(found, "average_memory_bandwidth") == pytest.approx(4e6 / 150e-6 / 1e9)
    # A: 150 of 750 us exposed, B: none of 200
    assert value(found, "memory_transfer_overhead") == pytest.approx(100 * 150 / 950)
    assert value(found, "num_xpus") == 2
    assert found["avg_step_time"].reason == (
        "an Nsight Systems capture has no step spans; Table 3 gives this metric for Kineto/XLA traces only"
    )
    assert found["bw_allreduce"].reason == "Nsight kernel records carry no message sizes"
    assert found["bw_peertopeer"].reason == "no GPU_METRICS table"


def test_sm_count_through_the_cuda_ordinal(tmp_path: Path) -> None:
    nsys(tmp_path / "n.sqlite", {
        "StringIds": STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(0, 300, 0, A, 1, 2, 27)],
        "TARGET_INFO_GPU": [(0, "A100", 999, 3), (1, "A100", 108, 0)],
    })  # fmt: skip
    assert value(compute(tmp_path), "mean_sm_coverage") == pytest.approx(25)


def test_link_utilization_during_transfers(tmp_path: Path) -> None:
    """Samples every 100 us; only those inside the peer copy (200-400) and the send/receive kernel (600-700) count,
    zeros too."""
    kind = 0x4400_0000_0001 << 8
    samples = [(t * US, kind, 9, v) for t, v in ((100, 90), (200, 40), (300, 0), (450, 90), (600, 80), (700, 90))]
    other = [(250 * US, kind | 1, 9, 5), (250 * US, kind, 8, 77)]
    nsys(tmp_path / "n.sqlite", {
        "StringIds": STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(0, 150, 0, A, 1, 2, 27),
                                                            kernel(600, 100, 0, A, 3, 4, 8)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(200 * US, 400 * US, 0, 7, A, 5, 10)],
        "GPU_METRICS": samples + other,
        "TARGET_INFO_GPU_METRICS": [
            (kind, 1, "GPU 0", 9, "NVLink TX Responses User Data [Throughput %]"),
            (kind, 1, "GPU 0", 8, "PCIe TX Throughput"),
            (kind | 1, 1, "GPU 1", 9, "NVLink TX Responses User Data [Throughput %]"),
        ],
    })  # fmt: skip
    found = compute(tmp_path, metrics=["bw_peertopeer"])["bw_peertopeer"]
    assert found.value == pytest.approx((40 + 0 + 80) / 3)
    assert found.detail == {"link": "NVLink", "samples": 3}


def test_tables_that_are_not_there(tmp_path: Path) -> None:
    nsys(tmp_path / "n.sqlite", {"StringIds": STRINGS, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [(0, 100, 0, 1)],
                                 "CUPTI_ACTIVITY_KIND_MEMCPY": [(0, 100, 0, 7, A, 5, 1)]})  # fmt: skip
    found = compute(tmp_path)
    assert "whole CUDA graphs were traced" in (found["communication_fraction"].reason or "")
    assert "whole CUDA graphs were traced" in found["communication_fraction"].warnings[0]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "n.sqlite").write_bytes(b"SQLite format 3\x00" + b"\x00" * 200)
    with pytest.raises(BadInputError, match=r"n\.sqlite: left out, SQLite cannot read it"):
        load(tmp_path)


def test_process_ids() -> None:
    assert pid_of(global_pid(91186)) == 91186
    assert pid_of(283004823928832) == 91186
