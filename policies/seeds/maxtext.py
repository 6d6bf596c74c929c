"""Seed policy for MaxText: FSDP over all of the data axis, tensor parallelism inside a host, no pipeline."""


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
    if experts:
        routed = 3 * layers * experts * hidden * expert_width
    else:
        routed = 0
        dense += 3 * layers * hidden * workload.get("intermediate_size", 4 * hidden)
    params = workload.get("num_params", dense + routed)
    routed = min(routed, params)

    def need(tp, pp, dp):
        # fp32 weights, gradients and two moments, sharded over everything; then what one layer and one micro-batch
        # need at a time under full recomputation, and the logits.
        state = 16 * (params / pp + 2 * vocab * hidden) / (tp * dp)
        layer = 8 * params / layers / tp
        kept = 2 * seq * hidden * layers / tp
        logits = 10 * seq * vocab / tp
        return state + layer + kept + logits + 20 * seq * hidden

    def legal(tp, pp, dp):
        world = tp * pp * dp
        if world > gpus or (world > node and world % node):
            return False
        if batch % dp or kv_heads % tp:
            return False
        return layers % pp == 0 and (pp == 1 or batch // dp % pp == 0)

    found = []
    for tp in choices.get("tp", [1]):
        for pp in choices.get("pp", [1]):
            for dp in choices.get("dp", [1]):
                if dp in choices.get("dp_shard", [dp]) and legal(tp, pp, dp):
                    fits = need(tp, pp, dp) <= 0.6 * memory
                    inside = tp <= node
                    order = (fits, inside, tp * pp * dp, -pp, -tp) if fits else (fits, -need(tp, pp, dp), 0, 0, 0)
                    found.append((order, tp, pp, dp))
    tp, pp, dp = max(found, key=lambda entry: entry[0])[1:] if found else (1, 1, 1)

    wanted = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "dp_shard": dp,
        "cp": 1,
        "ep": 1,
        "sequence_parallel": tp > 1 and seq % tp == 0,
        "micro_batch_size": 1,
        "pipeline_schedule": "gpipe",
        "activation_checkpointing": "full",
    }
    return {key: wanted[key] if wanted.get(key) in values else values[0] for key, values in choices.items()}
