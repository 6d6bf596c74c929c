"""The MoE topology study: its speed, the page docs/moe_study.md, and its cells beside runs of the real NS-3.

    python -m benchmarks.moe_study [--jobs N] [--sensitivity] [--write docs/moe_study.md] [--data FOLDER]

Without --sensitivity it times the 768 configurations alone (target: 60 s on two cores, 120 s of processor time). The
page is written with the sensitivity, which takes about eight times as long. FOLDER holds `ns3.csv`, the layers that
were run on NS-3 with the definitions of the study.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ccl_search.sweeping.moe import experiment, matrix, page
from ccl_search.sweeping.moe.definitions import study

_MODELS = {"Flash": "flash", "GLM": "glm", "KimiK3": "kimi-k3", "V4Pro": "v4-pro"}
_MODES = {"none": "roce-none", "HPCC": "roce-hpcc", "DCQCN": "roce-dcqcn"}
_AS_DEFINED = {
    "status": "ok",
    "variant": "ar2_a2aA",
    "tokens": "4096",
    "payload": "9000",
    "dataset_splits": "4",
    "active_chunks": "1",
    "note": "",
}
_DRAWINGS = ("T1_net1us_pcie400", "T2_net1us_pcie400", "T3_net1us_pcie400_upi200", "T4_net1us_pcie400_upi200",
             "T5nic_net1us_pcie400_upi200", "T6_mesh256")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, help="processes (default: the cores there are)")
    parser.add_argument("--sensitivity", action="store_true", help="vary what the study leaves open")
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    parser.add_argument("--data", type=Path, help="folder with ns3.csv to set the cells beside")
    asked = parser.parse_args()
    if asked.write is not None:
        page.around(asked.write)
    found = experiment.run(study(), sensitivity=asked.sensitivity, processes=asked.jobs, progress=_tell)
    if asked.write is not None:
        page.write(found, asked.write)
    if asked.data is not None:
        _show_reference(list(beside(asked.data / "ns3.csv")))
    cells = len(found.results.matrix.cells)
    print(f"{cells} configurations: {found.seconds:.1f} s, {found.cpu_seconds:.1f} s of processor time")
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(f.verdict for f in found.findings).items()))


def beside(path: Path) -> Iterator[tuple[str, str, float]]:
    """Topology and congestion control, the configuration, and our time over that of NS-3, of each comparable row."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if all(row[key] == value for key, value in _AS_DEFINED.items())]
    for row in rows:
        if Path(row["topo_file"]).stem not in _DRAWINGS:
            continue
        model, topology, tp = study().model(_MODELS[row["model"]]), int(row["topology"][1:]), int(row["tp"])
        cell = matrix.cell(topology, tp, int(row["ep"]), _MODES[row["cc"]], model.key, row["algorithm"])
        theirs = float(row["layer_ns"]) * 1e-9 * model.layers
        yield f"topology {topology}, {row['cc']}", f"{model.key} TP{tp} {row['algorithm']}", cell.time_s / theirs


def _show_reference(rows: list[tuple[str, str, float]]) -> None:
    for where in sorted({row[0] for row in rows}):
        errors = {name: 100 * (ratio - 1) for place, name, ratio in rows if place == where}
        least, greatest = min(errors.values()), max(errors.values())
        print(f"{where}: {len(errors)} rows, {least:+.1f} to {greatest:+.1f} % of NS-3's time")
        print("   " + ", ".join(f"{name} {error:+.1f} %" for name, error in errors.items()))


def _tell(done: int, total: int, seconds: float) -> None:
    print(f"{done} of {total} parts, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
