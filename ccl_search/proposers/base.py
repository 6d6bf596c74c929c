"""The contract of every proposer: the whole history goes in, the next policy comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from runs.objective import Objective
from runs.space import ConfigSpace
from runs.trial import FailureClass, TrialState

if TYPE_CHECKING:
    from ccl_search.constraints import Limit
    from ccl_search.pareto.guidance import Guidance


@dataclass(frozen=True)
class TrialView:
    """What a proposer may know of a trial: its config, what became of it, its whole error, its metric values.

    `metrics` holds only metrics that have a value, in their units (seconds for times). `score` is higher-is-better.
    `violations` are the user's limits that a succeeded trial breaks; such a trial has no score. `score_spread` is
    largest minus smallest score over the repeats, None where the config was measured once. `portability` is the report
    on how the policy does on other clusters, in one line; empty where none was made.
    """

    number: int
    state: TrialState
    config: dict[str, Any] | None
    metrics: dict[str, float] = field(default_factory=dict)
    score: float | None = None
    failure: FailureClass | None = None
    evidence: str = ""
    policy_source: str = ""
    rationale: str = ""
    violations: tuple[str, ...] = ()
    score_spread: float | None = None
    portability: str = ""


@dataclass(frozen=True)
class ProposalContext:
    """The state of a search at the moment a proposal is wanted.

    `workload` and `environment` are the dicts a policy receives (`workload["config_space"]` included). `history`
    holds every finished trial of the run in order, pruned and failed ones too; the refusals of this very iteration
    are its last entries, `refusals` of them. `iteration` counts from 1 (trial 0 is the seed policy). `limits` are the
    user's bounds on metrics; bounds on knobs are constraints of the space. `running` are trials in flight. `pareto` is
    there when the front itself is wanted, not the best score.
    """

    run_id: str
    iteration: int
    iterations: int
    workload: dict[str, Any]
    environment: dict[str, Any]
    space: ConfigSpace
    objective: Objective
    history: tuple[TrialView, ...]
    current_policy: str
    refusals: int = 0
    limits: tuple[Limit, ...] = ()
    pareto: Guidance | None = None
    running: tuple[TrialView, ...] = ()

    @property
    def best(self) -> TrialView | None:
        """The succeeded trial with the highest score; the earlier one of equals."""
        scored = [trial for trial in self.history if trial.score is not None and trial.state is TrialState.SUCCEEDED]
        return max(scored, key=lambda trial: (trial.score or 0.0, -trial.number), default=None)


@dataclass(frozen=True)
class Proposal:
    """The next policy and why. `llm_calls` are ids of ledger rows that led to it."""

    source: str
    rationale: str = ""
    llm_calls: tuple[int, ...] = ()


class ProposalFailedError(Exception):
    """This iteration yields no policy, but a later one may (a refusal, a truncated answer, no tool call).

    `source` is the last policy turned down, `llm_calls` the ledger rows it took; both may be empty.
    """

    source: str = ""
    llm_calls: tuple[int, ...] = ()


class ProposerExhaustedError(Exception):
    """There is nothing left to propose; the search ends in good order."""


class Proposer(Protocol):
    """Proposes policies. Deterministic under its seed, except where an LLM is asked."""

    name: str

    def propose(self, context: ProposalContext) -> Proposal:
        """The next policy (see the errors above for when there is none)."""
        ...

    def close(self) -> None:
        """Free what the proposer holds (connections, studies)."""
        ...


def constant_policy(config: dict[str, Any]) -> str:
    """The source of a policy that always gives `config`: how samplers of configs take part in a search of policies."""
    items = "".join(f"        {key!r}: {value!r},\n" for key, value in config.items())
    return f"def generate_config(workload, environment):\n    return {{\n{items}    }}\n"
