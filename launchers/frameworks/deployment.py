"""`Deployment`: what a framework is asked to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runs.environment import Environment
from runs.plan import ParallelPlan
from runs.workload import Workload


@dataclass(frozen=True)
class Deployment:
    """A config of a workload on an environment, and the `plan` that is its meaning.

    `settings` is what the target file says about frameworks, its section `framework` (docs/frameworks.md).
    """

    config: Mapping[str, Any]
    plan: ParallelPlan
    workload: Workload
    environment: Environment
    settings: Mapping[str, Any] = field(default_factory=dict)
