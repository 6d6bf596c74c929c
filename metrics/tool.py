"""What a metric tool is: a `MetricSpec` and a function of card facts, trace and options that answers with a
`MetricValue`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from runs.metric import MetricSpec, MetricValue

if TYPE_CHECKING:
    from metrics.facts import CardFacts
    from metrics.traces.timeline import Timeline

Rule = Literal["sound", "paper"]


@dataclass(frozen=True)
class Options:
    """How to compute. `rule`: `sound` attributes device work to the step that launched it, `paper` clips it to the host
    span of the step. `variant`: another published reading of a definition, by name; tools that do not know it ignore
    it. `detail`: give values per rank and step too."""

    rule: Rule = "sound"
    variant: str | None = None
    detail: bool = False


@runtime_checkable
class MetricTool(Protocol):
    """A metric tool: bundled tools are modules, third-party tools may be any object of this shape."""

    SPEC: MetricSpec

    def compute(self, facts: CardFacts, trace: Timeline, options: Options) -> MetricValue:
        """The value, or the reason why there is none. Raises nothing for a trace it cannot read a value from."""
        ...


@dataclass(frozen=True)
class Answer:
    """One lane's answer: a number, or why there is none; `steps` are the single values behind it."""

    value: float | None = None
    reason: str = ""
    steps: tuple[float, ...] = field(default=())
    notes: dict[str, Any] = field(default_factory=dict)


def no(reason: str) -> Answer:
    """An answer without a value."""
    return Answer(None, reason)
