"""Which proposer a search uses, and why; and building it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ccl_search.proposers.base import Proposer
from ccl_search.settings import DEFAULT_MODEL, SearchSettings
from runs.errors import BadInputError
from runs.ledger import LlmLedger
from runs.space import Config

if TYPE_CHECKING:
    from ccl_search.llm.reply import LlmClient
    from ccl_search.llm.retries import RetryNotice

PROPOSERS = ("claude", "guided", "tpe", "random", "grid")
KEY_VARIABLE = "ANTHROPIC_API_KEY"


class Choice(NamedTuple):
    """A proposer's name and, for the user, why it was taken."""

    name: str
    reason: str


@dataclass(frozen=True)
class Surroundings:
    """What a proposer may need of the search around it.

    `spent` is what the run's LLM calls have cost so far, `check` says what is wrong with a policy, `notice` speaks to
    the user, `stopped` is set when the user wants to stop, `fits` tells whether a valid config fits in memory.
    """

    ledger: LlmLedger
    spent: Decimal
    check: Callable[[str], str | None]
    notice: Callable[[str], None]
    stopped: threading.Event
    fits: Callable[[Config], bool] = lambda _config: True


def choose(wanted: str | None, replay_llm: str | None = None) -> Choice:
    """The proposer to use: the one asked for, else the LLM where its answers are replayed or a key is set, else rules.

    Raises:
        BadInputError: the wanted one does not exist, or asks no LLM although answers of one are to be replayed.
    """
    if wanted is not None and wanted not in PROPOSERS:
        raise BadInputError(f"no proposer is called {wanted!r}", f"proposers: {', '.join(PROPOSERS)}")
    if replay_llm is not None and wanted not in (None, "claude"):
        raise BadInputError(f"--replay-llm with --proposer {wanted}, which asks no LLM", "leave one of the two out")
    if wanted is not None:
        return Choice(wanted, "as asked")
    if replay_llm is not None:
        return Choice("claude", f"answers of run {replay_llm} are served")
    if os.environ.get(KEY_VARIABLE):
        return Choice("claude", f"{KEY_VARIABLE} is set")
    return Choice("guided", f"{KEY_VARIABLE} is not set; rules propose instead of an LLM")


def check(name: str, settings: SearchSettings) -> None:
    """Find out before anything is written whether `name` can be built with these settings.

    Raises:
        BadInputError: the seed is too large to be stored, the effort is unknown, the price file cannot be used, or no
            key of the API is set.
    """
    from ccl_search.llm.models import EFFORTS
    from ccl_search.llm.prices import PriceTable

    if abs(settings.seed) >= 2**63:
        raise BadInputError(f"--seed {settings.seed} is too large", "give a whole number of at most 18 digits")
    if name != "claude":
        return
    if settings.effort is not None and settings.effort not in EFFORTS:
        raise BadInputError(f"--effort {settings.effort} is unknown", f"one of {', '.join(EFFORTS)}")
    if settings.prices is not None:
        PriceTable.load(Path(settings.prices))
    if settings.replay_llm is None:
        from ccl_search.llm.client import require_key

        require_key()


def without_effect(name: str, settings: SearchSettings) -> list[str]:
    """Options of the command line that were given and mean nothing to the proposer called `name`."""
    if name == "claude":
        return []
    given = {
        "--model": settings.model != DEFAULT_MODEL,
        "--effort": settings.effort is not None,
        "--fallback-model": bool(settings.fallback_models),
        "--prices": settings.prices is not None,
        "--max-cost": settings.max_cost_usd is not None,
    }
    return [option for option, is_given in given.items() if is_given]


def build(name: str, settings: SearchSettings, around: Surroundings) -> Proposer:
    """The proposer called `name`."""
    if name == "claude":
        return _claude(settings, around)
    if name == "guided":
        from ccl_search.proposers.guided import GuidedProposer

        return GuidedProposer(settings.seed)
    if name == "tpe":
        from ccl_search.proposers.tpe import TpeProposer

        return TpeProposer(settings.seed, around.fits)
    from ccl_search.proposers.samplers import GridProposer, RandomProposer

    return GridProposer(around.fits) if name == "grid" else RandomProposer(settings.seed, around.fits)


def _claude(settings: SearchSettings, around: Surroundings) -> Proposer:
    from ccl_search.llm.models import EFFORTS, deprecation_notice
    from ccl_search.proposers.claude import ClaudeProposer
    from policies.program import dialect

    effort = next((known for known in EFFORTS if known == settings.effort), None)
    notice = deprecation_notice(settings.model, _today())
    if notice is not None:
        around.notice(notice)
    return ClaudeProposer(
        around.ledger,
        settings.model,
        check=around.check,
        dialect=dialect(),
        fallback_models=settings.fallback_models,
        effort=effort,
        client=_client(settings, around),
    )


def _client(settings: SearchSettings, around: Surroundings) -> LlmClient:
    from ccl_search.llm.budget import DollarBudget
    from ccl_search.llm.client import AnthropicClient
    from ccl_search.llm.prices import PriceTable
    from ccl_search.llm.replay import ReplayClient
    from ccl_search.llm.retries import RetryPolicy

    if settings.replay_llm is not None:
        return ReplayClient(around.ledger, settings.replay_llm)

    def waiting(notice: RetryNotice) -> None:
        around.notice(f"LLM attempt {notice.attempt}: {notice.reason}; waiting {notice.seconds:.0f} s")

    limit = Decimal(settings.max_cost_usd) if settings.max_cost_usd is not None else None
    return AnthropicClient(
        around.ledger,
        retries=RetryPolicy(cancelled=around.stopped),
        budget=DollarBudget(limit, around.spent),
        prices=PriceTable.load(Path(settings.prices) if settings.prices is not None else None),
        on_wait=waiting,
    )


def _today() -> date:
    return datetime.now(UTC).date()
