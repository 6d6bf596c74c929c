"""The launcher contract, for the launchers that need nothing but this machine (Slurm's is in `slurm/test_real.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from launchers import testing
from launchers.base import Job
from launchers.dry_run import DryRunLauncher
from launchers.local import LocalLauncher
from launchers.testing import ENDLESS, FAILS, OUT_OF_MEMORY, SUCCEEDS, Bench
from runs import catalogue
from runs.plan import ParallelPlan
from tests.backends.doubles import FSDP_STATE, perlmutter, training_plan
from tests.launchers import jobs

WL4 = catalogue.workload("wl4")
Check = Callable[[Bench], None]


def count_marked(mark: str) -> int:
    """Processes of this machine, zombies left out, whose command line holds `mark`."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, state = (
                (folder / "cmdline").read_bytes(),
                (folder / "stat").read_text().rpartition(")")[2].split()[0],
            )
        except OSError:
            continue
        found += mark.encode() in words and state != "Z" and int(folder.name) != os.getpid()
    return found


@pytest.fixture
def local(tmp_path: Path) -> Bench:
    mark = f"endless-{tmp_path.name}-{os.getpid()}"
    return Bench(
        new=LocalLauncher,
        jobs={
            SUCCEEDS: lambda folder, trial: jobs.job(folder, jobs.succeeding(), trial=trial),
            FAILS: lambda folder, trial: jobs.job(folder, jobs.python("raise ValueError('no')"), trial=trial),
            OUT_OF_MEMORY: lambda folder, trial: jobs.job(folder, jobs.python(jobs.TORCH_OOM), trial=trial),
            # One child leaves the session, so that the process group alone would not catch it.
            ENDLESS: lambda folder, trial: jobs.job(
                folder, jobs.bash(f": {mark}; trap '' TERM; setsid sleep 300.{os.getpid()} & sleep 300; :"), trial=trial
            ),
        },
        folder=tmp_path,
        processes=lambda: count_marked(mark) + count_marked(f"300.{os.getpid()}"),
        patience_s=30,
        pause_s=0.02,
    )


def _simulated(folder: Path, trial: int, plan: ParallelPlan) -> Job:
    base = jobs.job(folder, None, trial=trial)
    return replace(base, plan=plan, workload=WL4, environment=perlmutter())


@pytest.fixture
def dry_run(tmp_path: Path) -> Bench:
    fits = training_plan(WL4, tp=4, dp_shard=4, state_bytes=FSDP_STATE)
    huge = training_plan(WL4, tp=1, dp_shard=1, state_bytes=FSDP_STATE)
    return Bench(
        new=DryRunLauncher,
        jobs={
            SUCCEEDS: lambda folder, trial: _simulated(folder, trial, fits),
            OUT_OF_MEMORY: lambda folder, trial: _simulated(folder, trial, huge),
        },
        folder=tmp_path,
    )


@pytest.mark.parametrize("check", testing.checks(SUCCEEDS, FAILS, OUT_OF_MEMORY, ENDLESS), ids=lambda c: c.__name__)
def test_local(check: Check, local: Bench) -> None:
    check(local)


# Simulated jobs are never repeated for what the machines did, so that there is no second attempt to keep clean.
DRY_RUN_CHECKS = [
    check for check in testing.checks(SUCCEEDS, OUT_OF_MEMORY) if check is not testing.a_second_attempt_starts_clean
]


@pytest.mark.parametrize("check", DRY_RUN_CHECKS, ids=lambda c: c.__name__)
def test_dry_run(check: Check, dry_run: Bench) -> None:
    check(dry_run)
