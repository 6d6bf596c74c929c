"""A config of one framework in the words of another: knob by knob through what the config means, with a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from runs.errors import BadInputError
from runs.space import Config, ConfigSpace, Knob

if TYPE_CHECKING:
    from launchers.frameworks.base import Framework
    from runs.environment import Environment
    from runs.plan import ParallelPlan
    from runs.workload import Workload

_MOST_CONFIGS = 20_000
_DEGREES = ("tp", "cp", "pp", "dp", "ep")
_MEANING = {
    "activation_checkpointing": "recompute",
    "dp": "dp",
    "dp_replicate": "dp_replicate",
    "dp_shard": "dp_shard",
}
_DEGREE_WEIGHT, _OTHER_WEIGHT = 10.0, 1.0


@dataclass(frozen=True)
class KnobNote:
    """What became of one knob: `how` is `kept`, `translated`, `nearest`, `default` or `left out`."""

    knob: str
    before: Any
    after: Any
    how: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Translation:
    """The translated config and a note for every knob of either framework."""

    config: Config
    notes: tuple[KnobNote, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"config": self.config, "knobs": [note.as_dict() for note in self.notes]}


def translate(
    config: Mapping[str, Any], source: Framework, space: ConfigSpace, workload: Workload, environment: Environment
) -> Translation:
    """`config`, which is one of framework `source`, as a config of `space` (another framework's).

    A knob of the same name and value is kept; otherwise its value is what the config means in the plan; a value the
    space does not offer becomes the nearest one. Where constraints forbid the result, the valid config of the space
    that differs least is taken, parallel degrees counting most.

    Raises:
        BadInputError: `source` gives the config no meaning there, or the space has no valid config.
    """
    plan = source.plan(config, workload, environment)
    wanted = {knob.key: _wanted(knob, config, plan) for knob in space.knobs}
    result = {key: value for key, (value, _) in wanted.items()}
    inputs = workload.policy_input(), environment.policy_input()
    if space.violations(result, *inputs):
        result = _nearest_valid(result, space, *inputs)
    notes = [_note(knob.key, config, wanted[knob.key], result[knob.key]) for knob in space.knobs]
    notes += [KnobNote(key, value, None, "left out") for key, value in config.items() if key not in space.keys]
    return Translation(result, tuple(notes))


def _wanted(knob: Knob, config: Mapping[str, Any], plan: ParallelPlan) -> tuple[Any, str]:
    """The value a knob should take, and how it was found."""
    if knob.key in config and knob.allows(config[knob.key]):
        return config[knob.key], "kept"
    meant = getattr(plan, _MEANING.get(knob.key, knob.key), None)
    if meant is None:
        return knob.choices[0], "default"
    if knob.allows(meant):
        return meant, "translated"
    return _nearest(knob, meant), "nearest"


def _nearest(knob: Knob, value: Any) -> Any:
    if knob.type == "int" and type(value) is int:
        return min(knob.choices, key=lambda choice: (_distance(choice, value), choice))
    return knob.choices[0]


def _distance(one: int, other: int) -> float:
    return abs(math.log2(one) - math.log2(other)) if one > 0 and other > 0 else float(abs(one - other))


def _nearest_valid(
    wanted: Config, space: ConfigSpace, workload: Mapping[str, Any], environment: Mapping[str, Any]
) -> Config:
    candidates = list(islice(space.valid_configs(workload, environment), _MOST_CONFIGS))
    if not candidates:
        raise BadInputError(f"no config of space {space.name!r} is valid there", "choose another environment")
    return min(candidates, key=lambda config: sum(_cost(key, wanted[key], config[key]) for key in space.keys))


def _cost(key: str, wanted: Any, value: Any) -> float:
    if type(wanted) is type(value) and wanted == value:
        return 0.0
    weight = _DEGREE_WEIGHT if key in _DEGREES else _OTHER_WEIGHT
    return weight * (_distance(wanted, value) if type(wanted) is int and type(value) is int else 1.0)


def _note(key: str, config: Mapping[str, Any], wanted: tuple[Any, str], result: Any) -> KnobNote:
    value, how = wanted
    same = type(value) is type(result) and value == result
    return KnobNote(key, config.get(key), result, how if same else "nearest")
