"""A trial's folder is a benchmark entry: card, launch script, policy, config, trace, metric values, execution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccl_search.loop import rerun
from launchers.base import Job
from runs.digests import file_sha256
from runs.metric import MetricValue
from runs.trial import Execution

if TYPE_CHECKING:
    from ccl_search.loop.suggestion import Suggestion
    from ccl_search.problem import Problem
    from ccl_search.settings import SearchSettings
    from launchers.shell.command import Command
    from runs.plan import ParallelPlan

RECORDED_STEPS = 5
DEFAULT_TIME_LIMIT_S = 3600.0
EXECUTION = "execution.json"
STEP_KEYS = ("warmup_steps", "recorded_steps", "decode_steps")


@dataclass(frozen=True)
class FileFacts:
    """A kept file: its path relative to the trial's folder, its size in bytes and its SHA-256."""

    path: str
    size: int
    sha256: str


def card_yaml(problem: Problem, plan: ParallelPlan) -> str:
    """The workload card of a trial: the run's card with this trial's parallelism filled in."""
    from runs.card import to_yaml, with_plan

    return to_yaml(with_plan(problem.card, plan, RECORDED_STEPS))


def job_for(
    problem: Problem, settings: SearchSettings, run_id: str, directory: Path, suggestion: Suggestion, script: str = ""
) -> Job:
    """The job of a suggestion. `script` repeats the trial (see `ccl_search.loop.rerun`)."""
    return Job(
        run_id=run_id,
        trial=suggestion.number,
        attempt=1,
        directory=directory,
        workload=problem.workload,
        environment=problem.environment,
        config=suggestion.config,
        plan=suggestion.plan,
        script=script,
        time_limit_s=settings.time_limit_s or DEFAULT_TIME_LIMIT_S,
        settings=dict(settings.extras),
        command=command_of(problem, settings, suggestion.config, suggestion.plan),
    )


def write_entry(directory: Path, suggestion: Suggestion, card: str, script: str, target: str | None) -> None:
    """Put what is known before a launch into the trial's folder; `target` is the text of the target file."""
    _write(directory / "card.yaml", card)
    _write(directory / "policy.py", suggestion.proposal.source)
    _write(directory / "config.json", json.dumps(suggestion.config, indent=2) + "\n")
    _write(directory / "script.sh", script)
    if target is not None:
        _write(directory / rerun.TARGET_FILE, target)


def write_metrics(directory: Path, values: Mapping[str, MetricValue], score: float | None) -> None:
    """Put the metric values beside the trace, one a line."""
    # the encoder in C writes no indentation, and the one in Python takes longer than the rest of the file's making
    lines = [f"  {json.dumps(name)}: {json.dumps(value.as_dict(), allow_nan=False)}" for name, value in values.items()]
    values_text = "\n" + ",\n".join(lines) + "\n " if lines else ""
    score_text = json.dumps(score, allow_nan=False)
    _write(directory / "metrics.json", f'{{\n "score": {score_text},\n "metrics": {{{values_text}}}\n}}\n')


def environment_findings(problem: Problem) -> list[str]:
    """What the environment of a search lacks for its trials to be benchmark entries; the same for each of them."""
    from runs.entry import check_environment

    return [f"{found.code}: {found.message}" for found in check_environment(problem.card)]


def step_findings(directory: Path, problem: Problem) -> list[str]:
    """Whether a trial made too few steps to be a benchmark entry.

    The card, script, trace and metric values are the search's own doing and are there.
    """
    from runs.entry import check_steps

    facts = _execution_facts(directory / EXECUTION)
    steps = check_steps(problem.workload, *(facts.get(key) for key in STEP_KEYS))
    return [f"{found.code}: {found.message}" for found in steps]


def write_execution(directory: Path, execution: Execution) -> None:
    """Put the facts of the execution beside the trace, where the launcher has not done so itself."""
    path = directory / EXECUTION
    if not path.exists():
        steps = {key: execution.provenance[key] for key in STEP_KEYS if key in execution.provenance}
        facts = {**steps, "fidelity": execution.fidelity.value, "seconds": execution.seconds}
        _write(path, json.dumps({**facts, "provenance": execution.provenance}, indent=1, default=str) + "\n")


def _execution_facts(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def trace_files(directory: Path) -> list[FileFacts]:
    """Every file under the `trace` folders of the trial and its repeats, with size and hash, in the order of paths."""
    found = sorted(path for folder in trace_folders(directory) for path in folder.rglob("*") if path.is_file())
    return [facts_of(path, directory) for path in found]


def trace_folders(directory: Path) -> list[Path]:
    """The `trace` folders of a trial: its own, and those of its repeats."""
    return [directory / "trace", *sorted(directory.glob("repeats/*/trace"))]


def facts_of(path: Path, directory: Path) -> FileFacts:
    """The facts of a file below a trial's folder."""
    return FileFacts(str(path.relative_to(directory)), path.stat().st_size, file_sha256(path))


def command_of(
    problem: Problem, settings: SearchSettings, config: dict[str, Any], plan: ParallelPlan
) -> Command | None:
    """What a target that runs programs starts; a dry run needs none. `extras` has the file's `framework` section.

    Raises:
        BadInputError: the framework's version, or the target, cannot run the config.
    """
    if settings.extras.get("kind", settings.target) == "dry-run":
        return None
    told = settings.extras.get("framework") or {}
    if settings.trace_ranks is not None:
        told = {"trace_ranks": settings.trace_ranks, **told}
    return problem.framework.command(problem.deployment(config, plan, told))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
