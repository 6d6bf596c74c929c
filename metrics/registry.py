"""Every metric tool there is: the bundled ones by name, third-party ones from the entry point `ccl_search.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from runs.errors import BadInputError
from runs.metric import Direction, MetricSpec, MetricValue

if TYPE_CHECKING:
    from metrics.facts import CardFacts
    from metrics.tool import MetricTool, Options
    from metrics.traces.timeline import Timeline

GROUP = "ccl_search.metrics"

BUNDLED: tuple[str, ...] = (
    "avg_step_time", "mfu", "ttft", "tpot",
    "mean_sm_coverage", "dominant_kernel_concentration", "compute_bound_fraction", "memory_bound_fraction",
    "moe_fraction",
    "average_memory_bandwidth", "memory_transfer_overhead",
    "communication_fraction", "total_communication_time", "compute_comm_overlap", "load_imbalance_ratio", "straggler",
    "bw_allgather", "bw_allreduce", "bw_reducescatter", "bw_alltoall", "bw_peertopeer", "scale_up_bw_utility",
    "step_compute_time", "step_exposed_comm_time", "step_overlapped_comm_time", "step_memory_time", "step_idle_time",
    "traffic_allreduce_gb", "traffic_allgather_gb", "traffic_reducescatter_gb", "traffic_alltoall_gb", "traffic_p2p_gb",
    "tokens_per_s", "tokens_per_s_per_xpu", "num_xpus", "peak_memory_gb", "bubble_fraction",
    "step_time_p50", "step_time_p95", "step_time_cv", "ttft_p95", "ttft_p99", "tpot_p95", "tpot_p99",
)  # fmt: skip
ALIASES: Mapping[str, str] = {"step_time": "avg_step_time"}


@cache
def plugins() -> dict[str, EntryPoint]:
    """Entry points of third-party tools by name; a name that is bundled cannot be taken over."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUNDLED}


def names() -> tuple[str, ...]:
    """All metric names: bundled first, then third-party ones."""
    return (*BUNDLED, *sorted(plugins()))


def canonical(name: str) -> str:
    """The metric an alias means; a name that is none comes back unchanged."""
    return ALIASES.get(name, name)


class Broken:
    """A third-party tool that cannot be loaded, in the shape of a tool: it answers with the reason."""

    def __init__(self, name: str, error: BadInputError) -> None:
        self.SPEC = MetricSpec(name, "unknown", "?", Direction.MINIMIZE, description=error.message)
        self._reason = error.message

    def compute(self, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
        """Always the reason."""
        return MetricValue.none(self.SPEC, self._reason)


def every_tool(wanted: Iterable[str] | None = None) -> dict[str, MetricTool]:
    """All tools by name, or those wanted. One that cannot be loaded is `Broken`: it does not cost the others."""
    tools: dict[str, MetricTool] = {}
    for name in names() if wanted is None else wanted:
        try:
            tools[name] = tool(name)
        except BadInputError as error:
            tools[name] = Broken(name, error)
    return tools


def tool(name: str) -> MetricTool:
    """The tool of a metric, by name or alias.

    Raises:
        BadInputError: there is no such metric, or a third-party tool cannot be loaded or has no such shape.
    """
    wanted = canonical(name)
    if wanted in BUNDLED:
        module: MetricTool = import_module(f"metrics.tools.{wanted}")
        return module
    if wanted not in plugins():
        raise BadInputError(f"no metric is called {name!r}", f"known: {', '.join(names())}")
    return _load(plugins()[wanted])


def _load(point: EntryPoint) -> MetricTool:
    try:
        found = point.load()
    except Exception as error:
        raise BadInputError(
            f"the metric {point.name} ({point.value}) cannot be loaded: {error}", "mend or remove it"
        ) from error
    loaded: MetricTool = found() if isinstance(found, type) else found
    spec = getattr(loaded, "SPEC", None)
    if spec is None or not callable(getattr(loaded, "compute", None)):
        raise BadInputError(
            f"the metric {point.name} ({point.value}) has no SPEC and compute",
            "see docs/metrics.md for the shape of a tool",
        )
    if spec.name != point.name:
        raise BadInputError(
            f"the metric {point.name} ({point.value}) calls itself {spec.name}", "name the entry point as the metric"
        )
    return loaded


def spec(name: str) -> MetricSpec:
    """What the metric is.

    Raises:
        BadInputError: there is no such metric.
    """
    return tool(name).SPEC


def variants_of(found: MetricTool) -> dict[str, str]:
    """Other readings of its definition that a tool offers, with what each means."""
    return dict(getattr(found, "VARIANTS", {}))


def variants(name: str) -> dict[str, str]:
    """`variants_of` the tool of this name."""
    return variants_of(tool(name))
