"""Constraint expressions over knobs, workload and environment: a small, checked subset of Python expressions."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from runs.errors import BadInputError

_FUNCTIONS = {"min": min, "max": max, "abs": abs, "ceil": math.ceil, "floor": math.floor}
_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    ast.In, ast.NotIn, ast.IfExp, ast.Call, ast.Name, ast.Load, ast.Attribute, ast.Constant, ast.Tuple, ast.List,
)  # fmt: skip
_NAMESPACES = ("workload", "environment")
RESERVED = (*_FUNCTIONS, *_NAMESPACES)
"""Names that no knob may have."""
_MAX_LENGTH = 500


class MissingFactError(Exception):
    """An expression names a workload or environment fact that is not set."""


@dataclass(frozen=True)
class _Facts:
    """Attribute access to a dict, so that `workload.batch_size` works and an unset fact is told apart."""

    _name: str
    _values: Mapping[str, Any]

    def __getattr__(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            raise MissingFactError(f"{self._name}.{key}") from None


@dataclass(frozen=True)
class Expression:
    """A parsed expression. `knobs` are the bare names it uses, `facts` the dotted ones."""

    text: str
    code: CodeType
    knobs: tuple[str, ...]
    facts: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads the text again: code cannot be pickled."""
        return parse, (self.text,)

    def evaluate(self, config: Mapping[str, Any], workload: Mapping[str, Any], environment: Mapping[str, Any]) -> Any:
        """The expression's value.

        Raises:
            MissingFactError: it names a fact that is not set.
            BadInputError: it cannot be computed (a knob is missing, a division by zero, mixed types).
        """
        names = {
            **config,
            **_FUNCTIONS,
            **_GUARDED,
            "workload": _Facts("workload", workload),
            "environment": _Facts("environment", environment),
        }
        try:
            return eval(self.code, {"__builtins__": {}}, names)  # noqa: S307 - only whitelisted nodes get this far
        except MissingFactError:
            raise
        except Exception as error:
            raise BadInputError(f"cannot evaluate `{self.text}`: {error}", "check the constraint's names") from error

    def values(self, config: Mapping[str, Any], workload: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
        """The values of everything the expression names, for a message: `tp=4, workload.batch_size=8`."""
        scopes = {"workload": workload, "environment": environment}
        shown = [f"{knob}={config.get(knob)!r}" for knob in self.knobs]
        for fact in self.facts:
            scope, key = fact.split(".", 1)
            shown.append(f"{fact}={scopes[scope].get(key, 'unset')!r}")
        return ", ".join(shown)


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Parse and check `text`.

    Raises:
        BadInputError: it is not one of the allowed expressions; the message names what is not allowed.
    """
    if len(text) > _MAX_LENGTH:
        raise BadInputError(f"expression of {len(text)} characters; at most {_MAX_LENGTH}", "split the constraint")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise BadInputError(f"`{text}` is no expression: {error.msg}", "write for example `tp * pp <= 16`") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise BadInputError(f"`{text[:40]}...` is nested too deeply", "split the constraint") from error
    for node in ast.walk(tree):
        _check(node, text)
    knobs, facts = _knob_names(tree), _fact_names(tree)
    guarded = ast.fix_missing_locations(_Guard().visit(tree))
    return Expression(text.strip(), compile(guarded, "<constraint>", "eval"), knobs, facts)


class _Guard(ast.NodeTransformer):
    """Makes products and remainders ask for numbers: a repeated or formatted text could fill the memory."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = _GUARDED_OPERATORS.get(type(node.op))
        if name is None:
            return node
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


def _multiply(left: Any, right: Any) -> Any:
    _require_numbers(left, right)
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    _require_numbers(left, right)
    return left % right


def _require_numbers(*values: Any) -> None:
    for value in values:
        if not isinstance(value, int | float):
            raise TypeError(f"{value!r} is no number")


_GUARDED = {"__multiply": _multiply, "__modulo": _modulo}
_GUARDED_OPERATORS: dict[type[ast.operator], str] = {ast.Mult: "__multiply", ast.Mod: "__modulo"}


def _check(node: ast.AST, text: str) -> None:
    if not isinstance(node, _NODES):
        raise BadInputError(f"`{text}`: {type(node).__name__} is not allowed in an expression", "see docs/spaces.md")
    if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in _NAMESPACES):
        raise BadInputError(f"`{text}`: only workload.X and environment.X may be dotted", "see docs/spaces.md")
    if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
        raise BadInputError(f"`{text}`: {node.attr} is no fact", "see docs/spaces.md")
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
        raise BadInputError(f"`{text}`: only {', '.join(_FUNCTIONS)} may be called", "see docs/spaces.md")


def _knob_names(tree: ast.AST) -> tuple[str, ...]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tuple(sorted(names - set(_FUNCTIONS) - set(_NAMESPACES)))


def _fact_names(tree: ast.AST) -> tuple[str, ...]:
    dotted = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return tuple(sorted({f"{node.value.id}.{node.attr}" for node in dotted if isinstance(node.value, ast.Name)}))
