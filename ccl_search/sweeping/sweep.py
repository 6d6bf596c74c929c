"""A sweep from its question to its record: configs chosen, spread over processes, recorded in order, summed up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccl_search.problem import Problem
from ccl_search.settings import SearchSettings
from ccl_search.sweeping import configs, pool
from ccl_search.sweeping.effects import Effect, main_effects
from ccl_search.sweeping.outcome import QUICK_METRICS, Batch, Outcome, Task, work
from ccl_search.sweeping.recording import KIND, Record, find
from runs.errors import BadInputError
from runs.space import Config
from runs.trial import TrialState

if TYPE_CHECKING:
    from backends.calibration import Calibration
    from runs.store import RunRecord, Store, TrialRecord

_BATCH = 8
_NETWORK_KNOBS = ("topology", "network_mode")

Progress = Callable[[int, int], None]
"""Configs recorded, configs in all."""


@dataclass(frozen=True)
class Options:
    """How a sweep goes.

    `sample` None: the grid. `quick` takes the simulator's word for the step time, `traces` keeps all traces, `top` best
    configs get a folder, `calibration` are the factors in use.
    """

    calibration: Calibration
    sample: int | None = None
    seed: int = 0
    quick: bool = False
    traces: bool = False
    top: int = 5

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for the run's row."""
        fields = ("sample", "seed", "quick", "traces", "top")
        return {**{name: getattr(self, name) for name in fields}, "calibration": self.calibration.as_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Options:
        """The inverse of `as_dict`."""
        from backends.calibration import Calibration

        return cls(**{**data, "calibration": Calibration.from_dict(data["calibration"])})


@dataclass(frozen=True)
class Sweep:
    """A recorded sweep. `effects` are over the configs that succeeded, on the objective's first metric."""

    run_id: str
    trials: Sequence[TrialRecord]
    metric: str
    unit: str
    effects: Sequence[Effect]
    interrupted: bool
    seconds: float

    @property
    def best(self) -> list[TrialRecord]:
        """Trials with a score, the best first."""
        scored = [trial for trial in self.trials if trial.score is not None]
        return sorted(scored, key=lambda trial: (-(trial.score or 0.0), trial.number))

    def count(self, state: TrialState) -> int:
        """How many trials are in this state."""
        return sum(trial.state is state for trial in self.trials)

    def as_dict(self, top: int) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "run_id": self.run_id,
            "interrupted": self.interrupted,
            "configs": len(self.trials),
            "succeeded": self.count(TrialState.SUCCEEDED),
            "failed": self.count(TrialState.FAILED),
            "pruned": self.count(TrialState.PRUNED),
            "metric": self.metric,
            "unit": self.unit,
            "best": [
                {"trial": t.number, "config": t.config, "score": t.score, "metrics": t.values} for t in self.best[:top]
            ],
            "effects": [effect.as_dict() for effect in self.effects],
            "seconds": self.seconds,
        }


def start(
    problem: Problem,
    options: Options,
    store: Store,
    settings: SearchSettings | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Sweep the space of `problem`. A stop (Ctrl-C) leaves what is recorded; `resume` goes on.

    Raises:
        BadInputError: there is nothing to sweep or too much, or a quick sweep is asked for another metric.
    """
    from ccl_search import constraints

    if options.quick:
        _check_quick(problem, options)
    settings = settings or SearchSettings(seed=options.seed)
    limits = constraints.parse(settings.constraints, problem.space)
    problem = replace(problem, space=limits.applied_to(problem.space))
    wanted = _wanted(problem, options)
    record = Record.create(store, problem, settings, options.as_dict(), options.calibration)
    return _drive(record, wanted, options, settings, processes, progress)


def resume(reference: str, store: Store, processes: int | None = None, progress: Progress | None = None) -> Sweep:
    """Go on with an interrupted sweep, or show one that has ended.

    Raises:
        BadInputError: there is no such run, or it is a search.
    """
    run = find(store, reference)
    problem = _problem(run)
    options, settings = Options.from_dict(run.options[KIND]), SearchSettings.from_dict(run.options["settings"])
    wanted = _wanted(problem, options)
    if run.status.value == "finished":
        return _summary(store, run.id, problem, False, 0.0)
    return _drive(Record.reopen(store, run, problem), wanted, options, settings, processes, progress)


def _wanted(problem: Problem, options: Options) -> list[Config]:
    """The configs in their order, those of one network beside each other: a process times the collectives of few."""
    found = configs.chosen(problem, options.sample, options.seed)
    return sorted(found, key=lambda config: [str(config.get(knob, "")) for knob in _NETWORK_KNOBS])


def _check_quick(problem: Problem, options: Options) -> None:
    strange = [term.spec.name for term in problem.objective.terms if term.spec.name not in QUICK_METRICS]
    if strange:
        raise BadInputError(
            f"a quick sweep does not know {strange[0]}", f"it knows {' and '.join(QUICK_METRICS)}; leave out --quick"
        )
    if options.traces:
        raise BadInputError("--quick and --traces contradict each other", "leave one out")


def _problem(run: RunRecord) -> Problem:
    from launchers import frameworks
    from runs.card import parse_card

    card = parse_card(run.card, run.id).card
    framework = frameworks.get(run.framework)
    workload, environment = card.workload(), card.environment()
    return Problem(card, workload, environment, framework, run.config_space(), run.typed_objective())


def _drive(
    record: Record,
    wanted: Sequence[Config],
    options: Options,
    settings: SearchSettings,
    processes: int | None,
    progress: Progress | None,
) -> Sweep:
    started = time.perf_counter()
    done = len(record.store.trials(record.run_id))
    interrupted, reason = False, f"all {len(wanted)} configs"
    if progress is not None:
        progress(done, len(wanted))
    try:
        for outcomes in _in_order(_batches(record, wanted, options, done), processes, done):
            record.add(outcomes)
            done += len(outcomes)
            if progress is not None:
                progress(done, len(wanted))
    except KeyboardInterrupt:
        interrupted, reason = True, "stopped by the user"
    except BaseException as error:
        record.finish(True, f"{type(error).__name__}: {error}")
        raise
    record.keep_best(settings, options.top)
    record.finish(interrupted, reason)
    return _summary(record.store, record.run_id, record.problem, interrupted, time.perf_counter() - started)


def _batches(record: Record, wanted: Sequence[Config], options: Options, done: int) -> list[Batch]:
    """What is left, a few neighbours a batch."""
    tasks = [Task(index, wanted[index], _folder(record, options, index)) for index in range(done, len(wanted))]
    return [
        Batch(record.problem, options.calibration, options.quick, tuple(tasks[at : at + _BATCH]))
        for at in range(0, len(tasks), _BATCH)
    ]


def _folder(record: Record, options: Options, index: int) -> Any:
    """The trace folder of a trial, whose number is its place in the sweep."""
    if not options.traces:
        return None
    return record.store.home / "runs" / record.run_id / "trials" / str(index) / "trace"


def _in_order(batches: Sequence[Batch], processes: int | None, first: int) -> Iterator[list[Outcome]]:
    """Outcomes by their index without a gap, as many at a time as there are."""
    waiting: dict[int, Outcome] = {}
    for _, outcomes in pool.each(work, batches, processes):
        waiting.update((outcome.index, outcome) for outcome in outcomes)
        ready = []
        while first in waiting:
            ready.append(waiting.pop(first))
            first += 1
        if ready:
            yield ready


def _summary(store: Store, run_id: str, problem: Problem, interrupted: bool, seconds: float) -> Sweep:
    trials = store.trials(run_id)
    spec = problem.objective.terms[0].spec
    rows = [
        (trial.config, trial.values[spec.name])
        for trial in trials
        if trial.state is TrialState.SUCCEEDED and trial.config is not None and spec.name in trial.values
    ]
    effects = main_effects(rows, spec.direction)
    return Sweep(run_id, trials, spec.name, spec.unit, effects, interrupted, seconds)
