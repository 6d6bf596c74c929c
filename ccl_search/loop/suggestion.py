"""`Suggestion`: a config that passed every check and has its trial row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ccl_search.proposers.base import Proposal
from runs.plan import ParallelPlan


@dataclass(frozen=True)
class Suggestion:
    """What is to be launched next: the trial's `number`, its `config` and what the config means, and its policy."""

    number: int
    iteration: int
    config: dict[str, Any]
    plan: ParallelPlan
    proposal: Proposal
