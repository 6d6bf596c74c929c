"""Framework adapters: the default space, the meaning and the world size of a config, for every framework."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from launchers.frameworks.base import Framework
from launchers.frameworks.legacy import translate_legacy
from runs.environment import Environment
from runs.errors import BadInputError
from runs.space import ConfigSpace
from runs.workload import Workload

__all__ = ["Framework", "canonical", "get", "named_space", "names", "space_defaults", "translate_legacy"]

_MODULES = {
    "torchtitan": "torchtitan",
    "megatron-lm": "megatron_lm",
    "maxtext": "maxtext",
    "vllm": "vllm",
    "sglang": "sglang",
    "command": "command",
}
_VERSION = re.compile(r"[-_=]+v?\d+(\.\d+)*([.+-]?\w+)*$")


def names() -> tuple[str, ...]:
    """Names of the frameworks there is an adapter for."""
    return tuple(_MODULES)


def canonical(name: str) -> str:
    """The framework meant by `name`, which may be spelled in capitals, with `_`, or end in a version.

    Raises:
        BadInputError: there is no adapter for it; the hint lists those there are.
    """
    spelled = name.strip().lower().replace("_", "-")
    for candidate in (spelled, _VERSION.sub("", spelled)):
        if candidate in _MODULES:
            return candidate
    raise BadInputError(f"there is no framework {name!r}", f"frameworks: {', '.join(_MODULES)}")


def get(name: str) -> Framework:
    """The adapter of framework `name` (see `canonical` for the spellings and the error)."""
    return _load(_MODULES[canonical(name)])


def named_space(name: str, workload: Workload, environment: Environment) -> ConfigSpace:
    """The bundled space `name` (`--space NAME`) for a workload and an environment.

    Raises:
        BadInputError: there is no space of that name; the hint lists those there are.
    """
    from launchers.frameworks.templates import build

    return build(name, workload.policy_input(), environment.policy_input())


def space_defaults(name: str | None) -> dict[str, str]:
    """Workload, environment and framework that the bundled space `name` is made for; empty where it names none."""
    from launchers.frameworks import templates

    return templates.defaults(name) if name in templates.names() else {}


@cache
def _load(module: str) -> Framework:
    adapter: Framework = import_module(f"launchers.frameworks.{module}").FRAMEWORK
    return adapter
