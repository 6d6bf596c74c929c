"""Seed policy for TorchTitan: shard everything (FSDP), tp inside a node, pipeline stages only for memory."""


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


def need(workload: dict, tp: int, pp: int, dp: int) -> float:
    """Bytes on one device under full recomputation, with micro-batches of one sequence.

    fp32 weights, gradients and two moments are sharded over all; then what one layer needs at a time (gathered
    weights, gradients), kept layer inputs, and logits.
    """
    seq, layers = workload.get("seq_len", 1024), workload.get("num_layers", 32)
    hidden, vocab = workload.get("hidden_size", 4096), workload.get("vocab_size", 128000)
    params, _ = parameters(workload)
    state = 16 * (params / pp + 2 * vocab * hidden) / (tp * dp)
    layer = 8 * params / layers / tp
    kept = 2 * seq * hidden * layers / tp
    return state + layer + kept + 10 * seq * vocab / tp + 20 * seq * hidden


def legal(workload: dict, environment: dict, tp: int, pp: int, dp: int) -> bool:
    """Whether TorchTitan can run the degrees with this batch."""
    batch, seq = workload.get("batch_size", 1), workload.get("seq_len", 1024)
    kv_heads = workload.get("num_kv_heads", workload.get("num_heads", 32))
    if not whole_nodes(tp * pp * dp, environment) or batch % dp or kv_heads % tp:
        return False
    if seq % (2 * tp) or pp > workload.get("num_layers", 32) or (pp > 1 and batch // dp < pp):
        return False
    return dp > 1 or tp * pp == 1  # bf16 together with tp or pp needs FSDP


def generate_config(workload: dict, environment: dict) -> dict:
    """The degrees that fit with room on most devices, else those that need least memory; everything recomputed."""
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    memory = environment.get("gpu_memory_gb", 40) * 1e9
    node = environment.get("gpus_per_node", environment.get("total_gpus", 1))
    found = []
    for tp in choices.get("tp", [1]):
        for pp in choices.get("pp", [1]):
            for dp in choices.get("dp", [1]):
                if dp not in choices.get("dp_shard", [dp]) or not legal(workload, environment, tp, pp, dp):
                    continue
                size = need(workload, tp, pp, dp)
                if size <= 0.6 * memory:  # fits with room: use many devices, tp inside a node, few stages
                    order = (1, 1 if tp <= node else 0, tp * pp * dp, -pp, -tp)
                else:
                    order = (0, -size, 0, 0, 0)
                found.append((order, tp, pp, dp))
    _, tp, pp, dp = max(found, key=lambda entry: entry[0]) if found else (None, 1, 1, 1)
    wanted = {"tp": tp, "pp": pp, "dp": dp, "dp_shard": dp, "cp": 1, "ep": 1, "micro_batch_size": 1}
    wanted["activation_checkpointing"] = "full"
    wanted["zero_stage"] = 3
    wanted["pipeline_schedule"] = "1f1b"
    wanted["compile"] = False
    return pick(choices, wanted)
