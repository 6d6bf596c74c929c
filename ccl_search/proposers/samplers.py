"""Proposers that sample configs and need no model of anything: `random` and `grid`, the baselines to beat."""

from __future__ import annotations

import random
from collections.abc import Callable

from ccl_search.proposers.base import Proposal, ProposalContext, ProposerExhaustedError, constant_policy
from runs.space import Config, config_key

_MAX_DRAWS = 20_000


def seen_configs(context: ProposalContext) -> set[str]:
    """Keys of every config the run has tried, refused or has in flight."""
    trials = (*context.history, *context.running)
    return {config_key(trial.config) for trial in trials if trial.config is not None}


def is_new_and_valid(config: Config, context: ProposalContext, seen: set[str]) -> bool:
    """Whether `config` was not proposed before and breaks no rule of the space."""
    if config_key(config) in seen:
        return False
    return not context.space.violations(config, context.workload, context.environment)


class RandomProposer:
    """Draws uniformly from the valid configs not tried yet; the draw depends on the seed and the history's length."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, context: ProposalContext) -> Proposal:
        """A config drawn at random.

        Raises:
            ProposerExhaustedError: no new valid config was found, by drawing or by walking the whole space.
        """
        draw = random.Random(f"{self._seed}:{len(context.history) + len(context.running)}")  # noqa: S311 - sampling, not secrets
        seen = seen_configs(context)
        for _ in range(_MAX_DRAWS):
            config = {knob.key: draw.choice(knob.choices) for knob in context.space.knobs}
            if is_new_and_valid(config, context, seen):
                return Proposal(constant_policy(config), "drawn at random from the valid configs")
        return Proposal(constant_policy(_first_untried(context, seen)), "the first valid config not tried yet")

    def close(self) -> None:
        """Nothing is held."""


class GridProposer:
    """Walks the valid configs that fit in memory, in the order of the space.

    `fits` tells of a valid config whether it does: a grid learns nothing from refusals, which would use up its
    iterations where the first configs of a space are the largest.
    """

    name = "grid"

    def __init__(self, fits: Callable[[Config], bool] = lambda _config: True) -> None:
        self._fits = fits
        self._unfit: set[str] = set()

    def propose(self, context: ProposalContext) -> Proposal:
        """The next config of the grid.

        Raises:
            ProposerExhaustedError: the grid is at its end.
        """
        config = _first_untried(context, seen_configs(context), self._is_fit)
        return Proposal(constant_policy(config), "next in the order of the space")

    def _is_fit(self, config: Config) -> bool:
        key = config_key(config)
        if key not in self._unfit and not self._fits(config):
            self._unfit.add(key)
        return key not in self._unfit

    def close(self) -> None:
        """Nothing is held."""


def _first_untried(
    context: ProposalContext, seen: set[str], is_fit: Callable[[Config], bool] = lambda _config: True
) -> Config:
    for config in context.space.valid_configs(context.workload, context.environment):
        if config_key(config) not in seen and is_fit(config):
            return config
    raise ProposerExhaustedError("every valid config of the space has been tried")
