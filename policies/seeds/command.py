"""Seed policy for a program of the user's own: the first choice of every knob, degrees as low as they go."""


def generate_config(workload, environment):
    config = {}
    for knob in workload.get("config_space", []):
        config[knob["key"]] = knob["choices"][0]
    return config
