"""Seed policy for SGLang: one replica, tp as wide as a node, more nodes only when the weights ask."""


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


def need(workload: dict, tp: int, pp: int) -> tuple:
    """Bytes on one device of the fullest stage: bf16 weights, and the cached keys and values of one sequence.

    A mixture's router and latent projections are whole on every rank.
    """
    layers, hidden = workload.get("num_layers", 32), workload.get("hidden_size", 4096)
    heads, experts = workload.get("num_heads", 32), workload.get("num_experts", 0)
    kv_heads = workload.get("num_kv_heads", heads)
    tokens = workload.get("input_len", 1024) + workload.get("output_len", 128)
    fullest = -(-layers // pp)
    split = parameters(workload)[0] * fullest / layers + workload.get("vocab_size", 128000) * hidden
    whole = fullest * hidden * (experts + hidden) if experts else 0
    cache = 4 * tokens * kv_heads * workload.get("head_dim", 128) * fullest / min(tp, kv_heads)
    return 2 * split / tp + 2 * whole, cache


def legal(workload: dict, environment: dict, tp: int, pp: int) -> bool:
    """Whether SGLang can run one replica of these degrees."""
    kv_heads = workload.get("num_kv_heads", workload.get("num_heads", 32))
    if not whole_nodes(tp * pp, environment) or pp > workload.get("num_layers", 32):
        return False
    if kv_heads % tp and tp % kv_heads:
        return False
    return workload.get("moe_intermediate_size", 0) % tp == 0


def generate_config(workload: dict, environment: dict) -> dict:
    """The widest replica that fits with room, else the leanest, with as many sequences at once as its cache holds."""
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    memory = environment.get("gpu_memory_gb", 40) * 1e9
    node = environment.get("gpus_per_node", environment.get("total_gpus", 1))
    found = []
    for tp in choices.get("tp", [1]):
        for pp in choices.get("pp", [1]):
            if not legal(workload, environment, tp, pp):
                continue
            weights, cache = need(workload, tp, pp)
            if weights <= 0.6 * memory:  # fits with room: tp inside a node and wide, few stages
                order = (1, 1 if tp <= node else 0, -pp, tp)
            else:
                order = (0, -weights, 0, 0)
            found.append((order, tp, pp, (0.75 * memory - weights) / cache))
    _, tp, pp, room = max(found, key=lambda entry: entry[0]) if found else (None, 1, 1, 1)
    offered = choices.get("max_num_seqs", [1])
    sizes = [size for size in offered if size <= room and workload.get("batch_size", 1) % size == 0]
    wanted = {"tp": tp, "pp": pp, "dp": 1, "ep": 1, "max_num_seqs": max(sizes, default=min(offered))}
    wanted["max_num_batched_tokens"] = 8192
    wanted["cuda_graph"] = True
    return pick(choices, wanted)
