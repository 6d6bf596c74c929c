"""Running the study: its matrix, its screen, and with a sensitivity every variant of what its text leaves open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ccl_search.sweeping.moe import findings, matrix
from ccl_search.sweeping.moe.definitions import MAPPINGS, Setting, Study, StudyModel
from ccl_search.sweeping.moe.findings import Finding
from ccl_search.sweeping.moe.matrix import BASE, Matrix, Place
from ccl_search.sweeping.moe.quantities import DBT, RING, Results

TREE = "tree_direct"
TREE_NAME = "the tree as literature has it"
BF16_NAME = "weights in bf16"
_FACTORS = (0.5, 2.0)
_GB = 1e9
_BF16_BYTES = 2.0

Progress = Callable[[int, int, float], None]
"""Parts of the work done, parts in all, seconds so far."""


@dataclass(frozen=True)
class Experiment:
    """The study as it ran: the results under the definitions, those of every variant, and the findings.

    `tree`: time of the literature's tree, cells of `tree_direct`. `seconds`: wall time; `cpu_seconds`: processor time.
    """

    study: Study
    results: Results
    tree: Matrix
    variants: Mapping[str, Results]
    mapped: Results | None
    findings: Sequence[Finding]
    mapping: str = MAPPINGS[0]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    parameters: Mapping[str, float] = field(default_factory=dict)


def run(
    study: Study,
    *,
    sensitivity: bool = False,
    mapping: str = MAPPINGS[0],
    processes: int | None = None,
    progress: Progress | None = None,
) -> Experiment:
    """Run the study. With `sensitivity` also its variants, and the other rank mapping.

    Raises:
        BadInputError: the mapping or the number of processes is wrong.
    """
    started = time.perf_counter()
    base = replace(BASE, mapping=mapping)
    named = dict(_settings(study, base)) if sensitivity else {}
    spent = _Spent(started, progress)
    found = matrix.run(_places(study, [base, *named.values()]), processes, spent.done)
    results = {setting: _results(study, Matrix(cells.cells)) for setting, cells in found.items()}
    mine = results[base]
    mapped = next((results[s] for s in named.values() if s.mapping != mapping), None)
    variants = {name: results[setting] for name, setting in named.items()}
    if sensitivity:
        variants |= {TREE_NAME: _with_tree(found[base], mine), BF16_NAME: _in_bf16(study, mine)}
    return Experiment(
        study,
        mine,
        found[base].of(algorithm=TREE),
        variants,
        mapped,
        findings.check(mine, variants, mapped),
        mapping,
        time.perf_counter() - started,
        spent.cpu,
        {model.key: parameters(model) for model in study.models},
    )


class _Spent:
    def __init__(self, started: float, progress: Progress | None) -> None:
        self.cpu, self._started, self._progress = 0.0, started, progress

    def done(self, parts: int, total: int, cpu: float) -> None:
        self.cpu += cpu
        if self._progress is not None:
            self._progress(parts, total, time.perf_counter() - self._started)


def _places(study: Study, settings: Sequence[Setting]) -> list[Place]:
    """The matrix for every setting; for the first one also the literature's tree and the screen's ring exchanges."""
    screen, first = study.data["screen"], settings[:1]
    rings = [
        place
        for place in matrix.places(study, first, ("ring_ring",))
        if (place.model, place.mode) == (screen["model"], screen["mode"]) and place.topology in screen["topologies"]
    ]
    return [*matrix.places(study, settings), *matrix.places(study, first, (TREE,)), *rings]


def _settings(study: Study, base: Setting) -> Iterator[tuple[str, Setting]]:
    """Each variant by its name."""
    for entry in study.data["sensitivity"]:
        for factor in _FACTORS:
            yield f"{entry['name']} x{factor:g}", _scaled(base, entry["kind"], entry["what"], factor)
    for entry in study.data["settings"]:
        if "mapping" in entry:
            other = next(name for name in MAPPINGS if name != base.mapping)
            yield (
                entry["name"] if base.mapping == MAPPINGS[0] else f"rank mapping {other}",
                replace(base, mapping=other),
            )
        else:
            yield entry["name"], replace(base, network=tuple(sorted(entry["network"].items())))


def _scaled(base: Setting, kind: str, what: str, factor: float) -> Setting:
    if kind == "rate":
        return replace(base, gbps=((what, factor),))
    if kind == "latency":
        return replace(base, latency=tuple((each, factor) for each in what.split(",")))
    if kind == "gpu":
        return replace(base, gpu=factor)
    changes: dict[str, Any] = {kind: factor}
    return replace(base, **changes)


def _results(study: Study, cells: Matrix) -> Results:
    screen = study.data["screen"]
    twenty = cells.of(
        model=screen["model"],
        topology=tuple(screen["topologies"]),
        mode=screen["mode"],
        algorithm=(RING, "ring_ring"),
    )
    return Results(cells.of(algorithm=study.algorithms), twenty, weights(study))


def _with_tree(cells: Matrix, mine: Results) -> Results:
    """The results with the literature's tree in the place of ASTRA-sim's."""
    kept = cells.of(algorithm=(RING, TREE)).cells
    renamed = [replace(cell, algorithm=DBT) if cell.algorithm == TREE else cell for cell in kept]
    return replace(mine, matrix=Matrix(renamed))


def _in_bf16(study: Study, mine: Results) -> Results:
    """The results with weights of two bytes wherever no file size is stated."""
    return replace(mine, weights=weights(study, _BF16_BYTES))


def parameters(model: StudyModel) -> float:
    """Parameters of a model, counted from its shapes where none are published."""
    from backends.model.shapes import count_parameters
    from runs import catalogue

    return float(count_parameters(catalogue.workload(model.workload).model).total)


def weights(study: Study, bytes_per_parameter: float | None = None) -> dict[str, float]:
    """GB of weights a rank under even sharding: the stated file where there is one, else parameters times bytes."""
    size = bytes_per_parameter or float(study.data["weight_bytes_per_parameter"])
    return {
        model.key: (model.checkpoint_gb or parameters(model) * size / _GB) / study.data["ranks"]
        for model in study.models
    }
