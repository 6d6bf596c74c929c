"""One iteration's proposals: ask, evaluate in the sandbox, check; a refusal goes back at once with its reason."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ccl_search import feasibility, trial_files
from ccl_search.observer import Observer
from ccl_search.problem import Problem
from ccl_search.proposers.base import Proposal, ProposalContext, ProposalFailedError, Proposer
from ccl_search.recorder import Recorder
from ccl_search.settings import MAX_REPROPOSALS, SearchSettings
from ccl_search.suggestion import Suggestion
from policies.runner import PolicyError, PolicyRunner
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.trial import FailureClass


@dataclass
class Proposing:
    """Turns a proposer's policies into suggestions. Refused proposals are recorded and cost no launch."""

    problem: Problem
    settings: SearchSettings
    proposer: Proposer
    runner: PolicyRunner
    recorder: Recorder
    observer: Observer

    def seed(self, source: str) -> Suggestion | None:
        """Trial 0: the seed policy. None when it gives nothing that can be launched; its row says why."""
        return self._consider(0, Proposal(source, "seed policy"), 0.0)

    def next(self, iteration: int) -> Suggestion | None:
        """The iteration's suggestion; None when the proposer failed or every proposal was refused.

        Raises:
            ProposerExhaustedError: there is nothing left to propose.
        """
        for refusals in range(MAX_REPROPOSALS + 1):
            self.observer.proposing(iteration)
            started = time.perf_counter()
            try:
                proposal = self.proposer.propose(self.context(iteration, refusals))
            except ProposalFailedError as error:
                rejected = Proposal(error.source, llm_calls=error.llm_calls)
                seconds = time.perf_counter() - started
                self._refuse(iteration, rejected, None, FailureClass.PROPOSAL_FAILED, str(error), seconds)
                return None
            suggestion = self._consider(iteration, proposal, time.perf_counter() - started)
            if suggestion is not None:
                return suggestion
        return None

    def context(self, iteration: int, refusals: int = 0) -> ProposalContext:
        """What the proposer is told."""
        history = self.recorder.history
        return ProposalContext(
            run_id=self.recorder.run_id,
            iteration=iteration,
            iterations=self.settings.iterations,
            workload=self.problem.workload_input,
            environment=self.problem.environment_input,
            space=self.problem.space,
            objective=self.recorder.objective,
            history=history,
            current_policy=next((t.policy_source for t in reversed(history) if t.policy_source), ""),
            refusals=refusals,
            running=self.recorder.running,
            limits=self.recorder.limits,
            pareto=self.recorder.guidance() if self.settings.pareto else None,
        )

    def check_policy(self, source: str) -> str | None:
        """What is wrong with a policy as such, as text for its author; None when it yields a config."""
        try:
            self.runner.evaluate(source, self.problem.workload_input, self.problem.environment_input)
        except PolicyError as error:
            return _text(error)
        return None

    def _consider(self, iteration: int, proposal: Proposal, seconds: float) -> Suggestion | None:
        try:
            config = self.runner.evaluate(proposal.source, self.problem.workload_input, self.problem.environment_input)
        except PolicyError as error:
            self._refuse(iteration, proposal, None, FailureClass.POLICY_ERROR, _text(error), seconds)
            return None
        verdict = feasibility.check(config, self.problem, self.recorder.seen)
        if isinstance(verdict, ParallelPlan) and iteration > 0:
            verdict = self._startable(config, verdict)
        if isinstance(verdict, feasibility.Refusal):
            self._refuse(iteration, proposal, config, verdict.failure, verdict.reason, seconds)
            return None
        number = self.recorder.accept(iteration, proposal, config, verdict, seconds)
        return Suggestion(number, iteration, config, verdict, proposal)

    def _startable(self, config: dict[str, Any], plan: ParallelPlan) -> ParallelPlan | feasibility.Refusal:
        """The plan, unless the framework's version cannot be told the config; one that no config suits ends trial 0."""
        try:
            trial_files.command_of(self.problem, self.settings, config, plan)
        except BadInputError as error:
            return feasibility.Refusal(FailureClass.INVALID_CONFIG, f"{error.message} ({error.hint})")
        return plan

    def _refuse(
        self,
        iteration: int,
        proposal: Proposal,
        config: dict[str, Any] | None,
        failure: FailureClass,
        reason: str,
        seconds: float,
    ) -> None:
        view = self.recorder.refuse(iteration, proposal, config, failure, reason, seconds)
        self.observer.trial_refused(view)


def _text(error: PolicyError) -> str:
    return f"{error}\n{error.traceback}".rstrip()
