"""Reading a policy out of an answer, and the turns that send an error or a reminder back."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any

from ccl_search.llm import prompts
from ccl_search.llm.redact import redact
from ccl_search.llm.reply import LlmReply
from ccl_search.llm.request import TOOL_NAME

SOURCE_BYTES = 64 * 2**10


@dataclass(frozen=True)
class Submission:
    """A policy as submitted: its source and rationale, or the `error` that says why the arguments are unusable."""

    code: str = ""
    rationale: str = ""
    error: str | None = None


def from_tool(reply: LlmReply) -> Submission | None:
    """What the first call of `submit_policy` holds; None when the answer calls no tool at all."""
    uses = reply.tool_uses()
    if not uses:
        return None
    chosen = next((use for use in uses if use.get("name") == TOOL_NAME), None)
    if chosen is None:
        return Submission(error=f"there is no tool {uses[0].get('name')!r}; the only tool is {TOOL_NAME}")
    return _read(chosen.get("input"))


def from_json(reply: LlmReply) -> Submission:
    """What an answer in structured text holds."""
    try:
        data = json.loads(reply.text)
    except ValueError as error:
        return Submission(error=f"the answer is no JSON object: {error}")
    return _read(data)


def defect(source: str) -> str | None:
    """What is wrong with a source before it is run: too large, no Python, no `generate_config`. None: nothing."""
    size = len(source.encode("utf-8", errors="replace"))
    if size > SOURCE_BYTES:
        return f"the source has {size} bytes; at most {SOURCE_BYTES} are allowed"
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return f"syntax: line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"syntax: {error}"
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return None if "generate_config" in defined else "the source defines no function generate_config at module level"


def repair_turns(reply: LlmReply, error: str) -> list[dict[str, Any]]:
    """The assistant's turn unmodified, then the error: as a tool result for every tool call, or as text."""
    text = prompts.fill("repair", error=redact(error))
    uses = reply.tool_uses()
    if not uses:
        return [_assistant(reply), _user(text)]
    results = [
        {
            "type": "tool_result",
            "tool_use_id": use.get("id"),
            "is_error": True,
            "content": text if index == 0 else "unused",
        }
        for index, use in enumerate(uses)
    ]
    return [_assistant(reply), {"role": "user", "content": results}]


def reminder_turns(reply: LlmReply) -> list[dict[str, Any]]:
    """The assistant's turn unmodified (left out when it is empty), then the reminder to call the tool."""
    reminder = _user(prompts.template("reprompt"))
    return [_assistant(reply), reminder] if reply.content else [reminder]


def carried_turns(source: str, error: str) -> list[dict[str, Any]]:
    """A user turn that carries a rejected policy into a conversation that starts anew."""
    repair = prompts.fill("repair", error=redact(error))
    return [_user(f"Your last submission:\n```python\n{redact(source)}\n```\n\n{repair}")]


def _read(data: Any) -> Submission:
    if not isinstance(data, dict):
        return Submission(error=f"the arguments are a {type(data).__name__}, not an object with `code` and `rationale`")
    code, rationale = data.get("code"), data.get("rationale", "")
    if not isinstance(code, str) or not code.strip():
        return Submission(error="`code` is missing or empty; it must hold the complete source of the policy")
    return Submission(code, rationale if isinstance(rationale, str) else json.dumps(rationale))


def _assistant(reply: LlmReply) -> dict[str, Any]:
    return {"role": "assistant", "content": reply.content}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}
