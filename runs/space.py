"""The config space: knobs with typed choices, constraints over them, and what a config must satisfy."""

from __future__ import annotations

import itertools
import json
import keyword
import math
import random
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runs import expressions
from runs.errors import BadInputError
from runs.expressions import Expression, MissingFactError
from runs.yaml_file import read_yaml

Config = dict[str, Any]
MOST_KNOBS = 64
"""Keys that a policy's config may have."""

MOST_DEAD_ENDS = 1_000_000
"""Choices tried one after another without a valid config, after which a walk gives up (some ten seconds)."""

_SIZE_HINT = "write the number of devices, as `world_size: tp * pp * dp`"
_TYPES: dict[str, type] = {"int": int, "str": str, "bool": bool, "float": float}


class EndlessSpaceError(BadInputError):
    """A walk through a space found no further valid config for so long that it was given up."""


@dataclass(frozen=True)
class Knob:
    """One tunable dimension: a `key`, a `type` (int, str, bool, float) and the `choices` of exactly that type."""

    key: str
    type: str
    choices: tuple[Any, ...]
    description: str = ""

    def __post_init__(self) -> None:
        if not self.key.isidentifier():
            raise BadInputError(f"knob {self.key!r} is no identifier", "use letters, digits and underscores")
        if self.key in expressions.RESERVED or keyword.iskeyword(self.key):
            raise BadInputError(f"knob {self.key!r} has a name that expressions use", "give it another name")
        if self.type not in _TYPES:
            raise BadInputError(f"knob {self.key}: unknown type {self.type!r}", f"use one of {', '.join(_TYPES)}")
        if not self.choices:
            raise BadInputError(f"knob {self.key} has no choices", "list at least one value")
        for choice in self.choices:
            if type(choice) is not _TYPES[self.type]:
                raise BadInputError(f"knob {self.key}: choice {choice!r} is no {self.type}", "correct type or choice")
            if isinstance(choice, float) and not math.isfinite(choice):
                raise BadInputError(f"knob {self.key}: choice {choice!r} is not finite", "use finite numbers")

    def allows(self, value: Any) -> bool:
        """Type-strict membership: `True` is not `1`, `1.0` is not `1`."""
        return any(type(value) is type(choice) and value == choice for choice in self.choices)

    def as_dict(self) -> dict[str, Any]:
        """The form a policy sees in `workload["config_space"]`."""
        return {"key": self.key, "type": self.type, "choices": list(self.choices), "description": self.description}


@dataclass(frozen=True)
class Constraint:
    """A named rule every valid config satisfies; `message` says in words what it means."""

    name: str
    expression: Expression
    message: str = ""


@dataclass(frozen=True)
class Violation:
    """One broken rule, with the values that break it."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True)
class ConfigSpace:
    """Knobs, constraints and the expression of the world size (`tp * pp * dp` for most frameworks).

    `workload` and `environment` arguments are the dicts a policy receives. A constraint whose facts are not all
    set is not applied (an unset fact cannot be violated).
    """

    name: str
    knobs: tuple[Knob, ...]
    constraints: tuple[Constraint, ...] = ()
    world_size_expression: Expression = field(default_factory=lambda: expressions.parse("1"))

    def __post_init__(self) -> None:
        keys = [knob.key for knob in self.knobs]
        if not keys:
            raise BadInputError(f"config space {self.name!r} has no knobs", "list at least one under `knobs`")
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise BadInputError(f"config space {self.name!r} lists {', '.join(twice)} twice", "remove one of them")
        if len(keys) > MOST_KNOBS:
            raise BadInputError(
                f"config space {self.name!r} has {len(keys)} knobs; a policy may give {MOST_KNOBS}", "leave some out"
            )
        for constraint in (*self.constraints, Constraint("world_size", self.world_size_expression)):
            unknown = sorted(set(constraint.expression.knobs) - set(keys))
            if unknown:
                raise BadInputError(
                    f"constraint {constraint.name!r} of space {self.name!r} names {', '.join(unknown)}, "
                    "which no knob is called",
                    f"knobs are {', '.join(keys)}",
                )

    @property
    def keys(self) -> tuple[str, ...]:
        """Knob names in the order of the space."""
        return tuple(knob.key for knob in self.knobs)

    def knob(self, key: str) -> Knob:
        """The knob called `key` (KeyError if there is none)."""
        return next(iter([knob for knob in self.knobs if knob.key == key])) if key in self.keys else _no_knob(key)

    @property
    def size(self) -> int:
        """Points before constraints."""
        return math.prod(len(knob.choices) for knob in self.knobs)

    def world_size(self, config: Mapping[str, Any], workload: Mapping[str, Any], environment: Mapping[str, Any]) -> int:
        """Devices the config occupies (`num_xpus`).

        Raises:
            BadInputError: the expression names a fact that is not set, or gives no whole number.
        """
        try:
            found = self.world_size_expression.evaluate(config, workload, environment)
        except MissingFactError as error:
            raise BadInputError(
                f"the world size of space {self.name!r} needs {error}, which is not set", _SIZE_HINT
            ) from error
        if isinstance(found, bool) or not isinstance(found, int | float) or found != found // 1:
            text = self.world_size_expression.text
            raise BadInputError(f"the world size `{text}` of space {self.name!r} is {_shown(found)}", _SIZE_HINT)
        return int(found)

    def violations(
        self, config: Mapping[str, Any], workload: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> list[Violation]:
        """Every rule the config breaks: missing and unknown knobs, wrong values, constraints. Empty: valid."""
        found = self._membership(config)
        if found:
            return found
        for constraint in self.constraints:
            if not _holds(constraint, config, workload, environment):
                values = constraint.expression.values(config, workload, environment)
                text = constraint.message or "does not hold"
                found.append(Violation(constraint.name, f"{text} (`{constraint.expression.text}` with {values})"))
        return found

    def _membership(self, config: Mapping[str, Any]) -> list[Violation]:
        found = [Violation("missing_knob", f"{key} is not set") for key in self.keys if key not in config]
        found += [
            Violation("unknown_knob", f"{key!r} is no knob of this space; knobs are {', '.join(self.keys)}")
            for key in config
            if key not in self.keys
        ]
        for knob in self.knobs:
            if knob.key in config and not knob.allows(config[knob.key]):
                value = config[knob.key]
                choices = ", ".join(map(repr, knob.choices))
                found.append(
                    Violation(
                        f"choice_{knob.key}", f"{knob.key}={value!r} ({type(value).__name__}) is none of {choices}"
                    )
                )
        return found

    def all_configs(self) -> Iterator[Config]:
        """Every point of the grid in the order of the space, valid or not."""
        for values in itertools.product(*(knob.choices for knob in self.knobs)):
            yield dict(zip(self.keys, values, strict=True))

    def valid_configs(self, workload: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterator[Config]:
        """Every config without a violation, in the order of the grid.

        A constraint is asked as soon as all its knobs are set, so that large grids are not walked point by point.

        Raises:
            EndlessSpaceError: `MOST_DEAD_ENDS` choices in a row led to no valid config.
        """
        dead_ends = 0
        for config in self.walk(workload, environment):
            dead_ends = dead_ends + 1 if config is None else 0
            if config is not None:
                yield config
            elif dead_ends > MOST_DEAD_ENDS:
                raise _endless(self)

    def scattered_configs(
        self, workload: Mapping[str, Any], environment: Mapping[str, Any], draw: random.Random
    ) -> Iterator[Config]:
        """Valid configs from all over the grid, without end and some of them again; nothing if none is valid.

        Each is the first of a walk with the choices of every knob in another order: where few points are valid, that
        finds one at once. Not uniform: configs of thinly settled parts of the grid come more often. It ends after
        `MOST_DEAD_ENDS` choices that led to none, in all walks together.
        """
        dead_ends = 0
        while True:
            shuffled = tuple(replace(k, choices=tuple(draw.sample(k.choices, len(k.choices)))) for k in self.knobs)
            found = None
            for found in replace(self, knobs=shuffled).walk(workload, environment):
                dead_ends += found is None
                if found is not None or dead_ends > MOST_DEAD_ENDS:
                    break
            if found is None:
                return
            yield found

    def walk(self, workload: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterator[Config | None]:
        """Every valid config in the order of the grid, and None for every choice on the way that is a dead end."""
        ready: list[list[Constraint]] = [[] for _ in range(len(self.knobs) + 1)]
        for constraint in self.constraints:
            ready[max((self.keys.index(key) + 1 for key in constraint.expression.knobs), default=0)].append(constraint)
        return self._extensions({}, ready, workload, environment)

    def _extensions(
        self,
        partial: Config,
        ready: list[list[Constraint]],
        workload: Mapping[str, Any],
        environment: Mapping[str, Any],
    ) -> Iterator[Config | None]:
        """Every valid config that begins with `partial`, and None for every choice that is a dead end."""
        if not all(_holds(constraint, partial, workload, environment) for constraint in ready[len(partial)]):
            yield None
            return
        if len(partial) == len(self.knobs):
            yield partial
            return
        knob = self.knobs[len(partial)]
        for choice in knob.choices:
            yield from self._extensions({**partial, knob.key: choice}, ready, workload, environment)

    def as_dict(self) -> dict[str, Any]:
        """The YAML form of the space; `from_dict` reads it back."""
        return {
            "name": self.name,
            "world_size": self.world_size_expression.text,
            "knobs": [knob.as_dict() for knob in self.knobs],
            "constraints": [
                {"name": c.name, "expression": c.expression.text, "message": c.message} for c in self.constraints
            ],
        }

    @classmethod
    def from_dict(cls, data: Any, name: str = "space") -> ConfigSpace:
        """Read the YAML form; also the published form (a `config_space` list without constraints).

        Raises:
            BadInputError: a field is missing or of the wrong kind, an expression is not allowed, names clash.
        """
        if not isinstance(data, Mapping):
            raise BadInputError(f"config space {name!r} is no mapping", "write a mapping with `knobs` (docs/spaces.md)")
        knobs = data.get("knobs", data.get("config_space"))
        if not isinstance(knobs, list):
            raise BadInputError(f"config space {name!r} has no list `knobs`", "see docs/spaces.md for the form")
        constraints = data.get("constraints") or []
        if not isinstance(constraints, list):
            raise BadInputError(f"config space {name!r}: constraints is no list", "see docs/spaces.md for the form")
        return cls(
            name=str(data.get("name", name)),
            knobs=tuple(_read_knob(entry, name) for entry in knobs),
            constraints=tuple(_read_constraint(entry, name) for entry in constraints),
            world_size_expression=expressions.parse(str(data.get("world_size", _guessed_world_size(knobs)))),
        )


def load(path: Path) -> ConfigSpace:
    """Read a space from a YAML file.

    Raises:
        BadInputError: the file cannot be read, is no YAML, or is no space.
    """
    data = read_yaml(path, "the space", "see docs/spaces.md for the form")
    return ConfigSpace.from_dict(data, path.stem)


def config_key(config: Mapping[str, Any]) -> str:
    """The text that identifies a config: equal for equal configs, types included, whatever the order of keys."""
    return json.dumps(dict(config), sort_keys=True, allow_nan=False)


def _holds(
    constraint: Constraint, config: Mapping[str, Any], workload: Mapping[str, Any], environment: Mapping[str, Any]
) -> bool:
    try:
        return bool(constraint.expression.evaluate(config, workload, environment))
    except MissingFactError:
        return True


def _shown(entry: Any) -> str:
    return reprlib.repr(entry)


def _endless(space: ConfigSpace) -> EndlessSpaceError:
    return EndlessSpaceError(
        f"space {space.name!r} has {space.size:.3g} points, and {MOST_DEAD_ENDS:,} choices in a row led to none "
        "that satisfies its constraints",
        "loosen a constraint, leave choices out, or name the knobs of the strictest constraint first",
    )


def _no_knob(key: str) -> Knob:
    raise KeyError(key)


def _read_knob(entry: Any, space: str) -> Knob:
    if not isinstance(entry, Mapping) or "key" not in entry or not isinstance(entry.get("choices"), list):
        raise BadInputError(
            f"space {space!r}: a knob needs `key` and a list `choices`, got {_shown(entry)}", "see docs/spaces.md"
        )
    kind = str(entry.get("type") or type(entry["choices"][0]).__name__ if entry["choices"] else "int")
    return Knob(str(entry["key"]), kind, tuple(entry["choices"]), str(entry.get("description") or ""))


def _read_constraint(entry: Any, space: str) -> Constraint:
    if isinstance(entry, str):
        return Constraint(entry, expressions.parse(entry))
    if not isinstance(entry, Mapping) or "expression" not in entry:
        raise BadInputError(
            f"space {space!r}: a constraint needs `name` and `expression`, got {_shown(entry)}", "see docs/spaces.md"
        )
    text = str(entry["expression"])
    return Constraint(str(entry.get("name") or text), expressions.parse(text), str(entry.get("message") or ""))


def _guessed_world_size(knobs: list[Any]) -> str:
    keys = {entry.get("key") for entry in knobs if isinstance(entry, Mapping)}
    return " * ".join(key for key in ("tp", "cp", "pp", "dp") if key in keys) or "1"
