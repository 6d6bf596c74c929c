"""The `guided` proposer: what a performance engineer does with the recorded bottleneck metrics, without an LLM.

It estimates every valid config on the back of an envelope, lets the recorded trials correct the scale of compute,
exposed communication by cause, bubble and memory, learns from how far each estimate was off, and proposes the config
that promises most. It sees what any proposer sees, recorded metrics, and no simulator. Equal promises are told apart
by the config's text, so that the same history gives the same proposal.
"""

from __future__ import annotations

from ccl_search.proposers.base import Proposal, ProposalContext
from ccl_search.proposers.guided.choosing import Chooser, explain
from ccl_search.proposers.guided.envelope import estimate
from ccl_search.proposers.guided.writing import policy_text


class GuidedProposer:
    """Proposes by rules over recorded metrics. Nothing in it is random; the seed is accepted and not used."""

    name = "guided"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._chooser: Chooser | None = None

    def propose(self, context: ProposalContext) -> Proposal:
        """The next policy.

        Raises:
            ProposerExhaustedError: every valid config has been tried.
        """
        if self._chooser is None:
            self._chooser = Chooser.of(context)
        choice = self._chooser.choose(context)
        reason = explain(choice, context)
        needs_gb = estimate(choice.config, self._chooser.setting).memory_gb
        source = policy_text(choice.config, context.environment, reason, context.space, needs_gb)
        return Proposal(source, reason)

    def close(self) -> None:
        """Nothing is held but what follows from the context."""
        self._chooser = None
