"""The prompts: one Markdown file each, filled by name. Their hash is stored with every call."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from runs.digests import text_sha256

NAMES = ("system", "facts", "task", "repair", "reprompt", "json", "dialect")


@cache
def template(name: str) -> str:
    """The text of a prompt file, without the line break at its end."""
    return Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8").rstrip("\n")


def fill(name: str, **values: object) -> str:
    """The prompt with its names replaced. Values are never read as templates.

    Raises:
        KeyError: a name of the prompt has no value.
    """
    return Template(template(name)).substitute(values)


def full_text() -> str:
    """Every prompt file under its name, as one text: what `prompt_hash` is the hash of."""
    return "\n".join(f"[{name}.md]\n{template(name)}" for name in NAMES)


@cache
def prompt_hash() -> str:
    """SHA-256 of `full_text`: it changes when any prompt file does."""
    return text_sha256(full_text())
