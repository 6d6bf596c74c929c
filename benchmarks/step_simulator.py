"""How fast the step simulator is, and how it orders the measured Perlmutter trials without any calibration.

    python -m benchmarks.step_simulator [--collectives | --ranking]

Speed: processor time of one simulation (best of five, networks already timed) and of writing its traces; of single
large collectives, routes included (`--collectives`: a ring of 1024 ranks and a direct all-to-all of 256). The ranking
needs the reference data beside the repository.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.dry_run import dry_run
from backends.trace import write_traces
from runs import catalogue
from runs.plan import ParallelPlan, StateBytes

if TYPE_CHECKING:
    from backends.network import Topology

FSDP = StateBytes(4.0, 4.0, 8.0, 2.0)
SERVING = StateBytes(2.0, 0.0, 0.0, 0.0)
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("wl4", "perlmutter-a100-16", {"tp": 4, "pp": 2, "dp_shard": 2, "num_microbatches": 2, "sequence_parallel": True,
                                   "state_bytes": FSDP}),
    ("wl4", "perlmutter-a100-16", {"tp": 4, "pp": 4, "num_microbatches": 4}),
    ("wl5", "perlmutter-a100-16", {"tp": 2, "pp": 2, "dp_replicate": 4, "ep": 4, "num_microbatches": 2}),
    ("wl6", "perlmutter-a100-16", {"tp": 2, "dp_shard": 8, "zero_stage": 1, "ep": 8, "num_microbatches": 8}),
    ("wl6", "perlmutter-a100-16", {"tp": 4, "pp": 4, "num_microbatches": 64}),
    ("wl7", "perlmutter-a100-256", {"tp": 4, "pp": 8, "dp_shard": 8, "zero_stage": 1, "ep": 8, "num_microbatches": 8}),
    ("wl7", "perlmutter-a100-256", {"tp": 8, "pp": 8, "dp_shard": 4, "ep": 4, "num_microbatches": 16}),
    ("wl1", "perlmutter-a100-16", {"tp": 4, "dp_replicate": 4, "cuda_graph": True, "state_bytes": SERVING}),
    ("wl3", "perlmutter-a100-16", {"tp": 4, "pp": 4, "state_bytes": SERVING}),
)  # fmt: skip


def best(action: Callable[[], Any], times: int = 5) -> tuple[float, Any]:
    """Least processor time of several runs, in milliseconds, and the last answer."""
    found, answer = [], None
    for _ in range(times):
        started = time.process_time()
        answer = action()
        found.append(1e3 * (time.process_time() - started))
    return min(found), answer


def speed() -> None:
    """Print one line a case."""
    print("workload plan | first ms | simulate ms | write ms | MB | step s")
    for name, where, fields in CASES:
        workload, environment = catalogue.workload(name), catalogue.environment(where)
        plan = ParallelPlan("vllm" if not workload.is_training else "benchmark", **fields)
        first, _ = best(lambda: dry_run(workload, environment, plan), 1)  # noqa: B023
        again, result = best(lambda: dry_run(workload, environment, plan))  # noqa: B023
        with tempfile.TemporaryDirectory() as folder:
            write, info = best(lambda: write_traces(result, Path(folder)), 3)  # noqa: B023
            size = sum(path.stat().st_size for path in info.files) / 1e6
        degrees = " ".join(f"{k}={v}" for k, v in fields.items() if isinstance(v, int) and not isinstance(v, bool))
        print(f"{name} {degrees} | {first:.0f} | {again:.0f} | {write:.0f} | {size:.1f} | {result.wall_s:.4f}")


def collectives() -> None:
    """Print one line for each large collective: what it costs on a new topology, and on one whose routes are known."""
    from backends.network import Collective, NetworkModel

    print("collective topology | first ms | again ms")
    for kind, algorithm, ranks in (("all_reduce", "ring", 1024), ("all_to_all", "direct", 256)):
        collective = Collective(kind, 64e6, (tuple(range(ranks)),), algorithm)
        for topology in topologies(ranks):
            first, _ = best(lambda: NetworkModel(topology).time(collective), 1)  # noqa: B023
            again, _ = best(lambda: NetworkModel(topology).time(collective))  # noqa: B023
            print(f"{kind} {algorithm} {ranks} {topology.name} | {first:.0f} | {again:.0f}")


def topologies(ranks: int) -> list[Topology]:
    """The kinds of topology that environments have, for so many ranks."""
    from backends.network import clustered, rails, switch, torus

    up, out, side = (4.5e11, 2e-6), (2.5e10, 4e-6), isqrt(ranks)
    return [
        switch(ranks, 5e10, 5e-7),
        rails(ranks // 8, 8, up, out),
        clustered(ranks // 4, 4, up, out, nics=4, mesh=True),
        clustered(ranks // 4, 4, up, out, nics=1, mesh=True),
        torus((side, side), 4.5e10, 1e-6),
    ]


def ranking() -> None:
    """Print rank correlation and the ratio of simulated to measured time, by software stack."""
    from tests.backends.recorded import recorded_trials, spearman, stacks_to_rank

    for stack, members in stacks_to_rank(recorded_trials(), least=4).items():
        simulated = [dry_run(t.workload, t.environment, t.plan).wall_s for t in members]
        measured = [t.median for t in members]
        ratio = statistics.median(s / m for s, m in zip(simulated, measured, strict=True))
        print(f"{stack}: {len(members)} plans, Spearman {spearman(measured, simulated):.3f}, median ratio {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranking", action="store_true", help="compare with the recorded trials")
    parser.add_argument("--collectives", action="store_true", help="single large collectives")
    asked = parser.parse_args()
    if asked.collectives:
        collectives()
    else:
        ranking() if asked.ranking else speed()
