"""What the profiler itself costs: the same run without it, and the length of its steps as the framework logs them.

A run without a profiler leaves no trace, so that both runs are compared by the framework's own log. Where each of the
patterns (`step_log` of the eras) was read: TorchTitan's components/metrics.py, Megatron-LM's training_log, MaxText's
common/metric_logger.py; SGLang is run by a driver of ours.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from launchers.frameworks.commands.request import PROFILED_STEPS, WARMUP_STEPS, Request
from launchers.frameworks.commands.serving import WARMUP_BATCHES
from launchers.shell.command import Command
from runs.errors import BadInputError

_MS = 1e-3
_OWN_PROFILER = ("command", "sglang")
"""Frameworks without words of their own for the profiler: told by a variable, and run by our driver."""


@dataclass(frozen=True)
class StepLog:
    """How log lines tell the length of steps, which are counted from 1 in the order of their numbers.

    `pattern` has a group `seconds`, `ms` or `tps` (tokens a second and device; a step has `tokens` of them on each),
    and may have a group `step`. `recorded` are the steps under the profiler. `plain` are steps of the same run without
    it, where a run has both; else it is empty and another run must tell.
    """

    pattern: str
    recorded: tuple[int, ...]
    tokens: float
    plain: tuple[int, ...] = ()

    def steps(self, logs: Iterable[Iterable[str]]) -> list[float]:
        """Seconds of every step; the median over logs (of ranks or nodes) and over processes that share a log."""
        found: dict[int, list[float]] = defaultdict(list)
        search = re.compile(self.pattern).search
        for lines in logs:
            matches = (match for line in lines if (match := search(line)))
            for count, match in enumerate(matches):
                groups = match.groupdict()
                found[int(groups["step"]) if "step" in groups else count].append(self._seconds(groups))
        return [median(found[number]) for number in sorted(found)]

    def length(self, steps: list[float], chosen: tuple[int, ...]) -> float | None:
        """Median of the `chosen` steps in seconds; None where one of them is not there."""
        if not chosen or len(steps) < max(chosen):
            return None
        return median(steps[number - 1] for number in chosen)

    def _seconds(self, groups: dict[str, str]) -> float:
        if "tps" in groups:
            return self.tokens / max(float(groups["tps"].replace(",", "")), 1.0)
        return float(groups["seconds"]) if "seconds" in groups else float(groups["ms"]) * _MS


@dataclass(frozen=True)
class Unprofiled:
    """A run without its profiler: the command, and how the logs of runs with and without it are read."""

    command: Command
    log: StepLog


def step_log(made: Request) -> StepLog:
    """How the logs of a request's run tell its steps.

    Raises:
        BadInputError: the framework logs no step under its profiler, or its profiler cannot be left out.
    """
    era, own = made.era, made.settings.step_log
    pattern = own or era.step_log
    if not pattern or not (era.profiler or era.framework in _OWN_PROFILER):
        hint = "set `step_log` in the framework's section of the target file" if era.framework == "command" else ""
        raise BadInputError(f"{era.framework} does not log how long a step takes under its profiler", hint)
    tokens = made.workload.batch_size * made.workload.seq_len / made.plan.world_size
    if era.framework == "sglang":
        batches = tuple(range(2, WARMUP_BATCHES + 1))
        return StepLog(pattern, (WARMUP_BATCHES + 1,), tokens, batches)
    return StepLog(pattern, _recorded(made), tokens)


def _recorded(made: Request) -> tuple[int, ...]:
    profile = made.era.more.get("profile")
    if profile is None:
        return tuple(range(WARMUP_STEPS + 1, WARMUP_STEPS + PROFILED_STEPS + 1))
    freq, active = profile["freq"], profile.get("active", 1)
    ends = range(freq, freq * profile["cycles"] + 1, freq)
    return tuple(step for end in ends for step in range(end - active + 1, end + 1))
