"""The config space of a search, on another cluster: what a user asked for goes along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runs.errors import BadInputError
from runs.space import ConfigSpace

if TYPE_CHECKING:
    from launchers.frameworks.base import Framework
    from runs.environment import Environment
    from runs.workload import Workload


def is_own(space: ConfigSpace, workload: Workload, home: Environment) -> bool:
    """Whether a space that was searched at `home` is none of the bundled ones, but the user's own.

    A bundled space has the knobs that the template of its name gives there; choices and constraints may differ.
    """
    from launchers import frameworks

    try:
        bundled = frameworks.named_space(space.name, workload, home)
    except BadInputError:
        return True
    return set(bundled.keys) != set(space.keys)


def elsewhere(
    space: ConfigSpace | None,
    constraints: Sequence[str],
    framework: Framework,
    workload: Workload,
    home: Environment,
    there: Environment,
) -> ConfigSpace:
    """The space that was searched at `home`, as it is `there`; None stands for the framework's default.

    A bundled space is made anew for the cluster; a user's own stays what it is. `constraints` are the user's texts:
    those on knobs become rules of the space, those on metrics cannot be told beforehand.

    Raises:
        BadInputError: the framework cannot run there, or no choice of a knob remains.
    """
    from ccl_search.constraints import rules_for
    from launchers import frameworks

    reason = framework.supports(workload, there)
    if reason is not None:
        raise BadInputError(f"infeasible: {reason}", "choose another framework or environment")
    if space is None:
        made = framework.default_space(workload, there)
    elif is_own(space, workload, home):
        return space
    else:
        made = frameworks.named_space(space.name, workload, there)
    return rules_for(constraints, made).applied_to(made)
