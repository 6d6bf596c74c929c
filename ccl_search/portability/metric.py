"""The metric `portability`: how far the policy of a trial carries. It is no metric of a trace but of a policy's source.

It is worked out from the source, the workload, the home environment, the space and what is bundled with the product
(environments, seed policy, simulator): whoever has the published policy can compute it again, offline.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ccl_search.portability.cases import Case, Home, cases
from ccl_search.portability.checking import SAMPLE, Linter, Portability, summary
from ccl_search.portability.spec import NAME, SPEC, SUMMARY, concerns
from policies.runner import PolicyRunner
from runs.digests import text_sha256
from runs.metric import MetricValue

if TYPE_CHECKING:
    from ccl_search.problem import Problem
    from ccl_search.settings import SearchSettings
    from runs.objective import Objective

BASIS = "basis"
"""The key of the value's detail that holds what it depends on beside the policy."""

_READERS = ("claude",)
"""Proposers that rewrite a policy with its report before them, whether or not it is scored."""


@dataclass
class PortabilityTool:
    """Computes the metric for the policies of one search, each once."""

    home: Home
    runner: PolicyRunner
    _linter: Linter | None = None
    _known: dict[str, MetricValue] = field(default_factory=dict)

    def value(self, source: str) -> MetricValue:
        """The metric of a policy; without a value where nothing fits in any case."""
        if source not in self._known:
            self._known[source] = self._computed(source)
        return self._known[source]

    @property
    def basis(self) -> dict[str, str]:
        """What a value depends on beside the policy: a hash of the cases, and the simulator."""
        from backends.flow.simulate import BACKEND, VERSION

        spaces = [case.fingerprint + _space_of(case) for case in self._used.cases]
        digest = text_sha256("".join(spaces))
        return {"cases": digest, "simulator": f"{BACKEND} {VERSION}"}

    @property
    def _used(self) -> Linter:
        if self._linter is None:
            self._linter = Linter(cases(self.home), self.runner, SAMPLE)
        return self._linter

    def _computed(self, source: str) -> MetricValue:
        report = self._used.lint(source)
        value = report.value
        if value is None:
            return MetricValue.none(SPEC, "nothing is known to run on any other cluster", detail={BASIS: self.basis})
        return MetricValue.of(SPEC, value, detail=_detail(report) | {BASIS: self.basis})


def is_wanted(objective: Objective, settings: SearchSettings, proposer: str) -> bool:
    """Whether a search needs the metric: for its score, for a bound of the user's, or for a proposer that reads it."""
    bounded = any(NAME in text for text in settings.constraints)
    return concerns(objective) or bounded or proposer in _READERS


def tool_for(problem: Problem, settings: SearchSettings, runner: PolicyRunner) -> PortabilityTool:
    """The tool of a search."""
    home = Home(problem.workload, problem.environment, problem.framework, problem.space, settings.constraints)
    return PortabilityTool(home, runner)


def _space_of(case: Case) -> str:
    return "" if case.problem is None else json.dumps(case.problem.space.as_dict(), sort_keys=True)


def _detail(report: Portability) -> dict[str, Any]:
    whole = report.as_dict()
    kept = ("share_valid", "efficiency", "counts", "constant", "mean_loss", "worst_loss")
    return {SUMMARY: summary(report), **{key: whole[key] for key in kept}, "losses": report.losses}
