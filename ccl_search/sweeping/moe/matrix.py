"""The study's matrix: one cell for each model, topology, partition, network mode and pair of algorithms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import Any

from ccl_search.sweeping import pool
from ccl_search.sweeping.moe import timing
from ccl_search.sweeping.moe.definitions import Setting, Study, all_reduce, all_to_all, gpu_seconds, study
from ccl_search.sweeping.moe.timing import Question

BASE = Setting()
_PART = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration's prefill: seconds of computation, of tensor-parallel and of expert-parallel collectives."""

    model: str
    topology: int
    tp: int
    ep: int
    mode: str
    algorithm: str
    gpu_s: float
    tp_s: float
    ep_s: float

    @property
    def comm_s(self) -> float:
        """Seconds of communication, all of it exposed: layers are serial."""
        return self.tp_s + self.ep_s

    @property
    def time_s(self) -> float:
        """Completion time."""
        return self.gpu_s + self.comm_s

    @property
    def share(self) -> float:
        """Communication as a part of the completion time."""
        return self.comm_s / self.time_s

    @property
    def place(self) -> tuple[int, int, str, str]:
        """What two cells of different models must share to be matched."""
        return self.topology, self.tp, self.mode, self.algorithm

    def as_dict(self) -> dict[str, Any]:
        """Plain data; seconds."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "comm_s": self.comm_s, "time_s": self.time_s}


@dataclass(frozen=True, slots=True)
class Place:
    """A configuration of the study under a setting, not yet timed."""

    model: str
    topology: int
    tp: int
    ep: int
    mode: str
    algorithm: str
    setting: Setting = BASE

    @property
    def questions(self) -> tuple[Question, Question]:
        """What must be known of the network: one all-reduce and one all-to-all of a layer.

        Raises:
            BadInputError: the model, the mapping or an algorithm is unknown.
        """
        model, (tensor, expert) = study().model(self.model), study().pair(self.algorithm)
        reduce = all_reduce(model, self.tp, self.ep, tensor, self.setting)
        exchange = all_to_all(model, self.tp, self.ep, expert, self.setting)
        return (
            timing.question(self.topology, self.mode, reduce, self.setting),
            timing.question(self.topology, self.mode, exchange, self.setting),
        )

    def cell(self, reduce: float, exchange: float) -> Cell:
        """The configuration with the seconds of its two collectives known."""
        model, layer = study().model(self.model), study().data["layer"]
        return Cell(
            model.key,
            self.topology,
            self.tp,
            self.ep,
            self.mode,
            self.algorithm,
            model.layers * gpu_seconds(model, self.tp, self.ep, self.setting),
            model.layers * layer["all_reduces"] * reduce,
            model.layers * layer["all_to_alls"] * exchange,
        )


class Matrix:
    """Cells with the averages that the study speaks of."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = tuple(cells)

    def of(self, **wanted: Any) -> Matrix:
        """The cells whose fields have the wanted values; a tuple means any of them."""
        cells = self.cells
        for name, value in wanted.items():
            field, values = attrgetter(name), value if isinstance(value, tuple) else (value,)
            cells = tuple(cell for cell in cells if field(cell) in values)
        return Matrix(cells)

    @property
    def models(self) -> tuple[str, ...]:
        """Models in the order of their cells."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells))

    def mean(self, field: str = "time_s") -> float:
        """Mean of a field over the cells."""
        return fmean(getattr(cell, field) for cell in self.cells)

    @property
    def share(self) -> float:
        """Mean communication over mean time."""
        return self.mean("comm_s") / self.mean()

    @property
    def fastest(self) -> Cell:
        """The cell of the lowest time."""
        return min(self.cells, key=lambda cell: cell.time_s)

    @property
    def slowest(self) -> Cell:
        """The cell of the highest time."""
        return max(self.cells, key=lambda cell: cell.time_s)


def places(what: Study, settings: Sequence[Setting], algorithms: Sequence[str] = ()) -> list[Place]:
    """The whole matrix under each setting; with other `algorithms` than its own where some are given."""
    return [
        Place(model.key, topology, tp, ep, mode, algorithm, setting)
        for setting in settings
        for model in what.models
        for topology in what.topologies
        for tp, ep in what.partitions
        for algorithm in algorithms or what.algorithms
        for mode in what.modes
    ]


def run(
    wanted: Sequence[Place], processes: int | None = None, done: Callable[[int, int, float], None] | None = None
) -> dict[Setting, Matrix]:
    """A matrix for each setting, cells in the order of the study.

    What configurations, models and settings ask alike is timed once. `done` hears of each part of the work: parts
    that have ended, parts in all, and seconds of processor time that this one took.
    """
    asked = {place: place.questions for place in wanted}
    parts = _parts(dict.fromkeys(question for pair in asked.values() for question in pair))
    answers: dict[Question, float] = {}
    for count, (part, (seconds, cpu)) in enumerate(pool.each(_timed, parts, processes), 1):
        answers.update(zip(part, seconds, strict=True))
        if done is not None:
            done(count, len(parts), cpu)
    cells: dict[Setting, list[Cell]] = {}
    for place, (reduce, exchange) in asked.items():
        cells.setdefault(place.setting, []).append(place.cell(answers[reduce], answers[exchange]))
    return {setting: Matrix(sorted(found, key=_order())) for setting, found in cells.items()}


def _parts(questions: Iterable[Question]) -> list[tuple[Question, ...]]:
    """A few questions a part, so that processes end together; those that take longest first, one network's together."""
    ordered = sorted(questions, key=_longest_first)
    return [tuple(ordered[at : at + _PART]) for at in range(0, len(ordered), _PART)]


def _longest_first(asked: Question) -> tuple[Any, ...]:
    """Many ranks of one group on an irregular server take longest."""
    irregular = asked.topology % study().data["single_server"]
    return -irregular, -len(asked.collective.groups[0]), asked.mode, asked.gbps, asked.latency, asked.parameters


def _timed(part: Sequence[Question]) -> tuple[list[float], float]:
    started = time.process_time()
    return [timing.answer(question) for question in part], time.process_time() - started


def _order() -> Callable[[Cell], tuple[int, ...]]:
    models = [model.key for model in study().models]
    modes, algorithms = study().modes, [*study().data["algorithms"], *study().data["more_algorithms"]]

    def key(cell: Cell) -> tuple[int, ...]:
        place = models.index(cell.model), cell.topology, cell.tp
        return *place, algorithms.index(cell.algorithm), modes.index(cell.mode)

    return key


def cell(topology: int, tp: int, ep: int, mode: str, key: str, algorithm: str, setting: Setting = BASE) -> Cell:
    """One configuration of the study.

    Raises:
        BadInputError: the model, the mapping or an algorithm is unknown.
    """
    place = Place(key, topology, tp, ep, mode, algorithm, setting)
    reduce, exchange = place.questions
    return place.cell(timing.answer(reduce), timing.answer(exchange))
