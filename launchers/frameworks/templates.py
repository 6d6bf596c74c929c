"""Space templates: YAML files whose knobs, choices and constraints depend on the workload and the environment.

A template is a space file (docs/spaces.md) with three more fields. A knob may carry `when` (it is offered only if the
expression holds), `keep` (only choices for which it holds stay; the choice is called `value`) and `otherwise` (the
value that stands for the knob in the expressions where it is not offered, 1 unless given). A constraint may carry
`when` too, and its `source` says where the framework states the rule. `defaults` names the workload, the environment
and the framework that are taken where the user names none.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from runs import expressions
from runs.errors import BadInputError
from runs.expressions import MissingFactError
from runs.space import Config, ConfigSpace, Knob

Facts = Mapping[str, Any]
_DEGREES = ("tp", "cp", "pp", "dp")


def names() -> tuple[str, ...]:
    """Names of the bundled templates, which `--space NAME` accepts."""
    files = resources.files("launchers.frameworks").joinpath("spaces").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def build(name: str, workload: Facts, environment: Facts) -> ConfigSpace:
    """The bundled space `name` for a workload and an environment (the dicts a policy receives).

    Raises:
        BadInputError: there is no such template, or no choice of a knob is left.
    """
    if name not in names():
        raise BadInputError(f"no bundled space is called {name!r}", f"bundled: {', '.join(names())}; or give a file")
    return specialise(read(name), workload, environment)


def specialise(template: Mapping[str, Any], workload: Facts, environment: Facts) -> ConfigSpace:
    """The space a template stands for, once the workload and the environment are known."""
    entries = template["knobs"]
    offered = [entry for entry in entries if _holds(entry.get("when"), {}, workload, environment)]
    keys = {entry["key"] for entry in offered}
    absent = {entry["key"]: entry.get("otherwise", 1) for entry in entries if entry["key"] not in keys}
    constraints = [
        {**entry, "expression": fold(entry["expression"], absent)}
        for entry in template.get("constraints", ())
        if _holds(entry.get("when"), {}, workload, environment)
    ]
    return _without_dead_choices(
        ConfigSpace.from_dict(
            {
                "name": template["name"],
                "world_size": fold(template.get("world_size", " * ".join(_DEGREES)), absent),
                "knobs": [_trimmed(entry, workload, environment) for entry in offered],
                "constraints": [entry for entry in constraints if expressions.parse(entry["expression"]).knobs],
            }
        ),
        workload,
        environment,
    )


def _without_dead_choices(space: ConfigSpace, workload: Facts, environment: Facts) -> ConfigSpace:
    """`space` without the choices that no valid config has; unchanged where no config is valid or facts are missing."""
    if "batch_size" not in workload or "total_gpus" not in environment:
        return space
    alive: set[tuple[str, Any]] = set()
    for knob, choice in [(each, value) for each in space.knobs for value in each.choices]:
        if (knob.key, choice) not in alive:
            alive.update(_valid_config_with(space, knob, choice, workload, environment).items())
    if not alive:
        return space
    kept = (replace(k, choices=tuple(c for c in k.choices if (k.key, c) in alive)) for k in space.knobs)
    return replace(space, knobs=tuple(kept))


def _valid_config_with(space: ConfigSpace, knob: Knob, choice: Any, workload: Facts, environment: Facts) -> Config:
    """Some valid config in which `knob` is `choice`; empty if there is none."""
    others = tuple(other for other in space.knobs if other.key != knob.key)
    fixed = replace(space, knobs=(replace(knob, choices=(choice,)), *others))
    return next(fixed.valid_configs(workload, environment), {})


def fold(text: str, values: Mapping[str, Any]) -> str:
    """`text` with the names in `values` replaced by their values, and factors of one left out."""
    if not values:
        return text
    return ast.unparse(_Fold(values).visit(ast.parse(text.strip(), mode="eval")))


class _Fold(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._values[node.id]) if node.id in self._values else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(one, ast.Constant) and one.value == 1:
                    return other
        return node


def defaults(name: str) -> dict[str, str]:
    """What the bundled template `name` says it is made for (`defaults`: workload, environment, framework)."""
    return dict(read(name).get("defaults", {}))


@cache
def read(name: str) -> dict[str, Any]:
    """The bundled template `name` as it stands in its file."""
    file = resources.files("launchers.frameworks").joinpath("spaces", f"{name}.yaml")
    template: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return template


def _holds(text: str | None, names: Facts, workload: Facts, environment: Facts) -> bool:
    """Whether a condition holds; one about an unset fact does, so that nothing is withheld for want of a fact."""
    if text is None:
        return True
    try:
        return bool(expressions.parse(text).evaluate(names, workload, environment))
    except MissingFactError:
        return True


def _trimmed(entry: Mapping[str, Any], workload: Facts, environment: Facts) -> dict[str, Any]:
    kept = [
        choice for choice in entry["choices"] if _holds(entry.get("keep"), {"value": choice}, workload, environment)
    ]
    if not kept:
        raise BadInputError(
            f"knob {entry['key']}: none of {entry['choices']} suits this workload and environment",
            "give a space of your own with --space",
        )
    return {**entry, "choices": kept}
