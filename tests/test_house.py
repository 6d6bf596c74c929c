"""The house: layers import only downward, nothing imports in a circle, no module is too long."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["runs", "policies", "backends", "metrics", "launchers", "ccl_search"]
STRANGERS = [{"metrics", "launchers"}]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for layer in LAYERS
    for path in (ROOT / layer).rglob("*.py")
    if not {"seeds", "published"} & set(path.parts) or path.name == "__init__.py"
}


def imported(path: Path) -> set[str]:
    """Names of project modules that a module imports, at any place in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name in MODULES}


GRAPH = {module: imported(path) - {module} for module, path in MODULES.items()}


@pytest.mark.parametrize("layer", LAYERS)
def test_no_layer_imports_a_higher_one(layer: str) -> None:
    upward = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        if module.split(".")[0] == layer
        for other in others
        if LAYERS.index(other.split(".")[0]) > LAYERS.index(layer)
    ]

    assert upward == []


def test_metrics_and_launchers_do_not_know_each_other() -> None:
    met = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        for other in others
        if {module.split(".")[0], other.split(".")[0]} in STRANGERS
    ]

    assert met == []


def test_no_circles() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done:
            return
        for other in sorted(GRAPH[module]):
            visit(other, (*path, module))
        done.add(module)

    for module in GRAPH:
        visit(module, ())


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_are_short(module: str) -> None:
    assert MODULES[module].read_text(encoding="utf-8").count("\n") <= 400
