"""What a search tells whoever watches it. The loop knows no terminal; the CLI's live table is one observer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ccl_search.proposers.base import TrialView


@dataclass(frozen=True)
class RunView:
    """A run as it begins: who proposes, where trials run, how many are wanted, and what is optimised."""

    run_id: str
    proposer: str
    reason: str
    target: str
    workload: str
    environment: str
    framework: str
    objective: str
    iterations: int
    knobs: tuple[str, ...]


class Observer:
    """Hears of everything in order and does nothing; override what is of interest."""

    def run_started(self, run: RunView) -> None:
        """The run has its row in the store."""

    def proposing(self, iteration: int) -> None:
        """The proposer is being asked."""

    def trial_refused(self, trial: TrialView) -> None:
        """A proposal was turned down before any launch."""

    def trial_launched(self, number: int, config: dict[str, Any]) -> None:
        """A config was handed to the launcher."""

    def trial_finished(self, trial: TrialView) -> None:
        """A launched trial has its result, or a proposal failed for good."""

    def notice(self, text: str) -> None:
        """Something worth a line: a retry, a wait, a warning."""

    def run_finished(self, status: str, reason: str) -> None:
        """The run's row is closed."""
