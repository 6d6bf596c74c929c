"""How well a calibration predicts the step times of measured configs that it was not fitted to.

    python -m benchmarks.calibration --data PATH/recorded_trials.csv [--repeats 5]

Prints one row of docs/calibration.md for each software stack (framework, model, version of the launch script) with
at least 12 distinct successes. What the recorded scripts did and no column says is written out first (`explicit`), so
that the file goes through the reader that `ccl-search calibrate` uses.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path

import numpy as np

from ccl_search.calibrating.calibrate import Fitted, fitted
from ccl_search.calibrating.measurements import Measurement, replicate_spread
from ccl_search.calibrating.simulator import SimulatedSteps
from ccl_search.calibrating.table import read_table
from ccl_search.calibrating.validation import Estimate

LEAST = 12
ENVIRONMENT = "perlmutter-a100-sockets"


def explicit(row: dict[str, str]) -> dict[str, str]:
    """`row` with what its launch script decided: Megatron ties Llama's embeddings and overlaps nothing by default,
    its experts need sequence parallelism. TorchTitan computes in fp32 where no data parallelism casts, and without a
    pipeline takes its local batch in one pass: the scripts set the micro-batch of pipelines only, and no global batch,
    without which TorchTitan accumulates no gradients."""
    if row["framework"] == "torchtitan":
        precision = "fp32" if row["dp"] == "1" else "bf16"
        found = {**row, "precision": precision, "compile": str(row["compile_mode"] == "inductor")}
        if row["pp"] == "1" and row["global_batch_size_effective"]:
            found["micro_batch_size_effective"] = str(int(row["global_batch_size_effective"]) // int(row["dp"]))
        return found
    tied = {"tied_embeddings": "true"} if "llama" in row["model"] else {}
    return {**row, "precision": "bf16", "overlap_communication": "false", **tied}


def measured(path: Path) -> dict[str, list[Measurement]]:
    """Distinct measured configs of every software stack that has enough of them."""
    rows = [explicit(row) for row in csv.DictReader(path.open(encoding="utf-8"))]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / path.name
        with written.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        found = read_table(written, ENVIRONMENT)
    stacks: dict[str, list[Measurement]] = {}
    for config in found.configs:
        stacks.setdefault(config.stack, []).append(config)
    return {stack: configs for stack, configs in stacks.items() if len(configs) >= LEAST}


def row(stack: str, configs: list[Measurement], found: Fitted) -> str:
    """One row of the table."""
    spread = replicate_spread(configs)
    repeated = f"{spread.median:.1%}, {spread.largest:.1%}" if spread.median is not None else "-"
    cells = [
        stack, str(len(configs)), _shown(found.uncalibrated.spearman, ".2f"), _shown(found.held_out.spearman, ".2f"),
        _shown(found.fitted.median_error, ".1%"), _shown(found.held_out.median_error, ".1%"), repeated,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _shown(figure: Estimate, form: str) -> str:
    return f"{figure.value:{form}} ({figure.low:{form}} to {figure.high:{form}})"


def main() -> None:
    """Print the table, and below it the factors, seconds and largest held-out errors of every stack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="recorded_trials.csv")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of the cross-validation")
    options = parser.parse_args()
    print("stack | configs | uncalibrated Spearman | held-out Spearman | error where fitted | held-out error | repeats")
    for stack, configs in measured(options.data).items():
        started = time.process_time()
        times = np.array([config.median for config in configs])
        found = fitted(SimulatedSteps(configs), times, options.repeats)
        print(row(stack, configs, found), flush=True)
        _details(configs, found, time.process_time() - started)


def _details(configs: list[Measurement], found: Fitted, seconds: float) -> None:
    costs = " ".join(f"{name}={cost:.2f}" for name, cost in found.as_dict()["costs"].items())
    print(f"  costs: {costs} overhead={found.point.overhead_s:.3f} s ({seconds:.0f} s of processor time)")
    ratios = [(p / c.median, c) for p, c in zip(found.predictions, configs, strict=True)]
    for ratio, config in sorted(ratios, key=lambda each: -abs(np.log(each[0])))[:5]:
        plan = config.plan
        print(
            f"  predicted / measured {ratio:.2f}: tp{plan.tp} dp{plan.dp} pp{plan.pp} ep{plan.ep} "
            f"mbs{plan.micro_batch_size} x{plan.num_microbatches} {plan.recompute}, measured {config.median:.2f} s"
        )


if __name__ == "__main__":
    main()
