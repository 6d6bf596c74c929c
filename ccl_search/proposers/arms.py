"""Policies that are tried in their order before a proposer goes on: how a replay sets configs side by side.

They stand in the run's options, so that a resumed run knows them: `arms` is a list of `{name, source, rationale}`,
`refine` how many trials the proposer may add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccl_search.proposers.base import Proposal, ProposalContext, Proposer, ProposerExhaustedError, TrialView

ARMS, REFINE = "arms", "refine"


@dataclass(frozen=True)
class Arm:
    """One policy to be tried; no two of a run have the same rationale."""

    name: str
    source: str
    rationale: str

    def as_dict(self) -> dict[str, str]:
        """Plain data for the run's options."""
        return dict(vars(self))


class ArmsProposer:
    """Proposes the arms one after the other, then what `inner` proposes, `refine` launched trials of it."""

    def __init__(self, arms: tuple[Arm, ...], inner: Proposer, refine: int) -> None:
        self.name = inner.name
        self._arms = arms
        self._inner = inner
        self._refine = refine

    def propose(self, context: ProposalContext) -> Proposal:
        """The next arm that the history does not hold, or the inner proposer's next policy.

        Raises:
            ProposerExhaustedError: all arms were tried, and `refine` trials after them.
        """
        tried = {trial.rationale for trial in context.history}
        for arm in self._arms:
            if arm.rationale not in tried:
                return Proposal(arm.source, arm.rationale)
        own = {arm.rationale for arm in self._arms}
        if sum(_counts(trial) for trial in context.history[1:] if trial.rationale not in own) >= self._refine:
            raise ProposerExhaustedError("everything to be compared was tried")
        return self._inner.propose(context)

    def close(self) -> None:
        """Close the inner proposer."""
        self._inner.close()


def before(inner: Proposer, options: Mapping[str, Any]) -> Proposer:
    """`inner`, or the arms of a run's options before it."""
    if ARMS not in options:
        return inner
    return ArmsProposer(tuple(Arm(**arm) for arm in options[ARMS]), inner, int(options.get(REFINE, 0)))


def _counts(trial: TrialView) -> bool:
    return trial.failure is None or not trial.failure.is_refusal
