"""Writing the next policy: the chosen values, with rules that keep it sensible on other workloads and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TEMPLATE = '''\
def generate_config(workload, environment):
    """{reason}"""
    preferred = {preferred}
    chosen_on = {chosen_on}
    space = workload.get("config_space", [])
    choices = {{knob["key"]: knob["choices"] for knob in space}}
    devices = environment.get("total_gpus", chosen_on["total_gpus"])
    config = {{}}
    for key in choices:
        wanted = preferred.get(key, choices[key][0])
        config[key] = nearest(wanted, choices[key])
    if environment.get("gpus_per_node", chosen_on["gpus_per_node"]) < chosen_on["gpus_per_node"]:
        limit = environment["gpus_per_node"]
        if "tp" in config and config["tp"] > limit:
            config["tp"] = largest(choices["tp"], limit)
    for key in ("dp", "pp", "cp", "tp"):
        while key in config and occupied(config) > devices and config[key] > min(choices[key]):
            config[key] = largest(choices[key], config[key] - 1)
    batch = workload.get("batch_size")
    if batch and "micro_batch_size" in config:
        fitting = [m for m in choices["micro_batch_size"] if batch % (m * config.get("dp", 1)) == 0]
        if fitting and config["micro_batch_size"] not in fitting:
            config["micro_batch_size"] = nearest(config["micro_batch_size"], fitting)
    return config


def occupied(config):
    return config.get("tp", 1) * config.get("cp", 1) * config.get("pp", 1) * config.get("dp", 1)


def nearest(wanted, choices):
    if wanted in choices:
        for choice in choices:
            if choice == wanted and isinstance(choice, bool) == isinstance(wanted, bool):
                return choice
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) and not isinstance(choices[0], (bool, str)):
        return min(choices, key=lambda choice: (abs(choice - wanted), choice))
    return choices[0]


def largest(choices, limit):
    return max([choice for choice in choices if choice <= limit], default=min(choices))
'''


def policy_text(config: Mapping[str, Any], environment: Mapping[str, Any], reason: str) -> str:
    """A policy that gives `config` where it was chosen, and the nearest sensible config elsewhere."""
    chosen_on = {
        "total_gpus": environment.get("total_gpus", 1),
        "gpus_per_node": environment.get("gpus_per_node", 1),
    }
    return _TEMPLATE.format(
        reason=reason.replace("\\", "").replace('"', "'"), preferred=dict(config), chosen_on=chosen_on
    )
