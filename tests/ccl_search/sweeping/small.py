"""A space small enough to be swept in a test, and a study of made-up cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccl_search.problem import Problem, ProblemSource, resolve
from ccl_search.sweeping.moe.matrix import Cell, Matrix
from ccl_search.sweeping.moe.quantities import Results

SPACE = """
name: small
world_size: tp * pp * dp
knobs:
  - {key: tp, type: int, choices: [1, 2, 4], description: tensor}
  - {key: pp, type: int, choices: [1, 2], description: pipeline}
  - {key: dp, type: int, choices: [1, 2, 4], description: data}
  - {key: dp_shard, type: int, choices: [1, 2, 4], description: shards}
  - {key: micro_batch_size, type: int, choices: [1], description: sequences}
constraints:
  - tp * pp * dp == 8
  - dp == dp_shard
"""
VALID = [(1, 2, 4), (2, 1, 4), (2, 2, 2), (4, 1, 2), (4, 2, 1)]
"""(tp, pp, dp) of every config of the space, by hand: products of 8."""


def problem(folder: Path, objectives: tuple[str, ...] = ("avg_step_time",)) -> Problem:
    path = folder / "small.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return resolve(ProblemSource(space=str(path), objectives=objectives))


MODELS = ("flash", "kimi-k3", "glm", "v4-pro")


def results(**changed: Any) -> Results:
    """A made-up matrix in which every finding but those about matched ranks holds; `changed` maps a name to a rule.

    A rule gives the time of a configuration (model, topology, tp, mode, algorithm) or None for the usual one.
    """
    rule = changed.get("time", lambda *_: None)
    cells = []
    for model in MODELS:
        for topology in range(1, 7):
            for tp in (2, 4, 8, 16):
                for algorithm in ("ring_direct", "dbt_direct"):
                    for mode in ("ib-none", "ib-hpcc", "roce-hpcc", "roce-dcqcn"):
                        where = (model, topology, tp, mode, algorithm)
                        time = rule(*where)
                        time = usual(*where) if time is None else time
                        cells.append(
                            Cell(model, topology, tp, 32 // tp, mode, algorithm, 0.1 * time, 0.6 * time, 0.3 * time)
                        )
    ring = Cell("kimi-k3", 1, 2, 16, "roce-hpcc", "ring_direct", 0.0, 0.5, 0.5)
    rings = Cell("kimi-k3", 1, 2, 16, "roce-hpcc", "ring_ring", 0.0, 0.5, 2.0)
    weights = changed.get("weights", dict.fromkeys(MODELS, 40.0))
    return Results(Matrix(cells), Matrix([ring, rings]), weights)


SCALE = {"flash": 1.0, "kimi-k3": 2.0, "v4-pro": 2.2, "glm": 3.0}
PLACE = {6: 1.0, 1: 1.2, 2: 1.3, 3: 1.8, 4: 1.6, 5: 1.7}
MODE = {"ib-none": 0.98, "ib-hpcc": 0.995, "roce-hpcc": 1.0, "roce-dcqcn": 1.3}
TREE = {2: 1.1, 4: 1.3, 8: 1.6, 16: 2.0}


def usual(model: str, topology: int, tp: int, mode: str, algorithm: str) -> float:
    """A time that follows the study's findings."""
    time: float = SCALE[model] * PLACE[topology] * float(tp) ** 0.6
    if topology != 6:
        time *= MODE[mode] * (1.2 if topology == 3 and mode == "roce-dcqcn" else 1.0)
    if algorithm == "dbt_direct":
        time *= TREE[tp]
    if topology == 6:
        time *= {2: 0.7, 4: 0.8, 8: 0.9, 16: 1.4}[tp]
    return time
