"""The uncalibrated simulator against 85 measured Perlmutter trials: memory verdicts and the order of step times."""

from __future__ import annotations

import pytest

from backends.dry_run import dry_run
from backends.memory import DEFAULT_MARGIN, estimate
from tests.backends.recorded import RecordedTrial, recorded_trials, spearman, stacks_to_rank

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def trials() -> list[RecordedTrial]:
    return recorded_trials()


def test_no_measured_success_is_called_out_of_memory(trials: list[RecordedTrial]) -> None:
    refused = [
        (trial.plan, found.describe())
        for trial in trials
        if not (found := estimate(trial.workload, trial.environment, trial.plan)).fits
    ]
    assert len(trials) >= 50
    assert refused == []


def test_the_margin_is_what_the_fullest_success_needs(trials: list[RecordedTrial]) -> None:
    ratios = []
    for trial in trials:
        found = estimate(trial.workload, trial.environment, trial.plan)
        ratios.append(found.total_bytes / found.limit_bytes)
    assert DEFAULT_MARGIN - 0.02 < max(ratios) - 1 <= DEFAULT_MARGIN


def test_step_times_are_ordered_as_measured(trials: list[RecordedTrial]) -> None:
    found = {}
    for stack, members in stacks_to_rank(trials).items():
        simulated = [dry_run(t.workload, t.environment, t.plan).wall_s for t in members]
        found[stack] = spearman([t.median for t in members], simulated)
    assert len(found) == 3
    assert min(found.values()) >= 0.8, found
