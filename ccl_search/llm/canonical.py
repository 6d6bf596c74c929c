"""The canonical text of a request body: what its identity is taken from."""

from __future__ import annotations

import difflib
import json
from typing import Any


def canonical(body: Any) -> str:
    """JSON with sorted keys, no blanks and no NaN; equal for equal bodies.

    Raises:
        ValueError: the body holds NaN or an infinity.
    """
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def same_body(one: Any, other: Any) -> bool:
    """Whether two bodies are the same request."""
    return canonical(one) == canonical(other)


def body_diff(stored: Any, asked: Any, lines: int = 60) -> str:
    """A unified diff of two bodies with the line breaks of their texts kept, at most `lines` lines of it."""
    found = list(
        difflib.unified_diff(_readable(stored), _readable(asked), "stored request", "request now", lineterm="", n=1)
    )
    more = [f"... {len(found) - lines} more lines"] if len(found) > lines else []
    return "\n".join([*found[:lines], *more])


def _readable(body: Any) -> list[str]:
    text = json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False)
    return text.replace("\\n", "\n").replace('\\"', '"').splitlines()
