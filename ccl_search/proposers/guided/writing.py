"""Writing the next policy: the chosen values, with the rules and figures that keep it sensible on other clusters.

The policy gives the chosen config wherever the rules of the space allow it, it should fit and the cluster is no larger.
Elsewhere it looks for the config nearest to it that does: the same share of the devices, tensor parallelism inside a
node, the other degrees as they were, sharding and recomputation as memory asks for.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from runs.space import ConfigSpace

_FUNCTIONS = {"ceil": "math.ceil", "floor": "math.floor"}
_SCOPES = {"workload": "w", "environment": "e"}

_TEMPLATE = '''\
"""A policy of the proposer `guided`: the preferred config where it may run, elsewhere the one most like it."""

import math

PREFERRED = {preferred}
CHOSEN_ON = {chosen_on}
NEEDS_GB = {needs_gb}  # estimate for one device with the preferred config
RULES = [  # of config, workload and environment
{rules}]
DEGREES = ("tp", "cp", "pp", "dp")


def generate_config(workload: dict, environment: dict) -> dict:
    """{reason}"""
    choices = {{knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}}
    preferred = {{key: nearest(PREFERRED.get(key, values[0]), values) for key, values in choices.items()}}
    here = {{**CHOSEN_ON, **environment}}
    goal = max(1, occupied(PREFERRED) * here["total_gpus"] // CHOSEN_ON["total_gpus"])
    if occupied(preferred) == goal and legal(preferred, workload, environment, here) and fits(preferred, here):
        return preferred
    leanest = None
    for degrees in spread(choices, goal, here):
        for rest in details(choices, degrees):
            config = {{**preferred, **rest, **degrees}}
            if legal(config, workload, environment, here):
                if fits(config, here):
                    return config
                if leanest is None or needs(config) < needs(leanest):
                    leanest = config
    return leanest or preferred


def spread(choices: dict, goal: int, here: dict) -> list[dict]:
    """Parallel degrees, those most like the preferred ones first, with as many devices as the goal says."""
    found = [{{}}]
    for key in [key for key in DEGREES if key in choices]:
        found = [{{**one, key: value}} for one in found for value in choices[key]]
        found = [one for one in found if occupied(one) <= here["total_gpus"]]
    return sorted(found, key=lambda one: distance(one, goal, here))


def distance(degrees: dict, goal: int, here: dict) -> tuple:
    """How unlike the preferred degrees these are, in halvings and doublings; of equals, more replicas come first."""
    away = 10 * abs(math.log2(occupied(degrees) / goal))
    for key, weight in (("tp", 3), ("cp", 2), ("pp", 2)):
        away += weight * abs(math.log2(degrees.get(key, 1) / PREFERRED.get(key, 1)))
    across = degrees.get("tp", 1) > here["gpus_per_node"] >= PREFERRED.get("tp", 1)
    return (away + (20 if across else 0), -degrees.get("dp", 1))


def details(choices: dict, degrees: dict) -> list[dict]:
    """What else may have to change with the degrees: what is like the preferred config first."""
    found = [{{}}]
    dp = degrees.get("dp", 1)
    shards = [dp * PREFERRED.get("dp_shard", 1) // PREFERRED.get("dp", 1), dp]
    for key, first in (
        ("dp_shard", shards),
        ("zero_stage", [PREFERRED.get("zero_stage"), 3]),
        ("pipeline_schedule", [PREFERRED.get("pipeline_schedule"), "1f1b", "gpipe"]),
        ("sequence_parallel", [PREFERRED.get("sequence_parallel"), degrees.get("tp", 1) > 1]),
        ("activation_checkpointing", [PREFERRED.get("activation_checkpointing"), "full"]),
        ("micro_batch_size", [PREFERRED.get("micro_batch_size"), 1]),
        ("max_num_seqs", [PREFERRED.get("max_num_seqs"), *reversed(choices.get("max_num_seqs", []))]),
        ("ep", [PREFERRED.get("ep"), *reversed(choices.get("ep", []))]),
    ):
        if key in choices:
            offered = [value for value in first if value in choices[key]]
            values = [value for place, value in enumerate(offered) if value not in offered[:place]]
            found = [{{**one, key: nearest(value, choices[key])}} for value in values for one in found] or found
    return found


def legal(config: dict, workload: dict, environment: dict, here: dict) -> bool:
    """Whether the config keeps the rules of the space, those whose facts are known."""
    if occupied(config) > here["total_gpus"]:
        return False
    for rule in RULES:
        try:
            if not rule(config, workload, environment):
                return False
        except (KeyError, TypeError, ZeroDivisionError):
            continue
    return True


def fits(config: dict, here: dict) -> bool:
    """Whether it should fit: where it takes no more than the preferred config did, it does."""
    if here["gpu_memory_gb"] >= CHOSEN_ON["gpu_memory_gb"] and needs(config) <= NEEDS_GB:
        return True
    return needs(config) <= 0.8 * here["gpu_memory_gb"]


def needs(config: dict) -> float:
    """GB on one device, by how far the model is spread."""
    leaner = PREFERRED.get("activation_checkpointing") != "full" and config.get("activation_checkpointing") == "full"
    return NEEDS_GB * shards_of(PREFERRED) / shards_of(config) * (0.7 if leaner else 1)


def shards_of(config: dict) -> int:
    """Over how many devices the model's state is spread."""
    return config.get("tp", 1) * config.get("pp", 1) * config.get("cp", 1) * config.get("dp_shard", 1)


def occupied(config: dict) -> int:
    """How many devices the config takes."""
    return config.get("tp", 1) * config.get("cp", 1) * config.get("pp", 1) * config.get("dp", 1)


def nearest(wanted: int | float | str | None, choices: list) -> int | float | str:
    """What is wanted where it is offered; else the closest number, or the first choice."""
    for choice in choices:
        if choice == wanted and isinstance(choice, bool) == isinstance(wanted, bool):
            return choice
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) and not isinstance(choices[0], (bool, str)):
        return min(choices, key=lambda choice: (abs(choice - wanted), choice))
    return choices[0]
'''


def policy_text(
    config: Mapping[str, Any], environment: Mapping[str, Any], reason: str, space: ConfigSpace, needs_gb: float
) -> str:
    """A policy that gives `config` where it was chosen, and the nearest sensible config elsewhere.

    `needs_gb` is the estimated memory of one device with it. Rules of the space that hold no program are left out.
    """
    total = environment.get("total_gpus", 1)
    chosen_on = {
        "total_gpus": total,
        "gpus_per_node": environment.get("gpus_per_node", total),
        "gpu_memory_gb": environment.get("gpu_memory_gb", max(1.0, 2 * needs_gb)),
    }
    return _TEMPLATE.format(
        reason=reason.replace("\\", "").replace('"', "'"),
        preferred=dict(config),
        chosen_on=chosen_on,
        needs_gb=round(needs_gb, 3),
        rules="".join(
            f"    lambda c, w, e: {_rule(c.expression.text)},  # {' '.join(c.name.split())}\n"
            for c in space.constraints
        ),
    )


def _rule(text: str) -> str:
    """The expression of a constraint as a program's condition on config, workload and environment."""
    return ast.unparse(_Looking().visit(ast.parse(text.strip(), mode="eval").body))


class _Looking(ast.NodeTransformer):
    """Names become look-ups: an unset fact is a KeyError, a knob that another space lacks counts as 1."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        assert isinstance(node.value, ast.Name)
        return ast.parse(f"{_SCOPES[node.value.id]}[{node.attr!r}]", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Name)
        called = ast.parse(_FUNCTIONS.get(node.func.id, node.func.id), mode="eval").body
        return ast.Call(called, [self.visit(argument) for argument in node.args], [])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(f"c.get({node.id!r}, 1)", mode="eval").body
