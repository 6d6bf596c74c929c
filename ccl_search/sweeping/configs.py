"""Which configs a sweep tries: the whole grid of valid ones, or a sample of it."""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING

from runs.errors import BadInputError
from runs.space import Config, config_key

if TYPE_CHECKING:
    from ccl_search.problem import Problem

LARGEST_GRID = 20_000
"""Valid configs that a sweep without --sample takes; above, it asks for a sample."""
_DRAWS_PER_CONFIG = 200


def chosen(problem: Problem, sample: int | None, seed: int) -> list[Config]:
    """Every valid config in the order of the grid, or `sample` different ones drawn at random.

    A sample as large as the grid is the grid. Equal problems, samples and seeds give equal lists.

    Raises:
        BadInputError: `sample` is below one, no config is valid, or there are more than `LARGEST_GRID` and no sample.
    """
    if sample is not None and sample < 1:
        raise BadInputError(f"--sample {sample}", "draw at least one config")
    found = _grid(problem) if sample is None else _sample(problem, sample, seed)
    if not found:
        raise BadInputError(
            f"no config of space {problem.space.name!r} satisfies its constraints", "loosen one, or add choices"
        )
    return found


def _grid(problem: Problem) -> list[Config]:
    valid = problem.space.valid_configs(problem.workload_input, problem.environment_input)
    found = list(islice(valid, LARGEST_GRID + 1))
    if len(found) > LARGEST_GRID:
        raise BadInputError(
            f"space {problem.space.name!r} has more than {LARGEST_GRID} valid configs", "draw some with --sample N"
        )
    return found


def _sample(problem: Problem, sample: int, seed: int) -> list[Config]:
    """Draws from the grid's points, valid ones kept; the grid itself where draws find too few."""
    space, inputs = problem.space, (problem.workload_input, problem.environment_input)
    draw = random.Random(seed)  # noqa: S311 - sampling, not secrets
    found: dict[str, Config] = {}
    for _ in range(max(space.size, sample) if space.size < LARGEST_GRID else _DRAWS_PER_CONFIG * sample):
        config = {knob.key: draw.choice(knob.choices) for knob in space.knobs}
        if not space.violations(config, *inputs):
            found.setdefault(config_key(config), config)
        if len(found) == sample:
            return list(found.values())
    valid = list(islice(space.valid_configs(*inputs), LARGEST_GRID))
    return draw.sample(valid, min(sample, len(valid)))
