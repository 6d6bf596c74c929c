"""How well the cost of a run on ns-3 is known before it starts: recorded runs, and the user's own program.

    python -m benchmarks.ns3_cost --data FOLDER
    ASTRA_SIM_NS3=… python -m benchmarks.ns3_cost --data FOLDER --run

FOLDER holds the tables of ns-3 runs with the processor time they took, and their inputs. Recorded rows are predicted at
the speed of a stock build. With `--run` some of them are run on the program that the variable names, at its own speed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from backends.astra.cost import Cost, Speed, estimate
from backends.astra.probe import speed_of
from backends.astra.process import Limits
from backends.astra.programs import NS3, from_variable
from backends.astra.simulate import InputPaths, simulate_files
from backends.exchange.inputs import AstraInputs
from backends.exchange.validate import examine
from benchmarks.astra_sim_rows import physical_of, prefix_of, system_of
from benchmarks.comparing import percentile
from benchmarks.trace_accuracy import Reference, study_inputs

TABLES = ("ns3_reference", "ns3_topology_reference", "ns3_congestion_reference", "ns3_workload_reference")
STUDY = "moe_study/ns3"
LARGEST_S = 12.0
"""Rows recorded as costlier are not run."""


@dataclass(frozen=True)
class Predicted:
    """One row: its table, what was expected and what was spent; packets of the recorded flows where they are alike."""

    table: str
    label: str
    cost: Cost
    recorded_s: float
    packets: int = 0

    @property
    def ratio(self) -> float:
        """Spent over expected processor time."""
        return self.recorded_s / self.cost.seconds


def predicted_rows(folder: Path, per_table: int | None = None, seed: int = 0) -> Iterator[Predicted]:
    """Every recorded run with its processor time, or so many of each table drawn at random."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Reference(folder, Path(scratch))
        for table in (*TABLES, STUDY):
            rows = [row for row in data.rows(f"{table}.csv") if _spent(row) and "INVALID" not in row.get("note", "")]
            for row in rows if per_table is None else random.Random(seed).sample(rows, min(per_table, len(rows))):
                inputs = study_inputs(data.study, row) if table == STUDY else paths_of(data.root, row).load()
                payload = int(row.get("payload") or 1000)
                cost = estimate(inputs, examine(inputs, rehearse=False)[0], payload)
                yield Predicted(table, _label(row), cost, _spent(row), _packets(row, inputs, payload))


def paths_of(root: Path, row: dict[str, str]) -> InputPaths:
    """The inputs of a recorded run."""
    groups = root / row["comm_group"] if row.get("comm_group") else None
    return InputPaths(
        root / prefix_of(row), root / system_of(row, True), physical=root / physical_of(row), comm_group=groups
    )


def _spent(row: dict[str, str]) -> float:
    return float(row.get("sim_cpu_s") or row.get("cpu_s") or 0)


def _label(row: dict[str, str]) -> str:
    names = ("workload", "model", "topology", "tp", "collective", "algorithm", "size_bytes", "npus", "cc_name", "cc")
    return " ".join(row[name] for name in names if row.get(name))


def _packets(row: dict[str, str], inputs: AstraInputs, payload: int) -> int:
    """Packets of flows of one size; 0 where flows differ, or the row does not say."""
    flows, nbytes = int(row.get("flows") or 0), int(float(row.get("bytes_sent") or 0))
    alike = row.get("collective") and row["algorithm"] in ("ring", "direct") and inputs.ranks > 1
    return flows * -(-(nbytes // flows) // payload) if alike and flows else 0


def table(rows: list[Predicted]) -> str:
    """Markdown: how far what was spent is from what was expected, a line a table."""
    lines = ["| rows of | rows | median spent / expected | 5 % below | 95 % below | within a factor of three |"]
    lines.append("|---|---|---|---|---|---|")
    for name in dict.fromkeys(row.table for row in rows):
        ratios = [row.ratio for row in rows if row.table == name]
        inside = sum(1 / 3 <= ratio <= 3 for ratio in ratios)
        figures = f"{median(ratios):.2f} | {percentile(ratios, 0.05):.2f} | {percentile(ratios, 0.95):.2f}"
        lines.append(f"| {name} | {len(ratios)} | {figures} | {inside} |")
    return "\n".join(lines) + "\n"


def run_rows(folder: Path, count: int, seed: int = 1) -> Iterator[Predicted]:
    """Rows of the first tables, run on the user's program and predicted at its speed.

    Raises:
        SystemExit: the environment names no program.
    """
    program = from_variable(NS3)
    if program is None:
        raise SystemExit("set ASTRA_SIM_NS3 to the program")
    speed: Speed = speed_of(program)
    print(f"{speed.us_per_hop:.2f} µs a hop: {speed.source}")
    with tempfile.TemporaryDirectory() as scratch:
        data = Reference(folder, Path(scratch))
        rows = [row for name in TABLES for row in data.rows(f"{name}.csv") if 0 < _spent(row) <= LARGEST_S]
        for row in random.Random(seed).sample(rows, count):
            paths = paths_of(data.root, row)
            inputs = paths.load()
            cost = estimate(inputs, examine(inputs, rehearse=False)[0], 1000, speed)
            found = simulate_files(paths, program, limits=Limits(wall_s=600.0), operations=False)
            one = Predicted("own program", _label(row), cost, found.run.ended.cpu_seconds or 0.0)
            print(f"{one.label}: {cost.seconds:.2f} s expected, {one.recorded_s:.2f} s spent", flush=True)
            yield one


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="folder of the reference results")
    parser.add_argument("--run", type=int, metavar="ROWS", help="run so many rows on the program of ASTRA_SIM_NS3")
    asked = parser.parse_args()
    with_own = list(run_rows(asked.data, asked.run)) if asked.run else []
    print(table(with_own or list(predicted_rows(asked.data))))


if __name__ == "__main__":
    main()
