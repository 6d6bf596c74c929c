"""How far traces on the flow simulator are from the real ASTRA-sim: whole graphs, run from the reference's own files.

    python -m benchmarks.trace_accuracy --data FOLDER [--only PART] [--worst N] [--table FILE]

FOLDER holds the results (`astra_training_reference.csv`, `ns3_workload_reference.csv`, `moe_study/ns3.csv`) and their
inputs (`inputs.tar.gz`, `moe_study/inputs.tar.gz`). Wall, computation and communication time are compared, the latter
as ASTRA-sim counts it: communication nodes from issue to end. Rows that failed, are marked invalid or ran without a
window are not scored; rows of the congestion-unaware backend are shown apart, because it has no contention.
"""

from __future__ import annotations

import csv
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from backends.exchange.inputs import AstraInputs, load_inputs
from backends.exchange.ns3_config import Ns3Config
from backends.exchange.raw import RawResult, run
from backends.network import CongestionControl
from benchmarks import comparing
from benchmarks.network_accuracy import CONTROLS


@dataclass(frozen=True)
class Row:
    """One reference row: the file and kind it belongs to, and (reference, ours) in ns for each figure."""

    part: str
    kind: str
    label: str
    figures: dict[str, tuple[float, float]]

    def error_of(self, name: str) -> float:
        """|ours / reference - 1|."""
        reference, ours = self.figures[name]
        return abs(ours / reference - 1)

    @property
    def error(self) -> float:
        """That of the wall time."""
        return self.error_of("wall")

    def __str__(self) -> str:
        reference, ours = self.figures["wall"]
        return f"{self.part}: {self.label}: {reference:.0f} ns, ours {ours:.0f} ns, {self.error:.1%}"


class Reference:
    """The unpacked inputs and the tables."""

    def __init__(self, data: Path, scratch: Path) -> None:
        self.data, self.root, self.study = data, scratch / "inputs", scratch / "study"
        for archive, place in (("inputs.tar.gz", self.root), ("moe_study/inputs.tar.gz", self.study)):
            with tarfile.open(data / archive) as tar:
                tar.extractall(place, filter="data")

    def rows(self, table: str) -> list[dict[str, str]]:
        """The rows of a table that have a result."""
        with (self.data / table).open(newline="", encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if row["status"].split("_")[0] in ("ok", "finished")]


def _optional(folder: Path, name: str) -> Path | None:
    return folder / name if name else None


def _compared(row: dict[str, str], wall: str, found: RawResult) -> dict[str, tuple[float, float]]:
    first, slowest = found.figures[0], found.figures[found.slowest]
    pairs = {"wall": (row[wall], slowest.wall), "computation": (row["gpu_time_rank0"], first.compute)}
    pairs["communication"] = row["comm_time_rank0"], first.operations
    return {name: (float(reference), float(ours)) for name, (reference, ours) in pairs.items() if reference}


def training(data: Reference) -> Iterator[Row]:
    """Whole graphs on the analytical backends."""
    known: dict[tuple[str, ...], RawResult] = {}
    for row in data.rows("astra_training_reference.csv"):
        key = (row["prefix"], row["comm_group"], row["system"], row["net"])
        if key not in known:
            prefix, groups, system, network = key
            inputs = load_inputs(
                data.root / prefix, data.root / system, network=data.root / network,
                comm_group=_optional(data.root, groups),
            )  # fmt: skip
            known[key] = run(inputs)
        part = f"astra_training_reference ({row['backend'].removeprefix('congestion_')})"
        label = f"{row['workload']} {row['network']} {row['algorithm']}"
        yield Row(part, row["algorithm"], label, _compared(row, "wall_cycles_max", known[key]))


def ns3(data: Reference) -> Iterator[Row]:
    """Whole graphs on NS-3, one switch."""
    for row in data.rows("ns3_workload_reference.csv"):
        physical = data.root / "ns3" / f"{row['npus']}_nodes_1_switch_400Gbps_0.0005ms.txt"
        inputs = load_inputs(
            data.root / row["prefix"], data.root / row["system"], physical=physical,
            comm_group=_optional(data.root, row["comm_group"]),
        )  # fmt: skip
        found = run(inputs, CongestionControl(CONTROLS[row["cc_name"]]))
        label = f"{row['workload']} {row['algorithm']} {row['cc_name']}"
        yield Row("ns3_workload_reference", row["algorithm"], label, _compared(row, "wall_ns_max", found))


def study(data: Reference) -> Iterator[Row]:
    """The layers of the MoE topology study, stock window, valid rows."""
    for row in data.rows("moe_study/ns3.csv"):
        if any(word in row["note"] for word in ("INVALID", "HAS_WIN 0", "KMIN", "leak")):
            continue
        found = run(study_inputs(data.study, row), CongestionControl(CONTROLS[row["cc"]]))
        label = f"{row['model']} {Path(row['topo_file']).stem} TP{row['tp']} {row['algorithm']} {row['cc']}"
        figures = {"wall": (float(row["layer_ns"]), float(found.figures[found.slowest].wall))}
        yield Row("moe_study", f"{row['topology']} {row['cc']}", label, figures)


def study_inputs(root: Path, row: dict[str, str]) -> AstraInputs:
    """The inputs of a layer of the study."""
    by_dimension = row["group_style"] == "dim"
    name = f"{row['model']}_tp{row['tp']}ep{row['ep']}_T{row['tokens']}_{row['variant']}"
    folder = root / "workloads" / f"{'dim_' if by_dimension else ''}{name}"
    algorithm = "ring" if row["algorithm"].startswith("ring") else "doubleBinaryTree"
    system = f"{algorithm}_direct_s{row['dataset_splits']}_a{row['active_chunks']}_{2 if by_dimension else 1}d.json"
    inputs = load_inputs(
        folder / "layer", root / "systems" / system, physical=root / row["topo_file"],
        comm_group=None if by_dimension else folder / "comm_group.json",
        logical=root / "systems" / f"logical_{row['tp']}x{row['ep']}.json" if by_dimension else None,
    )  # fmt: skip
    return replace(inputs, ns3=Ns3Config({"PACKET_PAYLOAD_SIZE": row["payload"], "HAS_WIN": "1"}))


PARTS = {"training": training, "ns3": ns3, "study": study}


def table(rows: list[Row]) -> str:
    """Markdown: a line for each figure of each part, then one for the wall time of each kind."""
    lines = ["| rows of | figure | rows | median error | 95 % of rows within | worst |", "|---|---|---|---|---|---|"]
    for part in dict.fromkeys(row.part for row in rows):
        mine = [row for row in rows if row.part == part]
        for name in ("wall", "computation", "communication"):
            lines += _line(part, name, [row.error_of(name) for row in mine if name in row.figures])
        for kind in sorted({row.kind for row in mine}):
            lines += _line(part, f"wall, {kind}", [row.error for row in mine if row.kind == kind])
    return "\n".join(lines) + "\n"


def _line(part: str, name: str, errors: list[float]) -> list[str]:
    if not errors:
        return []
    return [f"| {part} | {name} | {len(errors)} | {comparing.cells(errors)} |"]


@contextmanager
def opened(folder: Path) -> Iterator[Reference]:
    """The reference, its inputs unpacked for as long as it is used."""
    with tempfile.TemporaryDirectory() as scratch:
        yield Reference(folder, Path(scratch))


if __name__ == "__main__":
    comparing.main(__doc__, PARTS, opened, table)
