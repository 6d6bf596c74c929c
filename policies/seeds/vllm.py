"""Seed policy for vLLM: one replica, tensor parallelism as wide as a node, more nodes only when the weights ask."""


def generate_config(workload, environment):
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    gpus = environment.get("total_gpus", 1)
    node = environment.get("gpus_per_node", gpus)
    memory = environment.get("gpu_memory_gb", 40) * 1e9
    batch = workload.get("batch_size", 1)
    tokens = workload.get("input_len", 1024) + workload.get("output_len", 128)
    layers = workload.get("num_layers", 32)
    hidden = workload.get("hidden_size", 4096)
    heads = workload.get("num_heads", 32)
    kv_heads = workload.get("num_kv_heads", heads)
    head_dim = workload.get("head_dim", 128)
    vocab = workload.get("vocab_size", 128000)
    experts = workload.get("num_experts", 0)
    expert_width = workload.get("moe_intermediate_size", 0)

    dense = layers * (4 * hidden * heads * head_dim) + 2 * vocab * hidden
    if experts:
        dense += 3 * layers * experts * hidden * expert_width
    else:
        dense += 3 * layers * hidden * workload.get("intermediate_size", 4 * hidden)
    params = workload.get("num_params", dense)

    def need(tp, pp):
        # bf16 weights of the fullest stage (a mixture's router and latent projections are whole on every rank) and, for
        # every sequence that runs at once, keys and values of all its tokens
        fullest = -(-layers // pp)
        whole = fullest * hidden * (experts + hidden) if experts else 0
        weights = 2 * (params * fullest / layers + vocab * hidden) / tp + 2 * whole
        cache = 4 * tokens * kv_heads * head_dim * layers / pp / min(tp, kv_heads)
        return weights, cache

    def legal(tp, pp):
        world = tp * pp
        if world > gpus or (world > node and world % node) or pp > layers:
            return False
        if kv_heads % tp and tp % kv_heads:
            return False
        return not experts or expert_width % tp == 0

    found = []
    for tp in choices.get("tp", [1]):
        for pp in choices.get("pp", [1]):
            if legal(tp, pp):
                weights, cache = need(tp, pp)
                fits = weights <= 0.6 * memory
                order = (fits, tp <= node, -pp, tp) if fits else (fits, -weights, 0, 0)
                found.append((order, tp, pp, (0.75 * memory - weights) / cache))
    tp, pp, room = max(found, key=lambda entry: entry[0])[1:] if found else (1, 1, 1)

    seqs = [n for n in choices.get("max_num_seqs", [1]) if n <= room and batch % n == 0]
    wanted = {
        "tp": tp,
        "pp": pp,
        "dp": 1,
        "ep": 1,
        "max_num_seqs": max(seqs, default=min(choices.get("max_num_seqs", [1]))),
        "max_num_batched_tokens": 8192,
        "cuda_graph": True,
    }
    return {key: wanted[key] if wanted.get(key) in values else values[0] for key, values in choices.items()}
