"""Choosing the next config: estimate every untried one with what the trials taught, and take the most promising."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ccl_search.proposers.base import ProposalContext, ProposerExhaustedError, TrialView
from ccl_search.proposers.guided.calibration import MEMORY_SLACK, Calibration, learn
from ccl_search.proposers.guided.envelope import estimate
from ccl_search.proposers.guided.expecting import Candidate, Expectation, Expecting
from ccl_search.proposers.guided.frontier import gains
from ccl_search.proposers.guided.setting import Setting
from ccl_search.proposers.guided.surprise import Surprise, coordinates, regress
from ccl_search.proposers.samplers import seen_configs
from runs.errors import BadInputError
from runs.space import Config, EndlessSpaceError, config_key

if TYPE_CHECKING:
    from ccl_search.proposers.guided.surprise import Floats

_MAX_CANDIDATES = 20_000
_VERY_MANY = 100_000
_BOLD, _CAUTIOUS = 1.0, 0.2


@dataclass(frozen=True)
class Choice:
    """The config to propose and the step time expected of it, in seconds.

    `gain` is the hypervolume it should add to the front, None where no front is asked for or known.
    """

    config: Config
    step: float
    gain: float | None = None


@dataclass
class Chooser:
    """The valid configs of one problem, with all that does not change from iteration to iteration."""

    setting: Setting
    candidates: list[Candidate]
    places: Floats

    @classmethod
    def of(cls, context: ProposalContext) -> Chooser:
        """Enumerate the space of `context`: at most 20,000 valid configs (see `_considered`).

        Raises:
            ProposerExhaustedError: no valid config was found, for so long that the walk was given up.
        """
        setting = Setting.of(context.workload, context.environment)
        candidates: list[Candidate] = []
        for config in _considered(context):
            try:
                devices = context.space.world_size(config, context.workload, context.environment)
            except BadInputError:
                continue  # such a config is refused before a launch
            candidates.append(Candidate(config, config_key(config), estimate(config, setting), devices))
        places = coordinates([found.config for found in candidates], context.space)
        return cls(setting, candidates, places)

    def choose(self, context: ProposalContext) -> Choice:
        """The untried config with the best score when the step is as short as it plausibly may be; in a Pareto search
        the one that then adds most hypervolume. Configs that should break a limit come last.

        How plausible: one standard deviation of the estimate's error at first, ever less towards the last iteration.

        Raises:
            ProposerExhaustedError: every valid config has been tried.
        """
        calibration = learn(context.history, self.setting)
        open_ones = self._open(context, calibration)
        errors = self._errors(open_ones, calibration, context)
        boldness = _boldness(context)
        expecting, found = Expecting(context, boldness), []
        for row, index in enumerate(open_ones):
            candidate = self.candidates[index]
            expected = calibration.scaled(candidate.envelope)
            step = expected.total * math.exp(float(errors.mean[row]))
            hoped = step * math.exp(-boldness * float(errors.deviation[row]))
            found.append(expecting.of(candidate, expected, step, hoped))
        if not found:
            raise ProposerExhaustedError("every valid config of the space has been tried")
        return _best(found, context)

    def _open(self, context: ProposalContext, calibration: Calibration) -> list[int]:
        """Candidates not tried yet; those that should not fit in memory only when no others are left."""
        seen = seen_configs(context)
        left = [index for index, found in enumerate(self.candidates) if found.key not in seen]
        limit = self.setting.memory_gb * MEMORY_SLACK / calibration.memory
        return [index for index in left if self.candidates[index].envelope.memory_gb <= limit] or left

    def _errors(self, rows: Sequence[int], calibration: Calibration, context: ProposalContext) -> Surprise:
        tried = coordinates([sample.config for sample in calibration.samples], context.space)
        return regress(self.places[list(rows)], tried, calibration.errors())


def _considered(context: ProposalContext) -> list[Config]:
    """The first valid configs of the space; of a space with very many, configs from all over it, always the same.

    The first of very many would be a corner: all of them with the first choices of the first knobs.
    """
    found: list[Config] = []
    try:
        walk = context.space.valid_configs(context.workload, context.environment)
        found.extend(islice(walk, _MAX_CANDIDATES))
        if next(islice(walk, _VERY_MANY - _MAX_CANDIDATES, None), None) is None:
            return found
    except EndlessSpaceError as error:
        if not found:
            raise ProposerExhaustedError(error.message) from error
    draw = random.Random(0)  # noqa: S311 - sampling, not secrets
    scattered = context.space.scattered_configs(context.workload, context.environment, draw)
    return list({config_key(config): config for config in islice(scattered, _MAX_CANDIDATES)}.values())


def explain(choice: Choice, context: ProposalContext) -> str:
    """Why: where the best trial loses its time, and what changes."""
    best = context.best
    if best is None or best.config is None:
        return "nothing has succeeded yet: the config that should be fastest among those that fit"
    changes = [
        f"{key} {best.config.get(key)} to {value}"
        for key, value in choice.config.items()
        if best.config.get(key) != value
    ]
    head = f"best is trial {best.number}; {_bottleneck(best)}. Change {', '.join(changes)}; expect {choice.step:.4g} s"
    if choice.gain is None or context.pareto is None:
        return head
    count = len(context.pareto.front)
    return f"the front has {count} point{'' if count == 1 else 's'}; this one should add most to it. {head}"


def _boldness(context: ProposalContext) -> float:
    left = 1 - (context.iteration - 1) / max(1, context.iterations - 1)
    return _CAUTIOUS + (_BOLD - _CAUTIOUS) * max(0.0, left)


def _best(expectations: Sequence[Expectation], context: ProposalContext) -> Choice:
    """Of those that should break the user's limits least: the most added hypervolume, or the highest score."""
    least = min(found.excess for found in expectations)
    left = [found for found in expectations if found.excess <= least]
    front = context.pareto.front if context.pareto is not None else ()
    added = gains(left, context.pareto) if context.pareto is not None and front else [0.0] * len(left)
    gain, _, _, place = max(
        (gain, found.promise, found.candidate.key, place)
        for place, (gain, found) in enumerate(zip(added, left, strict=True))
    )
    return Choice(left[place].candidate.config, left[place].step, gain if front else None)


def _bottleneck(trial: TrialView) -> str:
    step = trial.metrics.get("avg_step_time")
    if not step:
        return "its step time is unknown"
    parts = {
        "exposed communication": trial.metrics.get("step_exposed_comm_time", 0.0) / step,
        "the pipeline bubble": trial.metrics.get("bubble_fraction", 0.0) / 100,
        "compute": trial.metrics.get("step_compute_time", 0.0) / step,
    }
    name, share = max(parts.items(), key=lambda part: part[1])
    return f"{name} is {share:.0%} of its step"
