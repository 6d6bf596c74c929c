"""The study's matrix: one cell for each model, topology, partition, network mode and pair of algorithms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ccl_search.sweeping import pool
from ccl_search.sweeping.moe import timing
from ccl_search.sweeping.moe.definitions import Setting, Study, all_reduce, all_to_all, gpu_seconds, study

BASE = Setting()


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


@dataclass(frozen=True)
class Job:
    """Models on a topology with a partition: cells of one job share their collectives, those of two do not.

    `more` are algorithms that only the first of the settings is asked for.
    """

    topology: int
    tp: int
    ep: int
    models: tuple[str, ...]
    modes: tuple[str, ...]
    algorithms: tuple[str, ...]
    settings: tuple[Setting, ...]
    more: tuple[str, ...] = ()


class Matrix:
    """Cells with the averages that the study speaks of."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.cells = tuple(cells)

    def of(self, **wanted: Any) -> Matrix:
        """The cells whose fields have the wanted values; a tuple means any of them."""
        return Matrix(cell for cell in self.cells if all(_fits(getattr(cell, k), v) for k, v in wanted.items()))

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


def _fits(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def jobs(what: Study, settings: Sequence[Setting], more: Sequence[str] = ()) -> list[Job]:
    """The matrix as jobs of one model each, the longest first (many ranks of one group on an irregular server)."""
    found = [
        Job(
            topology,
            tp,
            ep,
            (model.key,),
            what.modes,
            what.algorithms,
            tuple(settings),
            tuple(more),
        )
        for topology in what.topologies
        for tp, ep in what.partitions
        for model in what.models
    ]
    return sorted(found, key=lambda job: (-(job.topology % what.data["single_server"]), -job.tp))


def run(
    found: Sequence[Job], processes: int | None = None, done: Callable[[Job, float], None] | None = None
) -> dict[Setting, Matrix]:
    """Work the jobs off; a matrix for each setting, cells in the order of the study.

    `done` hears of each job and the seconds of processor time that it took.
    """
    cells: dict[Setting, list[Cell]] = {}
    for job, (by_setting, cpu) in pool.each(_timed, found, processes):
        for setting, some in by_setting.items():
            cells.setdefault(setting, []).extend(some)
        if done is not None:
            done(job, cpu)
    order = {setting: None for job in found for setting in job.settings}
    return {setting: Matrix(sorted(cells[setting], key=_order())) for setting in order}


def _timed(job: Job) -> tuple[dict[Setting, list[Cell]], float]:
    started = time.process_time()
    return work(job), time.process_time() - started


def _order() -> Callable[[Cell], tuple[int, ...]]:
    models = [model.key for model in study().models]
    modes, algorithms = study().modes, [*study().data["algorithms"], *study().data["more_algorithms"]]

    def key(cell: Cell) -> tuple[int, ...]:
        place = models.index(cell.model), cell.topology, cell.tp
        return *place, algorithms.index(cell.algorithm), modes.index(cell.mode)

    return key


def work(job: Job) -> dict[Setting, list[Cell]]:
    """All cells of a job; collectives that settings, models and modes share are timed once."""
    return {
        setting: [
            cell(job.topology, job.tp, job.ep, mode, model, algorithm, setting)
            for model in job.models
            for algorithm in (*job.algorithms, *(job.more if setting is job.settings[0] else ()))
            for mode in job.modes
        ]
        for setting in job.settings
    }


def cell(topology: int, tp: int, ep: int, mode: str, key: str, algorithm: str, setting: Setting = BASE) -> Cell:
    """One configuration of the study.

    Raises:
        BadInputError: the model, the mapping or an algorithm is unknown.
    """
    what = study()
    model, (tensor, expert) = what.model(key), what.pair(algorithm)
    layer = what.data["layer"]
    reduce = timing.seconds(topology, mode, all_reduce(model, tp, ep, tensor, setting), setting)
    exchange = timing.seconds(topology, mode, all_to_all(model, tp, ep, expert, setting), setting)
    return Cell(
        model.key,
        topology,
        tp,
        ep,
        mode,
        algorithm,
        model.layers * gpu_seconds(model, tp, ep, setting),
        model.layers * layer["all_reduces"] * reduce,
        model.layers * layer["all_to_alls"] * exchange,
    )
