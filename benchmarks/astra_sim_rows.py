"""How many recorded runs of ASTRA-sim the driver repeats exactly, with the user's own programs.

    ASTRA_SIM_ANALYTICAL=… ASTRA_SIM_NS3=… python -m benchmarks.astra_sim_rows INPUTS TABLE.csv … [--limit N]
                                                                    [--max-seconds S] [--seed N]

INPUTS is the folder that the paths in the tables lead from. A table has a row a run: the columns `prefix` (or
`workload`, or `collective`, `size_bytes`, `npus`), `system` (or `algorithm`), `network`, `net`, `topology` or
`physical_topology`, `wall_cycles_max` or `wall_ns_max`, `status`. Rows recorded as costlier than `--max-seconds` of
processor time are left out; `--limit` draws so many of each table. Every row goes through the whole backend: checks,
staging, the run, the verdict. A row agrees if the cycles of the slowest rank are the recorded ones to the last digit,
and if what was recorded as an error has no result.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path

from backends.astra.process import Limits
from backends.astra.programs import ANALYTICAL, NS3, Program, from_variable
from backends.astra.simulate import InputPaths, simulate_files
from backends.exchange.ns3_config import Ns3Config, read_ns3_config, write_ns3_config
from runs.errors import CclSearchError

ONE_SWITCH = "ns3/{npus}_nodes_1_switch_400Gbps_0.0005ms.txt"
PLACES = {"qcn": "1", "mtu": "1000", "stop": "40000000000000.00", "gt": "0", "trace": "0", "d": "."}
VARIANTS = {
    "stock": {},
    "nowin(": {"HAS_WIN": "0", "VAR_WIN": "0"},
    "nowin+low": {"HAS_WIN": "0", "VAR_WIN": "0", "KMIN_MAP": "1 400000000000 100", "KMAX_MAP": "1 400000000000 400"},
    "no window, ACK_HIGH_PRIO 1": {"HAS_WIN": "0", "VAR_WIN": "0", "ACK_HIGH_PRIO": "1"},
    "no window": {"HAS_WIN": "0", "VAR_WIN": "0"},
}
"""What the names in the column `variant` change of the configuration; the longest that a name begins with counts."""


@dataclass(frozen=True)
class Outcome:
    """What became of a row: `exact`, `off` (with the two figures), `refused`, `failed` or `agreed error`."""

    what: str
    text: str = ""


def main() -> None:
    """Print one line a table and one for every row that does not agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", type=Path)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for table in given.tables:
        chosen = _chosen(table, given.limit, given.max_seconds, given.seed)
        counts: Counter[str] = Counter()
        try:
            for row in chosen:
                outcome = compare(given.inputs, row)
                counts[outcome.what] += 1
                if outcome.what not in ("exact", "agreed error"):
                    print(f"  {outcome.what}: {_name(row)}: {outcome.text}", flush=True)
        finally:
            print(f"{table.name}: {counts.total()} of {len(chosen)} rows, {dict(counts)}", flush=True)


def _chosen(table: Path, limit: int | None, most_s: float, seed: int) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    cheap = [row for row in rows if float(row.get("sim_cpu_s") or row.get("sim_user_s") or 0) <= most_s]
    return random.Random(seed).sample(cheap, limit) if limit and limit < len(cheap) else cheap


def _name(row: dict[str, str]) -> str:
    names = ("backend", "workload", "topology", "collective", "algorithm", "size_bytes", "cc_name", "variant")
    return " ".join(row[name] for name in names if row.get(name))


def compare(inputs: Path, row: dict[str, str]) -> Outcome:
    """Run one row and compare it with what was recorded.

    Raises:
        SystemExit: the environment names no program for it.
    """
    ns3 = "wall_ns_max" in row
    program = from_variable(NS3 if ns3 else ANALYTICAL)
    if program is None:
        raise SystemExit(f"set {'ASTRA_SIM_NS3' if ns3 else 'ASTRA_SIM_ANALYTICAL'} to the program")
    recorded = row["wall_ns_max" if ns3 else "wall_cycles_max"]
    try:
        wall = _run(inputs, row, program, ns3)
    except CclSearchError as error:
        agreed = row["status"] == "error" or not recorded
        return Outcome("agreed error" if agreed else "failed", error.message)
    if not recorded:
        return Outcome("off", f"recorded as {row['status']}, now {wall}")
    return Outcome("exact" if wall == int(float(recorded)) else "off", f"recorded {recorded}, now {wall}")


def _run(inputs: Path, row: dict[str, str], program: Program, ns3: bool) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        paths = InputPaths(
            inputs / prefix_of(row), inputs / system_of(row, ns3),
            network=None if ns3 else inputs / _network(row), physical=inputs / physical_of(row) if ns3 else None,
            comm_group=inputs / row["comm_group"] if row.get("comm_group") else None,
            ns3_config=_configuration(inputs, row, Path(scratch)) if ns3 else None,
            flags=_flags(row),
        )  # fmt: skip
        engine = {"congestion_aware": "aware", "congestion_unaware": "unaware"}.get(row.get("backend", ""))
        limits = Limits(wall_s=300.0)
        found = simulate_files(paths, program, engine=engine, limits=limits, operations=False)  # type: ignore[arg-type]
        return found.run.wall_ns


def prefix_of(row: dict[str, str]) -> str:
    """Where the traces of a row are, from the folder of inputs."""
    if row.get("prefix"):
        return row["prefix"]
    if "/" in row.get("workload", ""):
        return row["workload"]
    npus = row.get("npus") or prod(
        int(size) for size in re.findall(r"[a-zA-Z](\d+)", row["topology"].partition("_")[0])
    )
    return f"et/{row['collective']}_{row['size_bytes']}B_{npus}npus/{row['collective']}"


def system_of(row: dict[str, str], ns3: bool) -> str:
    """The system file of a row."""
    if row.get("system"):
        return row["system"]
    assert ns3
    splits = row.get("dataset_splits") or "1"
    return f"system/{row['algorithm']}_1d_s{splits}_a1_localBWAware_LIFO_ed10.json"


def _network(row: dict[str, str]) -> str:
    return row.get("net") or (row["network"] if "/" in row.get("network", "") else f"network/{row['topology']}.yml")


def physical_of(row: dict[str, str]) -> str:
    """The physical topology of a row on ns-3."""
    named = row.get("physical_topology")
    return f"ns3/{named}" if named else ONE_SWITCH.format(npus=row["npus"])


def _flags(row: dict[str, str]) -> tuple[str, ...]:
    queues = row.get("num_queues_per_dim") or "1"
    return () if queues == "1" else (f"--num-queues-per-dim={queues}",)


def _configuration(inputs: Path, row: dict[str, str], folder: Path) -> Path:
    text = (inputs / "ns3/config_template.txt").read_text(encoding="utf-8")
    for name, value in {**PLACES, "cc": row["cc_mode"], "topo": "physical.txt"}.items():
        text = text.replace("{" + name + "}", value)
    path = folder / "config.txt"
    path.write_text(text, encoding="utf-8")
    variant = row.get("variant") or row.get("note") or ""
    names = [name for name in VARIANTS if variant.startswith(name)]
    if names:
        config = read_ns3_config(path)
        write_ns3_config(path, Ns3Config({**config.values, **VARIANTS[max(names, key=len)]}))
    return path


if __name__ == "__main__":
    main()
