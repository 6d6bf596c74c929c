"""Traces against the real ASTRA-sim and NS-3: whole graphs from the reference's own files."""

from __future__ import annotations

import csv
import tarfile
from pathlib import Path

import pytest

from backends.exchange.inputs import load_inputs
from backends.exchange.raw import RawResult, run
from backends.network import CongestionControl
from tests.reference import shared_path

pytestmark = pytest.mark.shared

ANALYTICAL = ("ddp8", "fsdp8", "gpipe4x8mb", "moe_tp2ep4", "gpt_pp4tp2", "ddp32")
NS3 = ("ddp8_s", "fsdp8_s", "gpipe4x4mb_s", "moe_tp2ep4_s", "moe_tp16ep2_s", "moe_tp8ep4_s")
CONTROLS = {"none(0)": "none", "DCQCN": "dcqcn", "HPCC": "hpcc"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    names = tuple(f"hand/{name}/" for name in (*ANALYTICAL, *NS3)) + tuple(f"stg/{name}/" for name in ANALYTICAL)
    with tarfile.open(shared_path("data/astra/inputs.tar.gz")) as tar:
        kept = ("network/", "ns3/", "system/train", "system/ns3", *names)
        members = [member for member in tar.getmembers() if member.name.removeprefix("./").startswith(kept)]
        tar.extractall(folder, members, filter="data")
    return folder


def rows(table: str, workloads: tuple[str, ...]) -> list[dict[str, str]]:
    with shared_path(f"data/astra/{table}").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["workload"] in workloads and row["status"] == "ok"]


def differences(row: dict[str, str], wall: str, found: RawResult) -> tuple[float, float, float]:
    """Relative errors of wall, computation and communication (counted as ASTRA-sim does)."""
    first = found.figures[0]
    pairs = [(found.figures[found.slowest].wall, row[wall]), (first.compute, row["gpu_time_rank0"])]
    pairs.append((first.operations, row["comm_time_rank0"]))
    errors = [abs(ours / float(reference) - 1) for ours, reference in pairs]
    return errors[0], errors[1], errors[2]


def test_congestion_aware_rows(root: Path) -> None:
    """Every algorithm and workload on one dimension: all within 2 %."""
    found = rows("astra_training_reference.csv", ANALYTICAL)
    found = [row for row in found if row["backend"] == "congestion_aware"]
    assert len(found) > 20
    for row in found:
        groups = root / row["comm_group"] if row["comm_group"] else None
        inputs = load_inputs(root / row["prefix"], root / row["system"], network=root / row["net"], comm_group=groups)
        wall, compute, comm = differences(row, "wall_cycles_max", run(inputs))
        assert compute == 0, row
        assert wall < 0.02, row
        assert comm < 0.02, row


def test_ns3_rows(root: Path) -> None:
    """Every control, algorithm and workload within 1.5 % of the real NS-3."""
    found = rows("ns3_workload_reference.csv", NS3)
    assert len(found) > 20
    for row in found:
        groups = root / row["comm_group"] if row["comm_group"] else None
        physical = root / "ns3" / f"{row['npus']}_nodes_1_switch_400Gbps_0.0005ms.txt"
        inputs = load_inputs(root / row["prefix"], root / row["system"], physical=physical, comm_group=groups)
        result = run(inputs, CongestionControl(CONTROLS[row["cc_name"]]))
        wall, compute, comm = differences(row, "wall_ns_max", result)
        assert compute == 0, row
        assert wall < 0.015, row
        assert comm < 0.015, row


def test_gradients_overlap_and_pipelines_wait(root: Path) -> None:
    """Exposed communication has no bubble in it: a pipeline of four stages waits, data parallelism does not."""
    switch = "ns3/{}_nodes_1_switch_400Gbps_0.0005ms.txt"
    system = root / "system" / "ns3_train_ring.json"
    ddp = run(load_inputs(root / "hand/ddp8_s/ddp8_s", system, physical=root / switch.format(8)))
    pipe = run(load_inputs(root / "hand/gpipe4x4mb_s/gpipe4x4mb_s", system, physical=root / switch.format(4)))
    for result in (ddp, pipe):
        for figures in result.figures:
            assert figures.wall == figures.compute + figures.exposed + figures.bubble
    assert max(figures.bubble for figures in ddp.figures) == 0
    first = pipe.figures[pipe.slowest]
    assert first.bubble > 3 / 4 * first.compute  # (stages - 1) / micro-batches, and the messages of the others
    assert ddp.figures[0].exposed < ddp.figures[0].comm  # gradients go while the backward pass goes on
