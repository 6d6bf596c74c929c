"""The table of docs/supported.md: which workload runs with which framework on how many devices of which kind."""

from __future__ import annotations

from ccl_search.feasibility import closest, smallest_count
from launchers import frameworks
from launchers.frameworks.base import Framework
from runs import catalogue
from runs.environment import Environment
from runs.workload import Workload

HEADING = """# Which workload runs where

One row for each bundled workload and framework. A cell says on which sizes of the environment some config of the
framework's default space fits in memory:

- **all**: on every bundled size; **from N**: on bundled sizes of N devices and more;
- **needs N**: on no bundled size; N is the smallest number of such devices that holds it (by the memory model of the
  dry run);
- **too small**: on no number of these devices that the framework's default space can spread it over;
- **-**: the framework does not run there (see below).

Where a cell is no support, `ccl-search run` answers `infeasible` with the memory parts of the config that comes
closest and the smallest count that fits. The framework `command` (a program of your own) runs everywhere; its space
is yours. This page is generated: `python -m ccl_search.supported > docs/supported.md`.
"""


def document() -> str:
    """The whole of docs/supported.md."""
    return "\n".join([HEADING, *_table(), "", "Where a framework does not run:", "", *_reasons(), ""])


def families() -> dict[str, list[Environment]]:
    """Bundled environments by their name without the count, smallest first."""
    found: dict[str, list[Environment]] = {}
    for name in catalogue.environment_names():
        found.setdefault(name.rpartition("-")[0], []).append(catalogue.environment(name))
    return found


def cell(workload: Workload, sizes: list[Environment], framework: Framework) -> str:
    """What one cell of the table says."""
    if framework.supports(workload, sizes[0]) is not None:
        return "-"
    fitting = next((size for size in sizes if _fits(workload, size, framework)), None)
    if fitting is None:
        count = smallest_count(workload, sizes[0], framework)
        return f"needs {count}" if count else "too small"
    return "all" if fitting is sizes[0] else f"from {fitting.total_xpus}"


def _fits(workload: Workload, environment: Environment, framework: Framework) -> bool:
    space = framework.default_space(workload, environment)
    return closest(workload, environment, framework, space)[1].fits


def _table() -> list[str]:
    columns = families()
    lines = [
        "| workload | framework | " + " | ".join(columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for name in catalogue.workload_names():
        for framework in _frameworks():
            workload = catalogue.workload(name)
            cells = [cell(workload, sizes, framework) for sizes in columns.values()]
            if set(cells) != {"-"}:
                lines.append(f"| {name} | {framework.name} | {' | '.join(cells)} |")
    return lines


def _reasons() -> list[str]:
    reasons: set[str] = set()
    for name in catalogue.workload_names():
        for sizes in families().values():
            for framework in _frameworks():
                reason = framework.supports(catalogue.workload(name), sizes[0])
                if reason is not None:
                    reasons.add(reason)
    return [f"- {reason}" for reason in sorted(reasons)]


def _frameworks() -> list[Framework]:
    return [frameworks.get(name) for name in frameworks.names() if name != "command"]


if __name__ == "__main__":
    import sys

    sys.stdout.write(document())
