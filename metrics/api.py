"""`compute`: metric values of a trace folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import metrics.registry as registry
from metrics.facts import CardFacts
from metrics.tool import MetricTool, Options, Rule
from runs.errors import BadInputError
from runs.metric import MetricValue

if TYPE_CHECKING:
    from metrics.traces.timeline import Timeline
    from runs.environment import Environment
    from runs.plan import ParallelPlan
    from runs.workload import Workload


def compute(
    trace_dir: str | Path,
    *,
    workload: Workload | None = None,
    environment: Environment | None = None,
    plan: ParallelPlan | None = None,
    facts: CardFacts | None = None,
    metrics: Iterable[str] | None = None,
    rule: Rule = "sound",
    variant: str | None = None,
    detail: bool = False,
    cache: str | Path | None = None,
) -> dict[str, MetricValue]:
    """Values of `metrics` (names or aliases; None: every known metric) for a trace folder, by the names asked for.

    What the workload ran comes as `facts`, or as `workload`, `environment` and `plan`. `cache` is a folder for the
    columns of traces already read; None keeps nothing. Warnings about the trace are in every value's `warnings`.

    Raises:
        BadInputError: a metric or variant does not exist, or there is no readable trace.
    """
    tools = registry.every_tool() if metrics is None else {name: registry.tool(name) for name in metrics}
    options = _options(tools, rule, variant, detail)
    known = facts or CardFacts.of(workload, environment, plan)
    trace = read_trace(trace_dir, cache)
    return {name: evaluate(tool, known, trace, options) for name, tool in tools.items()}


def read_trace(trace_dir: str | Path, cache: str | Path | None = None) -> Timeline:
    """The timeline of a trace folder, for tools that are called directly.

    Raises:
        BadInputError: there is no readable trace.
    """
    from metrics.traces.load import load

    return load(Path(trace_dir), Path(cache) if cache is not None else None)


def evaluate(tool: MetricTool, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
    """One tool's value. A tool that does not apply to the trace's family or the phase says so; a tool that fails gives
    the failure as its reason, because one broken tool, or one strange trace, must not cost the other values."""
    spec = tool.SPEC
    try:
        value = tool.compute(facts, trace, options)
    except Exception as error:
        value = MetricValue.none(spec, f"the tool failed: {type(error).__name__}: {error}")
    return replace(value, warnings=tuple(dict.fromkeys((*value.warnings, *trace.warnings))))


def _options(tools: Mapping[str, MetricTool], rule: Rule, variant: str | None, detail: bool) -> Options:
    if rule not in ("sound", "paper"):
        raise BadInputError(f"there is no rule {rule!r}", "rules: sound, paper")
    offered = sorted({name for tool in tools.values() for name in registry.variants_of(tool)})
    if variant is not None and variant not in offered:
        raise BadInputError(
            f"no metric asked for has a variant {variant!r}", f"variants: {', '.join(offered) or 'none'}"
        )
    return Options(rule, variant, detail)
