"""Seed policy for a program of the user's own. Degrees of tp and ep alone are those of the MoE inference study."""


def generate_config(workload: dict, environment: dict) -> dict:
    """The first choice of every knob; `ep` takes the devices that `tp` leaves, where these are the only degrees."""
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    config = {key: values[0] for key, values in choices.items()}
    if "ep" in choices and "tp" in choices and "dp" not in choices and "pp" not in choices:
        share = environment.get("total_gpus", 1) // config["tp"]
        if share in choices["ep"]:
            config["ep"] = share
    return config
