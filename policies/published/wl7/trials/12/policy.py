def generate_config(workload, environment):
    """best is trial 1; exposed communication is 40% of its step. Change activation_checkpointing none to full; expect 1.329 s"""
    preferred = {'tp': 4, 'pp': 16, 'dp': 4, 'dp_shard': 4, 'ep': 16, 'zero_stage': 2, 'micro_batch_size': 1, 'pipeline_schedule': 'interleaved', 'activation_checkpointing': 'full', 'compile': True}
    chosen_on = {'total_gpus': 256, 'gpus_per_node': 4}
    space = workload.get("config_space", [])
    choices = {knob["key"]: knob["choices"] for knob in space}
    devices = environment.get("total_gpus", chosen_on["total_gpus"])
    config = {}
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
