"""Seed policy for Megatron-LM: tensor and sequence parallelism inside a node, stages and experts until it fits."""


def parameters(workload: dict) -> tuple:
    """All parameters, and those of the routed experts among them: as published, else counted from the shapes."""
    layers, hidden = workload.get("num_layers", 32), workload.get("hidden_size", 4096)
    attention = 4 * layers * hidden * workload.get("num_heads", 32) * workload.get("head_dim", 128)
    dense = attention + 2 * workload.get("vocab_size", 128000) * hidden
    routed = 3 * layers * hidden * workload.get("num_experts", 0) * workload.get("moe_intermediate_size", 0)
    if not routed:
        dense += 3 * layers * hidden * workload.get("intermediate_size", 4 * hidden)
    params = workload.get("num_params", dense + routed)
    return params, min(routed, params)


def whole_nodes(world: int, environment: dict) -> bool:
    """Whether the cluster has that many devices, in one node or in whole nodes."""
    total = environment.get("total_gpus", 1)
    node = environment.get("gpus_per_node", total)
    return world <= total and (world <= node or world % node == 0)


def pick(choices: dict, wanted: dict) -> dict:
    """What is wanted where the space offers it, else the first choice; only knobs of the space."""
    return {key: wanted[key] if wanted.get(key) in values else values[0] for key, values in choices.items()}


def need(workload: dict, tp: int, pp: int, dp: int, ep: int) -> float:
    """Bytes on one device of the fullest stage under full recomputation, with micro-batches of one sequence.

    bf16 weight and fp32 gradient (6 bytes) are whole on every rank, master weight and moments (12) sharded over dp.
    """
    seq, layers = workload.get("seq_len", 1024), workload.get("num_layers", 32)
    hidden, vocab = workload.get("hidden_size", 4096), workload.get("vocab_size", 128000)
    params, routed = parameters(workload)
    share = -(-layers // pp) / layers
    common = ((params - routed) * share + vocab * hidden) / tp
    own = routed * share / tp / ep
    state = common * (6 + 12 / dp) + own * (6 + 12 / (dp // ep))
    return state + 2 * seq * hidden * layers / tp + (10 * seq * vocab + 40 * seq * hidden) / tp


def legal(workload: dict, environment: dict, tp: int, pp: int, dp: int, ep: int) -> bool:
    """Whether Megatron-LM can run the degrees with this batch."""
    kv_heads = workload.get("num_kv_heads", workload.get("num_heads", 32))
    if not whole_nodes(tp * pp * dp, environment) or workload.get("batch_size", 1) % dp or dp % ep:
        return False
    if pp > workload.get("num_layers", 32) or workload.get("seq_len", 1024) % tp:
        return False
    if kv_heads % tp and tp % kv_heads:
        return False
    return workload.get("moe_intermediate_size", 0) % tp == 0


def generate_config(workload: dict, environment: dict) -> dict:
    """The degrees that fit with room on most devices, else those that need least memory; everything recomputed."""
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    memory = environment.get("gpu_memory_gb", 40) * 1e9
    node = environment.get("gpus_per_node", environment.get("total_gpus", 1))
    found = []
    for tp in choices.get("tp", [1]):
        for pp in choices.get("pp", [1]):
            for dp in choices.get("dp", [1]):
                for ep in choices.get("ep", [1]):
                    if not legal(workload, environment, tp, pp, dp, ep):
                        continue
                    size = need(workload, tp, pp, dp, ep)
                    if size <= 0.6 * memory:  # fits with room: use many devices, tp inside a node, few stages
                        order = (1, 1 if tp <= node else 0, tp * pp * dp, -pp, -tp, -ep)
                    else:
                        order = (0, -size, 0, 0, 0, 0)
                    found.append((order, tp, pp, dp, ep))
    _, tp, pp, dp, ep = max(found, key=lambda entry: entry[0]) if found else (None, 1, 1, 1, 1)
    wanted = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "cp": 1, "micro_batch_size": 1, "zero_stage": 1 if dp > 1 else 0}
    wanted["sequence_parallel"] = tp > 1
    wanted["pipeline_schedule"] = "1f1b"
    wanted["activation_checkpointing"] = "full"
    wanted["collective_algorithm"] = "auto"
    return pick(choices, wanted)
