"""Seed policy for Megatron-LM: tensor and sequence parallelism inside a node, pipeline stages until it fits."""


def generate_config(workload, environment):
    choices = {knob["key"]: knob["choices"] for knob in workload.get("config_space", [])}
    gpus = environment.get("total_gpus", 1)
    node = environment.get("gpus_per_node", gpus)
    memory = environment.get("gpu_memory_gb", 40) * 1e9
    batch = workload.get("batch_size", 1)
    seq = workload.get("seq_len", 1024)
    layers = workload.get("num_layers", 32)
    hidden = workload.get("hidden_size", 4096)
    heads = workload.get("num_heads", 32)
    kv_heads = workload.get("num_kv_heads", heads)
    vocab = workload.get("vocab_size", 128000)
    experts = workload.get("num_experts", 0)
    expert_width = workload.get("moe_intermediate_size", 0)

    dense = layers * (4 * hidden * heads * workload.get("head_dim", 128)) + 2 * vocab * hidden
    routed = 3 * layers * experts * hidden * expert_width
    if not experts:
        dense += 3 * layers * hidden * workload.get("intermediate_size", 4 * hidden)
    params = workload.get("num_params", dense + routed)
    routed = min(routed, params)

    def need(tp, pp, dp, ep):
        # bf16 weight and fp32 gradient (6 bytes) on every rank, master weight and moments (12) sharded over dp; the
        # fullest stage has a layer more than the mean, and the embedding or the head.
        share = (layers // pp + (1 if layers % pp else 0)) / layers
        common = ((params - routed) * share + vocab * hidden) / tp
        own = routed * share / tp / ep
        state = common * (6 + 12 / dp) + own * (6 + 12 / (dp // ep))
        kept = 2 * seq * hidden * layers / tp
        return state + kept + (10 * seq * vocab + 40 * seq * hidden) / tp

    def legal(tp, pp, dp, ep):
        world = tp * pp * dp
        if world > gpus or (world > node and world % node):
            return False
        if batch % dp or dp % ep or pp > layers or seq % tp:
            return False
        if kv_heads % tp and tp % kv_heads:
            return False
        return not experts or expert_width % tp == 0

    found = []
    for tp in choices.get("tp", [1]):
        for pp in choices.get("pp", [1]):
            for dp in choices.get("dp", [1]):
                for ep in choices.get("ep", [1]):
                    if legal(tp, pp, dp, ep):
                        space = need(tp, pp, dp, ep)
                        fits = space <= 0.6 * memory
                        inside = tp <= node
                        order = (fits, inside, tp * pp * dp, -pp, -tp, -ep) if fits else (fits, -space, 0, 0, 0, 0)
                        found.append((order, tp, pp, dp, ep))
    tp, pp, dp, ep = max(found, key=lambda entry: entry[0])[1:] if found else (1, 1, 1, 1)

    wanted = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "cp": 1,
        "ep": ep,
        "zero_stage": 1 if dp > 1 else 0,
        "sequence_parallel": tp > 1,
        "micro_batch_size": 1,
        "pipeline_schedule": "1f1b",
        "activation_checkpointing": "full",
        "collective_algorithm": "auto",
    }
    return {key: wanted[key] if wanted.get(key) in values else values[0] for key, values in choices.items()}
