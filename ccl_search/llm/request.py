"""The body of a request: system, tool, run facts, trials, task; a pure function of context, settings and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ccl_search.llm import history, prompts
from ccl_search.llm.models import Effort, capability
from ccl_search.proposers.base import ProposalContext

TOOL_NAME = "submit_policy"
CacheTtl = Literal["5m", "1h"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "Complete Python source that defines generate_config."},
        "rationale": {"type": "string", "description": "Why, in at most three sentences."},
    },
    "required": ["code", "rationale"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "name": TOOL_NAME,
    "description": "Submit the next policy. It is checked at once, then its config is launched and measured.",
    "strict": True,
    "input_schema": SCHEMA,
}


@dataclass(frozen=True)
class RequestSettings:
    """What stays the same over a search. `cache_ttl` None sends no cache marks."""

    dialect: str
    effort: Effort | None = None
    cache_ttl: CacheTtl | None = "5m"


@dataclass(frozen=True)
class Shape:
    """What one call varies: the model, how the policy is asked for, how much history, how long an answer.

    `forced`: the tool is forced; otherwise the choice is left to the model. `as_json`: structured text replaces it.
    """

    model: str
    max_tokens: int = 16_000
    forced: bool = False
    as_json: bool = False
    compaction: int = 0

    def label(self, kind: str) -> str:
        """The `purpose` under which a call of this shape is stored: `propose`, `repair+forced`, `propose+compact1`."""
        marks = [
            *(["forced"] if self.forced else []),
            *(["json"] if self.as_json else []),
            *([f"compact{self.compaction}"] if self.compaction else []),
        ]
        return "+".join([kind, *marks])


def body(
    context: ProposalContext, settings: RequestSettings, shape: Shape, dialogue: list[dict[str, Any]]
) -> dict[str, Any]:
    """The exact body that is sent. `dialogue` are the turns after the first message, within this iteration."""
    made: dict[str, Any] = {
        "model": shape.model,
        "max_tokens": shape.max_tokens,
        "system": [_text(prompts.fill("system", dialect=settings.dialect), settings.cache_ttl)],
        "messages": [{"role": "user", "content": _content(context, settings, shape)}, *dialogue],
    }
    if not shape.as_json:
        made |= {"tools": [TOOL], "tool_choice": _tool_choice(shape)}
    if shape.forced and capability(shape.model).thinking_when_forced == "disabled":
        made["thinking"] = {"type": "disabled"}
    output = _output_config(settings, shape)
    return made | ({"output_config": output} if output else {})


def _content(context: ProposalContext, settings: RequestSettings, shape: Shape) -> list[dict[str, Any]]:
    trials = history.history_blocks(context, shape.compaction)
    marked = history.full_groups(context) - 1 if not shape.compaction else -1
    blocks = [_text(history.facts_block(context), settings.cache_ttl)]
    blocks += [_text(block, settings.cache_ttl if index == marked else None) for index, block in enumerate(trials)]
    task = history.task_block(context)
    return [*blocks, _text(f"{task}\n\n{prompts.template('json')}" if shape.as_json else task)]


def _text(text: str, ttl: CacheTtl | None = None) -> dict[str, Any]:
    sendable = text.encode("utf-8", errors="replace").decode("utf-8")
    block: dict[str, Any] = {"type": "text", "text": sendable}
    if ttl is not None:
        block["cache_control"] = {"type": "ephemeral", "ttl": ttl}
    return block


def _tool_choice(shape: Shape) -> dict[str, Any]:
    if shape.forced:
        return {"type": "tool", "name": TOOL_NAME, "disable_parallel_tool_use": True}
    return {"type": "auto", "disable_parallel_tool_use": True}


def _output_config(settings: RequestSettings, shape: Shape) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if settings.effort is not None:
        output["effort"] = settings.effort
    if shape.as_json:
        output["format"] = {"type": "json_schema", "schema": SCHEMA}
    return output
