"""Make the published searches that come with the product: one dry-run search for each bundled training workload.

Each is searched by the guided proposer on the cluster the workload belongs to, published into `policies/published/NAME`
and verified. Run it again whenever the simulator, the metrics or the guided proposer change:

    python benchmarks/publish_bundled.py [--workloads wl4,wl5,wl6,wl7] [--iterations 14] [--to policies/published]

An existing folder is replaced only when the new one holds against its own evidence.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ccl_search import assembly, targets
from ccl_search.loop.execution import Executor
from ccl_search.loop.interrupt import Interrupt
from ccl_search.problem import ProblemSource
from ccl_search.publishing.verifying import verify
from ccl_search.publishing.writing import publish
from ccl_search.settings import SearchSettings
from policies.reading import open_published

PLACES = {
    "wl4": "perlmutter-a100-16",
    "wl5": "perlmutter-a100-16",
    "wl6": "perlmutter-a100-128",
    "wl7": "perlmutter-a100-256",
}
DESTINATION = Path(__file__).resolve().parents[1] / "policies" / "published"
FRAMEWORK = "torchtitan"


def make(workload: str, iterations: int, destination: Path) -> str:
    """Search, publish and verify one workload; a line that says how it went."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ccl-search-") as place:
        source = ProblemSource(workload=workload, environment=PLACES[workload], framework=FRAMEWORK)
        settings = SearchSettings(iterations=iterations, proposer="guided")
        with assembly.open_store(str(Path(place) / "home"), write=True) as store:
            search = assembly.create(source, settings, store)
            search.run(Executor(targets.launcher(targets.find("dry-run")), Interrupt()))
            made = publish(store, search.run_id, Path(place) / workload)
        with open_published(made.path) as published:
            found = verify(published)
            found.require()
            score = (published.best or {}).get("score")
        shutil.rmtree(destination / workload, ignore_errors=True)
        destination.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made.path, destination / workload)
    seconds = time.monotonic() - started
    return f"{workload}: {made.trials} trials, {made.bytes / 1e6:.2f} MB, best {score:.6g}, {seconds:.0f} s"


def main(arguments: list[str] | None = None) -> int:
    """Make the published searches that were asked for; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(PLACES))
    parser.add_argument("--iterations", type=int, default=14)
    parser.add_argument("--to", type=Path, default=DESTINATION)
    chosen = parser.parse_args(arguments)
    for workload in chosen.workloads.split(","):
        print(make(workload, chosen.iterations, chosen.to), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
