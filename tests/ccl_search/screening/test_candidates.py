"""One iteration with a screen: how often the proposer is asked, what it is told, which candidate is launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from backends.calibration import Calibration
from ccl_search import ProblemSource, Search, SearchSettings, create, open_store, reopen
from ccl_search.proposers.base import (
    Proposal,
    ProposalContext,
    ProposalFailedError,
    ProposerExhaustedError,
    constant_policy,
)
from ccl_search.screening.plan import ScreenPlan
from ccl_search.screening.screen import Known
from runs.metric import MetricValue
from runs.plan import ParallelPlan
from runs.screening import Screening, Verdict
from runs.store import RunStatus
from runs.trial import FailureClass, TrialState

BASE = {
    "tp": 4, "cp": 1, "pp": 1, "dp": 4, "dp_shard": 4, "zero_stage": 3, "pipeline_schedule": "1f1b",
    "activation_checkpointing": "full", "compile": False,
}  # fmt: skip
SHAPES = ((1, 1, 4), (2, 1, 2), (2, 1, 4), (2, 2, 2), (4, 1, 2), (4, 2, 2))
"""tp, pp and dp of configs that are valid and fit."""


def config(place: int) -> dict[str, Any]:
    tp, pp, dp = SHAPES[place]
    return {**BASE, "tp": tp, "pp": pp, "dp": dp, "dp_shard": dp, "micro_batch_size": 1, "compile": True}


@dataclass
class Script:
    """Proposes what it was told to, in order; an exception is raised. Keeps what it was shown."""

    steps: list[dict[str, Any] | Exception]
    name: str = "script"
    shown: list[ProposalContext] = field(default_factory=list)

    def propose(self, context: ProposalContext) -> Proposal:
        self.shown.append(context)
        if not self.steps:
            raise ProposerExhaustedError("nothing left")
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return Proposal(constant_policy(step))

    def close(self) -> None:
        pass


@dataclass
class FixedScreen:
    """Gives scores and verdicts that were written down, by shape of the config; keeps what was known."""

    plan: ScreenPlan
    said: dict[tuple[int, int, int], tuple[Verdict, float]]
    known: list[Known] = field(default_factory=list)
    told: list[dict[str, float]] = field(default_factory=list)

    def look(self, config: dict[str, Any], plan: ParallelPlan, known: Known, told: dict[str, float]) -> Screening:
        self.known.append(known)
        self.told.append(told)
        verdict, score = self.said.get((config["tp"], config["pp"], config["dp"]), (Verdict.UNKNOWN, -9.0))
        return Screening(
            verdict=verdict, reason=f"as written {score:g}", predicted={"avg_step_time": -score}, score=score
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with open_store(str(tmp_path), write=True) as found:
        yield found


def search(
    store: Any,
    steps: Sequence[Any],
    verdicts: Sequence[tuple[Verdict, float]],
    candidates: int = 1,
    iterations: int = 1,
) -> Search:
    """A search whose seed policy has been told to take 10 s."""
    settings = SearchSettings(iterations=iterations, proposer="random", screen="dry-run", seed=1)
    found = create(ProblemSource(workload="wl4"), settings, store)
    said = {SHAPES[place]: verdict for place, verdict in enumerate(verdicts)}
    found.screen = FixedScreen(ScreenPlan("dry-run", candidates, 0.0, Calibration(), 2.0, ""), said)  # type: ignore[assignment]
    found.proposer = Script(list(steps))
    seed = found.ask()
    assert seed is not None
    found.tell(seed, {"avg_step_time": 10.0})
    return found


def rows(store: Any, found: Search) -> list[tuple[Any, Any]]:
    """(shape, failure or state) of every trial but the seed."""
    return [
        ((t.config["tp"], t.config["pp"], t.config["dp"]) if t.config else None, t.failure or t.state)
        for t in store.trials(found.run_id)[1:]
    ]


PASSED, HOPELESS, CHECKED = Verdict.PASSED, Verdict.HOPELESS, Verdict.CHECKED


def test_a_hopeless_proposal_goes_back_with_its_reason(store: Any) -> None:
    found = search(store, [config(0), config(1)], [(HOPELESS, -30.0), (PASSED, -5.0)])
    suggestion = found.ask()
    assert suggestion is not None
    assert (suggestion.config, suggestion.number) == (config(1), 2)
    last = found.proposer.shown[-1]  # type: ignore[attr-defined]
    assert last.refusals == 1
    assert (last.history[-1].failure, last.history[-1].evidence) == (FailureClass.SCREENED, "screened: as written -30")
    assert rows(store, found) == [(SHAPES[0], FailureClass.SCREENED), (SHAPES[1], TrialState.QUEUED)]
    decisions = store.screenings(found.run_id)
    assert [decisions[number].verdict for number in (1, 2)] == [HOPELESS, PASSED]


def test_after_four_hopeless_ones_the_iteration_is_spent(store: Any) -> None:
    found = search(store, [config(n) for n in range(6)], [(HOPELESS, -30.0)] * 5 + [(PASSED, -1.0)], iterations=2)
    suggestion = found.ask()
    assert suggestion is not None
    assert (suggestion.iteration, suggestion.config) == (2, config(5))
    assert [failure for _, failure in rows(store, found)][:5] == [FailureClass.SCREENED] * 5


def test_the_best_predicted_of_the_candidates_is_launched(store: Any) -> None:
    found = search(store, [config(n) for n in range(4)], [(PASSED, -3.0), (PASSED, -1.0), (PASSED, -2.0)], candidates=3)
    suggestion = found.ask()
    assert suggestion is not None
    assert suggestion.config == config(1)
    assert len(found.proposer.shown) == 3  # type: ignore[attr-defined]
    decisions = store.screenings(found.run_id)
    assert decisions[suggestion.number].verdict is PASSED
    assert sorted(d.verdict for d in decisions.values() if d.verdict is Verdict.OUTRANKED) == [Verdict.OUTRANKED] * 2
    assert all(decisions[number].candidates == 3 for number in decisions if number > 0)
    outranked = [t for t in store.trials(found.run_id) if t.failure is FailureClass.SCREENED]
    assert f"trial {suggestion.number} of this iteration is launched instead" in outranked[0].evidence
    assert "as written -3" in outranked[0].evidence


def test_the_proposer_sees_the_candidates_that_are_held(store: Any) -> None:
    found = search(store, [config(0), config(0), config(1)], [(PASSED, -3.0), (PASSED, -1.0)], candidates=2)
    suggestion = found.ask()
    assert suggestion is not None
    first, second, third = found.proposer.shown  # type: ignore[attr-defined]
    assert (first.refusals, second.refusals, third.refusals) == (0, 1, 2)
    assert second.history[-1].config == config(0)
    assert "candidate 1 of 2" in second.history[-1].evidence
    duplicate = next(t for t in store.trials(found.run_id) if t.failure is FailureClass.DUPLICATE)
    assert duplicate.evidence == "duplicate: candidate 1 of this iteration"


def test_what_is_held_is_launched_when_the_proposer_has_no_more(store: Any) -> None:
    found = search(store, [config(0)], [(PASSED, -3.0)], candidates=5)
    suggestion = found.ask()
    assert suggestion is not None
    assert suggestion.config == config(0)


def test_what_is_held_is_launched_when_the_proposer_fails(store: Any) -> None:
    found = search(store, [config(0), ProposalFailedError("no answer")], [(PASSED, -3.0)], candidates=5)
    suggestion = found.ask()
    assert suggestion is not None
    assert suggestion.config == config(0)
    assert [failure for _, failure in rows(store, found)] == [FailureClass.PROPOSAL_FAILED, TrialState.QUEUED]


def test_a_check_of_the_screen_takes_the_launch(store: Any) -> None:
    found = search(store, [config(n) for n in range(3)], [(PASSED, -1.0), (CHECKED, -30.0)], candidates=3)
    suggestion = found.ask()
    assert suggestion is not None
    assert suggestion.config == config(1)
    assert len(found.proposer.shown) == 2  # type: ignore[attr-defined]


def test_predictions_are_paired_with_what_was_told(store: Any) -> None:
    found = search(store, [config(0), config(1)], [(PASSED, -3.0), (PASSED, -1.0)], iterations=2)
    suggestion = found.ask()
    assert suggestion is not None
    found.tell(suggestion, {"avg_step_time": 6.0})
    assert found.ask() is not None
    known = found.screen.known[-1]  # type: ignore[union-attr]
    assert ({"avg_step_time": 3.0}, {"avg_step_time": 6.0}) in [
        (p, {"avg_step_time": m["avg_step_time"]}) for p, m in known.pairs
    ]
    assert known.best.number == suggestion.number


def test_a_reopened_search_knows_its_decisions(store: Any) -> None:
    found = search(store, [config(0), config(1)], [(PASSED, -3.0), (PASSED, -1.0)], iterations=2)
    suggestion = found.ask()
    assert suggestion is not None
    found.tell(suggestion, {"avg_step_time": 6.0})
    found.close()
    store.finish_run(found.run_id, RunStatus.INTERRUPTED)
    again = reopen(found.run_id, store)
    assert again.recorder.screenings == store.screenings(found.run_id)
    assert again.screen is not None
    assert again.screen.plan.target == "dry-run"
    again.close()


def test_a_config_that_does_not_fit_is_recorded_with_its_bytes(store: Any) -> None:
    big = {**config(0), "dp": 1, "dp_shard": 1}
    found = search(store, [big, config(0)], [(PASSED, -1.0)])
    assert found.ask() is not None
    number, decision = next(
        (n, d) for n, d in store.screenings(found.run_id).items() if d.verdict is Verdict.OUT_OF_MEMORY
    )
    assert store.trial(found.run_id, number).failure is FailureClass.PREDICTED_OOM
    assert decision.predicted["device_memory_bytes"] > decision.predicted["limit_bytes"]


def test_the_metric_of_the_policy_itself_is_told(store: Any) -> None:
    found = search(store, [config(0)], [(PASSED, -3.0)])

    class Fixed:
        def value(self, source: str) -> MetricValue:
            return MetricValue("portability", "1", "1", 0.25)

    found.portability = Fixed()  # type: ignore[assignment]
    assert found.ask() is not None
    assert found.screen.told[-1] == {"portability": 0.25}  # type: ignore[union-attr]


def test_without_a_screen_nothing_is_recorded(store: Any) -> None:
    settings = SearchSettings(iterations=1, proposer="random")
    found = create(ProblemSource(workload="wl4"), settings, store)
    assert found.screen is None
    assert found.ask() is not None
    found.close()
    assert store.screenings(found.run_id) == {}


def test_a_check_needs_a_screen(store: Any) -> None:
    settings = replace(SearchSettings(iterations=1, proposer="random"), screen_check=0.5)
    with pytest.raises(Exception, match="--screen-check without --screen"):
        create(ProblemSource(workload="wl4"), settings, store)
