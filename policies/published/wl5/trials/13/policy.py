"""A policy of the proposer `guided`: the preferred config where it may run, elsewhere the one most like it."""

import math

PREFERRED = {'tp': 2, 'pp': 2, 'dp': 4, 'dp_shard': 4, 'ep': 8, 'zero_stage': 3, 'micro_batch_size': 1, 'pipeline_schedule': 'interleaved', 'activation_checkpointing': 'none', 'compile': True}
CHOSEN_ON = {'total_gpus': 16, 'gpus_per_node': 4, 'gpu_memory_gb': 40}
NEEDS_GB = 17.617  # estimate for one device with the preferred config
RULES = [  # of config, workload and environment
    lambda c, w, e: c.get('tp', 1) * c.get('pp', 1) * c.get('dp', 1) <= e['total_gpus'],  # devices
    lambda c, w, e: c.get('tp', 1) * c.get('pp', 1) * c.get('dp', 1) <= e['gpus_per_node'] or c.get('tp', 1) * c.get('pp', 1) * c.get('dp', 1) % e['gpus_per_node'] == 0,  # whole_nodes
    lambda c, w, e: w['batch_size'] % (c.get('dp', 1) * c.get('micro_batch_size', 1)) == 0,  # global_batch
    lambda c, w, e: c.get('dp', 1) % c.get('dp_shard', 1) == 0,  # shard_divides_dp
    lambda c, w, e: c.get('dp_shard', 1) > 1 or c.get('tp', 1) * c.get('pp', 1) == 1 or w['precision'] == 'fp32',  # mixed_precision
    lambda c, w, e: c.get('dp', 1) == c.get('dp_shard', 1) or c.get('dp_shard', 1) >= e['gpus_per_node'],  # replicas_of_shards
    lambda c, w, e: c.get('zero_stage', 1) == 3 or c.get('dp_shard', 1) > 1,  # zero_stage_needs_shards
    lambda c, w, e: w['num_kv_heads'] % c.get('tp', 1) == 0,  # kv_heads
    lambda c, w, e: w['seq_len'] % (2 * c.get('tp', 1)) == 0,  # sequence
    lambda c, w, e: c.get('ep', 1) == 1 or c.get('ep', 1) % c.get('tp', 1) == 0,  # ep_holds_tp
    lambda c, w, e: c.get('ep', 1) == 1 or c.get('dp_shard', 1) * c.get('tp', 1) % c.get('ep', 1) == 0,  # ep_divides_shards
    lambda c, w, e: c.get('pp', 1) == 1 or w['batch_size'] // (c.get('dp', 1) * c.get('micro_batch_size', 1)) >= c.get('pp', 1),  # enough_micro_batches
    lambda c, w, e: c.get('pipeline_schedule', 1) != 'interleaved' or w['batch_size'] // (c.get('dp', 1) * c.get('micro_batch_size', 1)) % c.get('pp', 1) == 0,  # interleaved_rounds
    lambda c, w, e: c.get('pipeline_schedule', 1) != 'interleaved' or 2 * c.get('pp', 1) <= w['num_layers'],  # interleaved_stages
    lambda c, w, e: c.get('pipeline_schedule', 1) == '1f1b' or c.get('pp', 1) > 1,  # schedule_needs_pp
]
DEGREES = ("tp", "cp", "pp", "dp")


def generate_config(workload: dict, environment: dict) -> dict:
    """best is trial 1; exposed communication is 50% of its step. Change pp 1 to 2, dp 8 to 4, dp_shard 8 to 4, ep 16 to 8, zero_stage 2 to 3, pipeline_schedule 1f1b to interleaved; expect 0.2109 s"""
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    preferred = {key: nearest(PREFERRED.get(key, values[0]), values) for key, values in choices.items()}
    here = {**CHOSEN_ON, **environment}
    goal = max(1, occupied(PREFERRED) * here["total_gpus"] // CHOSEN_ON["total_gpus"])
    if occupied(preferred) == goal and legal(preferred, workload, environment, here) and fits(preferred, here):
        return preferred
    leanest = None
    for degrees in spread(choices, goal, here):
        for rest in details(choices, degrees):
            config = {**preferred, **rest, **degrees}
            if legal(config, workload, environment, here):
                if fits(config, here):
                    return config
                if leanest is None or needs(config) < needs(leanest):
                    leanest = config
    return leanest or preferred


def spread(choices: dict, goal: int, here: dict) -> list[dict]:
    """Parallel degrees, those most like the preferred ones first, with as many devices as the goal says."""
    found = [{}]
    for key in [key for key in DEGREES if key in choices]:
        found = [{**one, key: value} for one in found for value in choices[key]]
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
    found = [{}]
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
            found = [{**one, key: nearest(value, choices[key])} for value in values for one in found] or found
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
