"""Which proposer a search uses, and why: the user's choice, else the LLM when a key is set, else the rules."""

from __future__ import annotations

import os
from typing import NamedTuple

PROPOSERS = ("claude", "guided", "tpe", "random", "grid")
KEY_VARIABLE = "ANTHROPIC_API_KEY"


class Choice(NamedTuple):
    """A proposer's name and, for the user, why it was taken."""

    name: str
    reason: str


def choose(wanted: str | None) -> Choice:
    """The proposer to use.

    Raises:
        BadInputError: the wanted one does not exist.
    """
    from runs.errors import BadInputError

    if wanted is not None and wanted not in PROPOSERS:
        raise BadInputError(f"no proposer is called {wanted!r}", f"proposers: {', '.join(PROPOSERS)}")
    if wanted is not None:
        return Choice(wanted, "as asked")
    if os.environ.get(KEY_VARIABLE):
        return Choice("claude", f"{KEY_VARIABLE} is set")
    return Choice("guided", f"{KEY_VARIABLE} is not set; rules propose instead of an LLM")
