"""Seed policy for a program of the user's own: the first choice of every knob, and ep so that all devices are used.

(The latter where tp and ep are the only degrees, as in the MoE inference study.)
"""


def generate_config(workload: dict, environment: dict) -> dict:
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    config = {key: values[0] for key, values in choices.items()}
    if "ep" in choices and "tp" in choices and "dp" not in choices and "pp" not in choices:
        share = environment.get("total_gpus", 1) // config["tp"]
        if share in choices["ep"]:
            config["ep"] = share
    return config
