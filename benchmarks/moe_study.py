"""The MoE topology study: its speed, and the page docs/moe_study.md.

    python -m benchmarks.moe_study [--jobs N] [--sensitivity] [--write docs/moe_study.md]

Without --sensitivity it times the 768 configurations alone (target: 60 s on two cores, 120 s of processor time). The
page is written with the sensitivity, which takes about ten times as long.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ccl_search.sweeping.moe import experiment, page
from ccl_search.sweeping.moe.definitions import study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, help="processes (default: the cores there are)")
    parser.add_argument("--sensitivity", action="store_true", help="vary what the study leaves open")
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    asked = parser.parse_args()
    found = experiment.run(study(), sensitivity=asked.sensitivity, processes=asked.jobs, progress=_tell)
    if asked.write is not None:
        page.write(found, asked.write)
    cells = len(found.results.matrix.cells)
    print(f"{cells} configurations: {found.seconds:.1f} s, {found.cpu_seconds:.1f} s of processor time")
    print(", ".join(f"{count} {verdict}" for verdict, count in Counter(f.verdict for f in found.findings).items()))


def _tell(done: int, total: int, seconds: float) -> None:
    print(f"{done} of {total} parts, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
