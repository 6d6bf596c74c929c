"""Policies on inputs that are no typed problem: as published searches recorded them."""

from __future__ import annotations

from typing import Any

from ccl_search.portability.checking import CaseResult
from policies.runner import PolicyError, PolicyRunner
from runs.space import ConfigSpace


def check_inputs(
    source: str, workload: dict[str, Any], environment: dict[str, Any], runner: PolicyRunner
) -> CaseResult:
    """What a policy gives for inputs that are no typed problem: recorded ones, whose space is in `config_space`.

    `valid` here means: every knob of the space set to one of its choices, and no other.
    """
    name = str(workload.get("name") or environment.get("gpu_model") or "inputs")
    try:
        config = runner.evaluate(source, workload, environment)
    except PolicyError as error:
        return CaseResult(name, "recorded", "raises", reason=str(error))
    space = ConfigSpace.from_dict({"config_space": workload["config_space"]}, "recorded")
    broken = space.violations(config, workload, environment)
    return CaseResult(name, "recorded", "invalid" if broken else "valid", config, "; ".join(map(str, broken)))
