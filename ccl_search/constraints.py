"""What a user forbids on top of the space: `peak_memory_gb <= 38` on a metric, `tp <= 4` on a knob.

A constraint on a knob, or on `num_xpus`, is known before a launch and becomes a rule of the config space, so that
everything that reads the space keeps to it. One on another metric is a `Limit`: it is checked on the measured value,
and a trial that breaks it stays succeeded but has no score and is no candidate for the best or for a front.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runs import expressions
from runs.errors import BadInputError
from runs.metric import MetricSpec
from runs.space import ConfigSpace, Constraint, Knob

if TYPE_CHECKING:
    from runs.metric import MetricValue
    from runs.store import RunRecord

SpecOf = Callable[[str], MetricSpec]
_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_EQUALITY = ("==", "!=")
_DEVICES = "num_xpus"
_FORM = "write NAME OPERATOR NUMBER, as `peak_memory_gb <= 38` or `tp <= 4`"


@dataclass(frozen=True)
class Limit:
    """A bound on the metric `spec`, in its unit: `value operator bound` must hold."""

    spec: MetricSpec
    operator: str
    bound: float

    @property
    def text(self) -> str:
        """The constraint as it is shown and stored: `peak_memory_gb <= 38`."""
        return f"{self.spec.name} {self.operator} {self.bound:g}"

    @property
    def margin_sign(self) -> int:
        """1 where a larger value violates, -1 where a smaller one does, 0 for `==` and `!=`."""
        return {"<": 1, "<=": 1, ">": -1, ">=": -1}.get(self.operator, 0)

    def allows(self, value: float) -> bool:
        """Whether a value of the metric keeps to the limit."""
        expression = expressions.parse(f"value {self.operator} bound")
        return bool(expression.evaluate({"value": value, "bound": self.bound}, {}, {}))

    def excess(self, value: float) -> float:
        """How far a value is beyond the limit, in the metric's unit; 0 or less where it keeps to it."""
        if self.margin_sign:
            beyond = self.margin_sign * (value - self.bound)
            return beyond if beyond or self.allows(value) else 1e-12
        return 0.0 if self.allows(value) else max(abs(value - self.bound), 1.0)

    def violation(self, values: Mapping[str, float]) -> str | None:
        """What is wrong with a trial's metric values, None when nothing is. A metric without a value proves nothing."""
        value = values.get(self.spec.name)
        if value is None:
            return f"`{self.text}` cannot be checked: {self.spec.name} has no value"
        if self.allows(value):
            return None
        unit = f" {self.spec.unit}" if self.spec.unit else ""
        return f"`{self.text}` does not hold: {self.spec.name} is {value:.6g}{unit}"


@dataclass(frozen=True)
class Constraints:
    """What a user's texts mean: rules for the space, and limits on metrics."""

    rules: tuple[Constraint, ...] = ()
    limits: tuple[Limit, ...] = ()

    def applied_to(self, space: ConfigSpace) -> ConfigSpace:
        """The space with the rules added that it does not have yet."""
        known = {rule.expression.text for rule in space.constraints}
        new = tuple(rule for rule in self.rules if rule.expression.text not in known)
        return replace(space, constraints=(*space.constraints, *new)) if new else space


def parse(texts: Iterable[str], space: ConfigSpace, spec_of: SpecOf | None = None) -> Constraints:
    """Read constraints. A name that is both a knob and a metric means the knob. `spec_of` finds metrics.

    Raises:
        BadInputError: a text is no comparison of a name with a value, or names neither a knob nor a metric.
    """
    rules: list[Constraint] = []
    limits: list[Limit] = []
    for text in texts:
        name, operator, bound = _comparison(text)
        if name in space.keys:
            rules.append(_rule(space.knob(name), operator, bound))
            continue
        limit = Limit(_spec(name, space, spec_of or _registered), operator, _number(text, bound))
        if limit.spec.name == _DEVICES:
            rules.append(_device_rule(limit, space))
        else:
            limits.append(limit)
    return Constraints(tuple(rules), tuple(limits))


def rules_for(texts: Iterable[str], space: ConfigSpace) -> Constraints:
    """What of a user's constraints is known beforehand in the space of another cluster: those on knobs it has."""
    return Constraints(parse(kept_in(texts, space), space).rules)


def kept_in(texts: Iterable[str], space: ConfigSpace) -> tuple[str, ...]:
    """Those of a user's constraints that mean something in the space of another cluster or framework.

    One on a knob that the space does not have, or whose values are of another type, means nothing there.
    """
    found = []
    for text in texts:
        try:
            parse((text,), space)
        except BadInputError:
            continue
        found.append(text)
    return tuple(found)


def limits_of(run: RunRecord) -> tuple[Limit, ...]:
    """The limits a stored run was searched under, with the metric specs frozen at its creation."""
    texts = run.options.get("settings", {}).get("constraints") or ()
    if not texts:
        return ()
    frozen = {spec["name"]: spec for spec in run.metrics}

    def spec_of(name: str) -> MetricSpec:
        found = frozen.get(name)
        return _registered(name) if found is None else _thawed(found)

    return parse(texts, run.config_space(), spec_of).limits


def violations(limits: Sequence[Limit], metrics: Mapping[str, MetricValue]) -> tuple[str, ...]:
    """What a trial's metric values break; empty when it keeps to every limit."""
    values = {name: metric.value for name, metric in metrics.items() if metric.value is not None}
    return tuple(found for limit in limits if (found := limit.violation(values)) is not None)


def _comparison(text: str) -> tuple[str, str, Any]:
    """Name, operator and value of a constraint, the name on the left."""
    expressions.parse(text)
    tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in _SYMBOLS:
        raise BadInputError(f"the constraint `{text}` is no single comparison", _FORM)
    left, right, symbol = tree.left, tree.comparators[0], _SYMBOLS[type(tree.ops[0])]
    if not isinstance(left, ast.Name):
        left, right, symbol = right, left, _MIRRORED[symbol]
    if not isinstance(left, ast.Name):
        raise BadInputError(f"the constraint `{text}` names no knob and no metric", _FORM)
    return left.id, symbol, _constant(text, right)


def _constant(text: str, node: ast.expr) -> Any:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if not isinstance(node, ast.Constant) or (sign < 0 and not _is_number(node.value)):
        raise BadInputError(f"the constraint `{text}` does not compare with a value", _FORM)
    return -node.value if sign < 0 and isinstance(node.value, int | float) else node.value


def _number(text: str, value: Any) -> float:
    if not _is_number(value):
        raise BadInputError(f"the constraint `{text}` compares a metric with {value!r}", _FORM)
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_comparable(knob: Knob, operator: str, value: Any) -> bool:
    if knob.type in ("int", "float"):
        return _is_number(value)
    return type(value).__name__ == knob.type and operator in _EQUALITY


def _rule(knob: Knob, operator: str, value: Any) -> Constraint:
    if not _is_comparable(knob, operator, value):
        raise BadInputError(
            f"knob {knob.key} is a {knob.type} and cannot be compared as `{knob.key} {operator} {value!r}`",
            f"its choices are {', '.join(map(repr, knob.choices))}",
        )
    text = f"{knob.key} {operator} {value!r}"
    return Constraint(text, expressions.parse(text), "asked for with --constraint")


def _device_rule(limit: Limit, space: ConfigSpace) -> Constraint:
    text = f"({space.world_size_expression.text}) {limit.operator} {limit.bound:g}"
    return Constraint(limit.text, expressions.parse(text), "asked for with --constraint")


def _spec(name: str, space: ConfigSpace, spec_of: SpecOf) -> MetricSpec:
    try:
        return spec_of(name)
    except BadInputError as error:
        raise BadInputError(
            f"a constraint names {name!r}, which is neither a knob nor a metric",
            f"knobs: {', '.join(space.keys)}; metrics {error.hint}",
        ) from error


def _registered(name: str) -> MetricSpec:
    from ccl_search.portability.spec import spec

    return spec(name)


def _thawed(data: Mapping[str, Any]) -> MetricSpec:
    from runs.metric import Direction

    lists = {key: tuple(data.get(key, ())) for key in ("formats", "phases", "aliases")}
    return MetricSpec(**{**data, **lists, "direction": Direction(data["direction"])})
