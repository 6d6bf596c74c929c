"""Proposers that sample configs and need no model of anything: `random` and `grid`, the baselines to beat."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

from ccl_search.proposers.base import Proposal, ProposalContext, ProposerExhaustedError, constant_policy
from runs.space import Config, EndlessSpaceError, config_key

_MAX_DRAWS = 20_000
_MAX_WALKS = 200


class Fitting:
    """Whether a valid config fits in memory, each asked once: what does not would only come back as a refusal."""

    def __init__(self, fits: Callable[[Config], bool]) -> None:
        self._fits = fits
        self._known: dict[str, bool] = {}

    def __call__(self, config: Config) -> bool:
        """Whether `config` fits."""
        key = config_key(config)
        if key not in self._known:
            self._known[key] = self._fits(config)
        return self._known[key]


def anything_fits(_config: Config) -> bool:
    """For a search that knows nothing of memory."""
    return True


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
    """Draws uniformly from the valid configs not tried yet that fit in memory, as `fits` tells.

    The draw depends on the seed and the history's length.
    """

    name = "random"

    def __init__(self, seed: int, fits: Callable[[Config], bool] = anything_fits) -> None:
        self._seed = seed
        self._fits = Fitting(fits)

    def propose(self, context: ProposalContext) -> Proposal:
        """A config drawn at random.

        Raises:
            ProposerExhaustedError: no new config that fits was found, by drawing or by walking the space.
        """
        draw = random.Random(f"{self._seed}:{len(context.history) + len(context.running)}")  # noqa: S311 - sampling, not secrets
        seen = seen_configs(context)
        for _ in range(_MAX_DRAWS):
            config = {knob.key: draw.choice(knob.choices) for knob in context.space.knobs}
            if is_new_and_valid(config, context, seen) and self._fits(config):
                return Proposal(constant_policy(config), "drawn at random from the valid configs that fit in memory")
        scattered = context.space.scattered_configs(context.workload, context.environment, draw)
        for config in islice(scattered, _MAX_WALKS):
            if config_key(config) not in seen and self._fits(config):
                return Proposal(constant_policy(config), "the end of a random walk through a thinly settled space")
        config = _first_untried(context, seen, self._fits)
        return Proposal(constant_policy(config), "the first valid config not tried yet")

    def close(self) -> None:
        """Nothing is held."""


class GridProposer:
    """Walks the valid configs that fit in memory, in the order of the space.

    `fits` tells of a valid config whether it does: a grid learns nothing from refusals, which would use up its
    iterations where the first configs of a space are the largest.
    """

    name = "grid"

    def __init__(self, fits: Callable[[Config], bool] = anything_fits) -> None:
        self._fits = Fitting(fits)

    def propose(self, context: ProposalContext) -> Proposal:
        """The next config of the grid.

        Raises:
            ProposerExhaustedError: the grid is at its end.
        """
        config = _first_untried(context, seen_configs(context), self._fits)
        return Proposal(constant_policy(config), "next in the order of the space")

    def close(self) -> None:
        """Nothing is held."""


def _first_untried(context: ProposalContext, seen: set[str], fits: Callable[[Config], bool]) -> Config:
    try:
        for config in context.space.valid_configs(context.workload, context.environment):
            if config_key(config) not in seen and fits(config):
                return config
    except EndlessSpaceError as error:
        raise ProposerExhaustedError(error.message) from error
    raise ProposerExhaustedError("every valid config of the space has been tried")
