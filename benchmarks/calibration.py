"""How well a calibration predicts the step times of measured configs that it was not fitted to.

    python -m benchmarks.calibration --data PATH/recorded_trials.csv [--repeats 5] [--knobs]
        [--unseen PATH/recorded_trials_from_cards.csv] [--words 64128]

Prints the rows of docs/calibration.md for each software stack (framework, model, version of the launch script) with
at least 12 distinct successes: fitted alone, then with the links (bandwidths, latencies) that the other stacks' trials
show on the same cluster, kept as `ccl-search calibrate --links` keeps them. Beside them stands what a perfect model
would reach through the measured noise. `--knobs` leaves out all configs with one value of a knob instead of random
fifths, `--unseen` predicts the successes of a file that are in no fit. What the recorded scripts did and no column
says is written out first (`explicit`), so that the files go through the reader that `ccl-search calibrate` uses.
`--words` asks what if the tokenizer of the Megatron-LM scripts had another number of words.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.memory import estimate
from ccl_search.calibrating.calibrate import Fitted, fitted
from ccl_search.calibrating.fitting import Anchors
from ccl_search.calibrating.measurements import Measurement, replicate_spread
from ccl_search.calibrating.parameters import calibration, link_costs
from ccl_search.calibrating.simulator import SimulatedSteps
from ccl_search.calibrating.table import read_table
from ccl_search.calibrating.validation import Errors, Estimate, errors, predict, spearman

if TYPE_CHECKING:
    from ccl_search.calibrating.parameters import Vector

LEAST = 12
ENVIRONMENT = "perlmutter-a100-sockets"
WORDS = 128256
"""Of the tokenizer that both Megatron-LM scripts name, that of Llama 3.1."""
PADDING = {"llama-3.1-8b": 128, "deepseek-v2-lite": 3200}
"""Megatron-LM pads the vocabulary to a multiple of this times tp (the script's --make-vocab-size-divisible-by)."""
KNOBS = ("tp", "dp", "pp", "micro_batch_size")
_DRAWS = 2000
Stacks = dict[str, list[Measurement]]


def explicit(row: dict[str, str], words: int = WORDS) -> dict[str, str]:
    """`row` with what its launch script decided: Megatron ties Llama's embeddings and overlaps nothing by default,
    its experts need sequence parallelism, its table has the tokenizer's words and padding. TorchTitan computes in fp32
    where no data parallelism casts, and without a pipeline takes its local batch in one pass: the scripts set the
    micro-batch of pipelines only, and no global batch, without which TorchTitan accumulates no gradients.

    `words` are those of the Megatron-LM tokenizer."""
    if row["framework"] == "torchtitan":
        precision = "fp32" if row["dp"] == "1" else "bf16"
        found = {**row, "precision": precision, "compile": str(row["compile_mode"] == "inductor")}
        if row["pp"] == "1" and row["global_batch_size_effective"]:
            found["micro_batch_size_effective"] = str(int(row["global_batch_size_effective"]) // int(row["dp"]))
        return found
    tied = {"tied_embeddings": "true"} if "llama" in row["model"] else {}
    unit = PADDING[row["model"]] * int(row["tp"])
    padded = -(-words // unit) * unit
    return {**row, "precision": "bf16", "overlap_communication": "false", "vocab_size": str(padded), **tied}


def measured(path: Path, words: int = WORDS) -> Stacks:
    """Distinct measured configs of every software stack that has enough of them."""
    found = _stacks(list(csv.DictReader(path.open(encoding="utf-8"))), words)
    return {stack: configs for stack, configs in found.items() if len(configs) >= LEAST}


def unseen(path: Path, known: Stacks, words: int = WORDS) -> Stacks:
    """Configs of the `known` stacks that only the records of cards have (`in_results_csv` is no)."""
    rows = [row for row in csv.DictReader(path.open(encoding="utf-8")) if row["in_results_csv"] == "no"]
    plans = {stack: [config.plan for config in configs] for stack, configs in known.items()}
    found = {
        stack: [config for config in configs if config.plan not in plans[stack]]
        for stack, configs in _stacks(rows, words).items()
        if stack in plans
    }
    return {stack: configs for stack, configs in found.items() if configs}


def _stacks(rows: list[dict[str, str]], words: int) -> Stacks:
    rows = [explicit(row, words) for row in rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "trials.csv"
        with written.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        found = read_table(written, ENVIRONMENT)
    stacks: Stacks = {}
    for config in found.configs:
        stacks.setdefault(config.stack, []).append(config)
    return stacks


def noise(stacks: Stacks) -> float:
    """Standard deviation of the logarithm of one measurement, pooled over all repeated configs."""
    logs = [np.log(c.seconds) for configs in stacks.values() for c in configs if len(c.seconds) > 1]
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    return float(np.sqrt(squares / sum(len(each) - 1 for each in logs)))


def ceiling(configs: list[Measurement], sigma: float, seed: int = 0) -> tuple[float, float, float]:
    """Mean and 5th percentile of the rank correlation, and the mean of the median error, of a perfect model.

    The medians are taken for the true times, and measured again as often as each config was, with noise of `sigma`.
    """
    rng = np.random.default_rng(seed)
    true = np.array([config.median for config in configs])
    columns = [np.median(rng.normal(0, sigma, (_DRAWS, len(config.seconds))), axis=1) for config in configs]
    again = np.column_stack(columns)
    ranks = [spearman(true, true * np.exp(row)) for row in again]
    misses = np.median(np.abs(np.exp(-again) - 1), axis=1)
    return float(np.mean(ranks)), float(np.percentile(ranks, 5)), float(np.mean(misses))


def left_out(model: SimulatedSteps, configs: list[Measurement], knob: str, kept: Mapping[int, float]) -> Errors:
    """Errors where all configs with one value of `knob` are predicted by the fit to those with another."""
    times, anchors = _times(configs), Anchors(model, kept=kept)
    values = [getattr(config.plan, knob) for config in configs]
    found = np.zeros(len(configs))
    for value in sorted(set(values)):
        fold = [index for index, each in enumerate(values) if each == value]
        found[fold] = predict(anchors, times, fold)
    return errors(found[None, :], times)


def _times(configs: list[Measurement]) -> Vector:
    return np.array([config.median for config in configs])


def row(stack: str, links: str, configs: list[Measurement], found: Fitted) -> str:
    """One row of the table."""
    spread = replicate_spread(configs)
    repeated = f"{spread.median:.1%}, {spread.largest:.1%}" if spread.median is not None else "-"
    cells = [
        stack, str(len(configs)), links,
        _shown(found.uncalibrated.spearman, ".2f"), _shown(found.held_out.spearman, ".2f"),
        _shown(found.fitted.median_error, ".1%"), _shown(found.held_out.median_error, ".1%"), repeated,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _shown(figure: Estimate, form: str) -> str:
    return f"{figure.value:{form}} ({figure.low:{form}} to {figure.high:{form}})"


def main() -> None:
    """Print the table, and below each row the factors, seconds and largest held-out errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="recorded_trials.csv")
    parser.add_argument("--repeats", type=int, default=5, help="repeats of the cross-validation")
    parser.add_argument("--knobs", action="store_true", help="leave out one value of a knob after the other too")
    parser.add_argument("--unseen", type=Path, help="recorded_trials_from_cards.csv")
    parser.add_argument("--words", type=int, default=WORDS, help="words of the Megatron-LM tokenizer")
    options = parser.parse_args()
    stacks = measured(options.data, options.words)
    models = {stack: SimulatedSteps(configs) for stack, configs in stacks.items()}
    others = unseen(options.unseen, stacks, options.words) if options.unseen else {}
    sigma = noise(stacks)
    print(
        "stack | configs | links | uncalibrated Spearman | held-out Spearman | error where fitted | held-out | repeats"
    )
    alone = {stack: _report(stack, configs, models[stack], {}, options) for stack, configs in stacks.items()}
    for stack, configs in stacks.items():
        kept = link_costs([calibration(each, alone[each].point) for each in stacks if each != stack])
        found = _report(stack, configs, models[stack], kept, options)
        mean, low, error = ceiling(configs, sigma)
        best = f"Spearman {mean:.3f} (5th percentile {low:.3f}), error {error:.1%}"
        print(f"  a perfect model measured with a noise of {sigma:.1%}: {best}")
        print(f"  the fullest success is estimated at {_fullest(configs):.2f} of its device's memory")
        for one in others.get(stack, ()):
            _unseen(one, {"alone": alone[stack], "links of the others": found})


def _report(
    stack: str,
    configs: list[Measurement],
    model: SimulatedSteps,
    kept: Mapping[int, float],
    options: argparse.Namespace,
) -> Fitted:
    started = time.process_time()
    found = fitted(model, _times(configs), options.repeats, kept=kept)
    print(row(stack, "of the others" if kept else "fitted", configs, found), flush=True)
    _details(configs, found, time.process_time() - started)
    for knob in KNOBS if options.knobs else ():
        outside = left_out(model, configs, knob, kept)
        figures = f"Spearman {_shown(outside.spearman, '.2f')}, error {_shown(outside.median_error, '.1%')}"
        print(f"  one {knob} left out: {figures}", flush=True)
    return found


def _details(configs: list[Measurement], found: Fitted, seconds: float) -> None:
    costs = " ".join(f"{name}={cost:.2f}" for name, cost in found.as_dict()["costs"].items())
    print(f"  costs: {costs} overhead={found.point.overhead_s:.3f} s ({seconds:.0f} s of processor time)")
    ratios = [(p / c.median, c) for p, c in zip(found.predictions, configs, strict=True)]
    for ratio, config in sorted(ratios, key=lambda each: -abs(np.log(each[0])))[:5]:
        print(f"  predicted / measured {ratio:.2f}: {_plan(config)}, measured {config.median:.2f} s")


def _unseen(config: Measurement, found: Mapping[str, Fitted]) -> None:
    model = SimulatedSteps([config])
    ratios = {
        name: (model.seconds(0, each.point.costs) + each.point.overhead_s) / config.median
        for name, each in found.items()
    }
    listed = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    print(f"  unseen {_plan(config)}, measured {config.median:.2f} s: predicted / measured {listed}", flush=True)


def _fullest(configs: list[Measurement]) -> float:
    found = [estimate(one.workload, one.environment, one.plan) for one in configs]
    return max(each.total_bytes / each.limit_bytes for each in found)


def _plan(config: Measurement) -> str:
    plan = config.plan
    degrees = f"tp{plan.tp} dp{plan.dp} pp{plan.pp} ep{plan.ep}"
    return f"{degrees} mbs{plan.micro_batch_size} x{plan.num_microbatches} {plan.recompute}"


if __name__ == "__main__":
    main()
