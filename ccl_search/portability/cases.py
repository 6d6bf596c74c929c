"""The cases in which a policy is tried: every bundled environment, and perturbations of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ccl_search.portability.spaces import elsewhere
from ccl_search.problem import Problem
from runs import catalogue
from runs.digests import text_sha256
from runs.environment import Environment
from runs.errors import BadInputError
from runs.space import ConfigSpace

if TYPE_CHECKING:
    from launchers.frameworks.base import Framework
    from runs.workload import Workload

ODD_NODES = (3, 5, 7)
MEMORY_GB = (16.0, 24.0, 48.0, 80.0, 141.0, 192.0)

_KEPT_FACTS = ("framework", "total_gpus", "xpu_type")
_UNSET_OF_WORKLOAD = ("num_params", "num_layers", "num_kv_heads", "hidden_size", "vocab_size", "precision")


@dataclass(frozen=True)
class Home:
    """Where a policy was made: workload, environment, framework, the space searched there, the user's constraints.

    `space` None is the framework's default; one that is none of the bundled ones is used in every case as it is.
    """

    workload: Workload
    environment: Environment
    framework: Framework
    space: ConfigSpace | None = None
    constraints: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """A hash of all that is taken along from home."""
        at_home = _machines(self.environment)
        workload = self.workload.policy_input()
        space = None if self.space is None else self.space.as_dict()
        return _digest([workload, at_home, self.framework.name, space, self.constraints])

    def space_on(self, there: Environment) -> ConfigSpace:
        """The space of a case.

        Raises:
            BadInputError: the framework cannot run there, or no choice of a knob remains.
        """
        return elsewhere(self.space, self.constraints, self.framework, self.workload, self.environment, there)


@dataclass(frozen=True)
class Case:
    """One pair of inputs. `unset` are facts that the policy is not told, though they are what they are."""

    name: str
    kind: str
    home: Home
    environment: Environment
    unset: tuple[str, ...] = ()

    @property
    def problem(self) -> Problem | None:
        """The case as a search would see it; None where the framework cannot run the workload there at all."""
        if self.fingerprint not in _PROBLEMS:
            if len(_PROBLEMS) >= _MOST_PROBLEMS:
                _PROBLEMS.clear()
            _PROBLEMS[self.fingerprint] = _problem(self.home, self.environment)
        return _PROBLEMS[self.fingerprint]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the problem: of all that decides which configs there are and how long they are predicted to take,
        but for the frameworks' rules and the simulator."""
        return _digest([self.home.digest, _machines(self.environment)])

    def inputs(self, problem: Problem) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the policy is given."""
        given = problem.workload_input, problem.environment_input
        workload, environment = ({k: v for k, v in facts.items() if k not in self.unset} for facts in given)
        return workload, environment


_PROBLEMS: dict[str, Problem | None] = {}
_MOST_PROBLEMS = 512


def _problem(home: Home, there: Environment) -> Problem | None:
    from metrics import registry
    from runs import objective
    from runs.card import card_from

    try:
        space = home.space_on(there)
    except BadInputError:
        return None
    goal = objective.build([registry.spec("avg_step_time")], None)
    return Problem(card_from(home.workload, there), home.workload, there, home.framework, space, goal)


def _machines(environment: Environment) -> dict[str, Any]:
    """What decides how something runs there: not how it is called, nor where the figures are from."""
    found = {key: value for key, value in vars(environment).items() if key not in ("name", "source")}
    return {**found, "device": {key: value for key, value in vars(environment.device).items() if key != "source"}}


def _digest(document: Any) -> str:
    return text_sha256(json.dumps(document, sort_keys=True, default=str))


def cases(home: Home) -> tuple[Case, ...]:
    """Every bundled environment the framework runs on, then perturbations of the one at home: half, double and odd
    counts of nodes, other memory sizes, and one unset fact at a time."""
    return (
        *_bundled(home),
        *(Case(name, kind, home, there) for name, kind, there in _perturbed(home.environment)),
        *_unset(home),
    )


def _bundled(home: Home) -> Iterator[Case]:
    for name in catalogue.environment_names():
        there = catalogue.with_framework(catalogue.environment(name), home.framework.name, home.framework.version)
        if home.framework.supports(home.workload, there) is None:
            yield Case(name, "bundled", home, there)


def _perturbed(base: Environment) -> Iterator[tuple[str, str, Environment]]:
    per_node = base.xpus_per_node
    sizes = {"half": base.total_xpus // 2, "double": 2 * base.total_xpus}
    sizes |= {f"{nodes} nodes": nodes * per_node for nodes in ODD_NODES}
    for name, total in sizes.items():
        if total >= 1:
            there = replace(base, total_xpus=total, xpus_per_node=min(per_node, total), name=f"{base.name}, {name}")
            yield f"{name} ({total} devices)", "odd nodes" if "nodes" in name else "size", there
    for memory in MEMORY_GB:
        if memory != base.device_memory_gb:
            there = replace(base, memory_gb=memory, name=f"{base.name}, {memory:g} GB")
            yield f"{memory:g} GB a device", "memory", there


def _unset(home: Home) -> Iterator[Case]:
    facts = [key for key in home.environment.policy_input() if key not in _KEPT_FACTS]
    known = home.workload.policy_input()
    for key in (*facts, *(key for key in _UNSET_OF_WORKLOAD if key in known)):
        yield Case(f"{key} unset", "unset fact", home, home.environment, (key,))
