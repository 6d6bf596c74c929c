"""What a reader of a policy asks of its functions."""

from __future__ import annotations

import ast


def unexplained(source: str) -> list[str]:
    """The functions of a program that lack a docstring, or the type of an argument or of the result."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    assert functions
    return [node.name for node in functions if not (ast.get_docstring(node) and node.returns and _typed(node.args))]


def _typed(arguments: ast.arguments) -> bool:
    return all(each.annotation for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
