"""One iteration's proposals: ask, evaluate in the sandbox, check; a refusal goes back at once with its reason.

With a screen, proposals that pass the checks are simulated too: hopeless ones go back as well, and of several that
pass the best predicted one is launched.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

from ccl_search import feasibility
from ccl_search.loop import trial_files
from ccl_search.loop.observer import Observer
from ccl_search.loop.recorder import Recorder
from ccl_search.loop.suggestion import Suggestion
from ccl_search.portability.metric import PortabilityTool
from ccl_search.problem import Problem
from ccl_search.proposers.base import (
    Proposal,
    ProposalContext,
    ProposalFailedError,
    Proposer,
    ProposerExhaustedError,
    TrialView,
)
from ccl_search.screening.screen import Known, Screen, out_of_memory
from ccl_search.settings import MAX_REPROPOSALS, SearchSettings
from policies.runner import PolicyError, PolicyRunner
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.screening import Screening, Verdict
from runs.space import config_key
from runs.trial import FailureClass, TrialState


@dataclass(frozen=True)
class Candidate:
    """A proposal that may be launched, with what a screen said of it."""

    proposal: Proposal
    config: dict[str, Any]
    plan: ParallelPlan
    seconds: float
    screening: Screening | None = None

    @property
    def rank(self) -> float:
        """Which of several is launched: one that checks the screen, else the best expected score."""
        if self.screening is None or self.screening.verdict is Verdict.CHECKED:
            return math.inf
        return -math.inf if self.screening.score is None else self.screening.score


@dataclass
class _Round:
    """The candidates of one iteration: `wanted` of them, after at most `MAX_REPROPOSALS` refusals."""

    wanted: int
    asked: int = 0
    refused: int = 0
    held: list[Candidate] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        """Whether the proposer is to be asked again."""
        checked = any(candidate.rank == math.inf for candidate in self.held)
        return self.refused <= MAX_REPROPOSALS and len(self.held) < self.wanted and not checked

    def views(self, first: int) -> tuple[TrialView, ...]:
        """What the proposer is told of the candidates, which have no rows yet; `first` is the next trial's number."""
        return tuple(
            TrialView(
                first + place, TrialState.PRUNED, candidate.config, failure=FailureClass.SCREENED,
                evidence=f"candidate {place + 1} of {self.wanted}, another one is wanted: {_said(candidate)}",
                policy_source=candidate.proposal.source, rationale=candidate.proposal.rationale,
            )
            for place, candidate in enumerate(self.held)
        )  # fmt: skip

    def place_of(self, config: dict[str, Any]) -> int | None:
        """The place, from 1, of the candidate with this config."""
        key = config_key(config)
        return next((i + 1 for i, held in enumerate(self.held) if config_key(held.config) == key), None)


@dataclass
class Proposing:
    """Turns a proposer's policies into suggestions. Refused proposals are recorded and cost no launch."""

    problem: Problem
    settings: SearchSettings
    proposer: Proposer
    runner: PolicyRunner
    recorder: Recorder
    observer: Observer
    screen: Screen | None = None
    portability: PortabilityTool | None = None

    def seed(self, source: str) -> Suggestion | None:
        """Trial 0: the seed policy. None when it gives nothing that can be launched; its row says why."""
        candidate = self._consider(0, Proposal(source, "seed policy"), 0.0, _Round(1))
        return None if candidate is None else self._accept(0, candidate)

    def next(self, iteration: int) -> Suggestion | None:
        """The iteration's suggestion; None when the proposer failed or every proposal was refused.

        Raises:
            ProposerExhaustedError: there is nothing left to propose.
        """
        candidates = _Round(self.screen.plan.candidates if self.screen else 1)
        while candidates.goes_on:
            try:
                self._ask(iteration, candidates)
            except ProposalFailedError:
                break
            except ProposerExhaustedError:
                if not candidates.held:
                    raise
                break
        return self._choose(iteration, candidates)

    def _ask(self, iteration: int, candidates: _Round) -> None:
        """One more proposal: held as a candidate, or refused and recorded."""
        self.observer.proposing(iteration)
        started = time.perf_counter()
        try:
            proposal = self.proposer.propose(self._told(iteration, candidates))
        except ProposalFailedError as error:
            rejected = Proposal(error.source, llm_calls=error.llm_calls)
            seconds = time.perf_counter() - started
            self._refuse(iteration, rejected, None, FailureClass.PROPOSAL_FAILED, str(error), seconds)
            raise
        candidates.asked += 1
        candidate = self._consider(iteration, proposal, time.perf_counter() - started, candidates)
        if candidate is None:
            candidates.refused += 1
        else:
            candidates.held.append(candidate)

    def _choose(self, iteration: int, candidates: _Round) -> Suggestion | None:
        """Launch the best candidate. Its row comes first: a search that dies here launches it, and loses no other."""
        if not candidates.held:
            return None
        count = len(candidates.held)
        best = max(candidates.held, key=lambda candidate: candidate.rank)
        suggestion = self._accept(iteration, _with_count(best, count))
        for candidate in candidates.held:
            if candidate is not best:
                self._outrank(iteration, _with_count(candidate, count), suggestion.number, best)
        return suggestion

    def _accept(self, iteration: int, candidate: Candidate) -> Suggestion:
        proposal, config, plan = candidate.proposal, candidate.config, candidate.plan
        number = self.recorder.accept(iteration, proposal, config, plan, candidate.seconds, candidate.screening)
        return Suggestion(number, iteration, config, plan, proposal)

    def _outrank(self, iteration: int, candidate: Candidate, number: int, best: Candidate) -> None:
        reason = f"screened: trial {number} of this iteration is launched instead ({_said(best)}); {_said(candidate)}"
        screening = candidate.screening and replace(candidate.screening, verdict=Verdict.OUTRANKED, reason=reason)
        self._refuse(
            iteration, candidate.proposal, candidate.config, FailureClass.SCREENED, reason, candidate.seconds, screening
        )

    def _told(self, iteration: int, candidates: _Round) -> ProposalContext:
        context = self.context(iteration, candidates.asked)
        taken = [view.number for view in (*context.history, *context.running)]
        return replace(context, history=context.history + candidates.views(max(taken, default=-1) + 1))

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

    def _consider(self, iteration: int, proposal: Proposal, seconds: float, candidates: _Round) -> Candidate | None:
        try:
            config = self.runner.evaluate(proposal.source, self.problem.workload_input, self.problem.environment_input)
        except PolicyError as error:
            self._refuse(iteration, proposal, None, FailureClass.POLICY_ERROR, _text(error), seconds)
            return None
        verdict = feasibility.check(config, self.problem, self.recorder.seen)
        if isinstance(verdict, ParallelPlan) and iteration > 0:
            verdict = self._startable(config, verdict)
        if isinstance(verdict, ParallelPlan) and (place := candidates.place_of(config)) is not None:
            verdict = feasibility.Refusal(FailureClass.DUPLICATE, f"duplicate: candidate {place} of this iteration")
        if isinstance(verdict, feasibility.Refusal):
            self._refuse(
                iteration, proposal, config, verdict.failure, verdict.reason, seconds, self._of_refusal(verdict)
            )
            return None
        screening = self._look(proposal, config, verdict)
        if screening is not None and not screening.verdict.is_launched:
            reason = f"screened: {screening.reason}"
            self._refuse(iteration, proposal, config, FailureClass.SCREENED, reason, seconds, screening)
            return None
        return Candidate(proposal, config, verdict, seconds, screening)

    def _startable(self, config: dict[str, Any], plan: ParallelPlan) -> ParallelPlan | feasibility.Refusal:
        """The plan, unless the framework's version cannot be told the config; one that no config suits ends trial 0."""
        try:
            trial_files.command_of(self.problem, self.settings, config, plan)
        except BadInputError as error:
            return feasibility.Refusal(FailureClass.INVALID_CONFIG, f"{error.message} ({error.hint})")
        return plan

    def _look(self, proposal: Proposal, config: dict[str, Any], plan: ParallelPlan) -> Screening | None:
        """What the screen says; a metric of the policy itself is known without a simulation."""
        if self.screen is None:
            return None
        found = None if self.portability is None else self.portability.value(proposal.source)
        told = {} if found is None or found.value is None else {found.name: found.value}
        return self.screen.look(config, plan, self._known, told)

    def _of_refusal(self, refusal: feasibility.Refusal) -> Screening | None:
        if self.screen is None or refusal.memory is None:
            return None
        return out_of_memory(refusal.reason, refusal.memory.total_bytes, refusal.memory.limit_bytes)

    @property
    def _known(self) -> Known:
        recorder = self.recorder
        measured = [view for view in recorder.history if view.state is TrialState.SUCCEEDED]
        predicted = {number: found.predicted for number, found in recorder.screenings.items()}
        pairs = [(predicted[view.number], view.metrics) for view in measured if view.number in predicted]
        return Known(recorder.objective, measured, pairs, self.settings.pareto)

    def _refuse(
        self,
        iteration: int,
        proposal: Proposal,
        config: dict[str, Any] | None,
        failure: FailureClass,
        reason: str,
        seconds: float,
        screening: Screening | None = None,
    ) -> None:
        view = self.recorder.refuse(iteration, proposal, config, failure, reason, seconds, screening)
        self.observer.trial_refused(view)


def _text(error: PolicyError) -> str:
    return f"{error}\n{error.traceback}".rstrip()


def _with_count(candidate: Candidate, count: int) -> Candidate:
    screening = candidate.screening and replace(candidate.screening, candidates=count)
    return replace(candidate, screening=screening)


def _said(candidate: Candidate) -> str:
    return candidate.screening.reason if candidate.screening else "not screened"
