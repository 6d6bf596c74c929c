"""Policies written for these tests in the style of recorded ones: the constructs those used, one policy per habit."""

from __future__ import annotations

CHOICES_AND_HELPERS = '''"""Widest tensor parallelism inside a node, the rest of the devices as data parallelism."""


def generate_config(workload, environment):
    space = {dim["key"]: dim["choices"] for dim in workload.get("config_space", [])}
    total = environment.get("total_gpus", 1) or 1
    per_node = environment.get("gpus_per_node", total) or total

    def pick_valid(key, wanted, default=1):
        choices = space.get(key)
        if not choices:
            return default
        return min(choices, key=lambda c: (abs(c - wanted), c))

    tp = max((c for c in space.get("tp", [1]) if c <= per_node), default=1)
    pp = pick_valid("pp", 1)
    dp = pick_valid("dp", total // (tp * pp))
    config = {"tp": tp, "pp": pp, "dp": dp}
    for key in ("micro_batch_size", "micro_batch"):
        if key in space:
            config[key] = pick_valid(key, max(1, workload.get("batch_size", 1) // max(dp, 1)))
    for key in ("activation_checkpointing", "ac"):
        if key in space:
            config[key] = sorted(space[key], key=str)[0]
    return config
'''

SEARCH_WITH_SCORES = """
def generate_config(workload, environment):
    space = {}
    for dim in workload.get("config_space") or []:
        space[dim["key"]] = list(dim["choices"])
    total = environment.get("total_gpus") or 8
    memory = float(environment.get("gpu_memory_gb") or 40)
    params = workload.get("num_params") or 8.0e9
    inter = environment.get("inter_node_bandwidth_gbps") or 25
    intra = environment.get("intra_node_bandwidth_gbps") or 600
    best, best_cost = None, float("inf")
    for tp in sorted(space.get("tp", [1]), reverse=True):
        for pp in space.get("pp", [1]):
            if tp * pp > total or total % (tp * pp) != 0:
                continue
            dp = total // (tp * pp)
            if "dp" in space and dp not in space["dp"]:
                continue
            need = params * 18 / (tp * pp) / 2 ** 30
            if need > memory * 4 and not workload.get("moe", False):
                continue
            cost = need / memory + (tp - 1) * 100 / intra + (dp - 1) * 10.0 / inter
            cost += 0.25 * (pp - 1)
            if cost < best_cost:
                best, best_cost = (tp, pp, dp), cost
    else:
        tried = True
    if best is None:
        best = (1, 1, total)
    tp, pp, dp = best
    return {"tp": tp, "pp": pp, "dp": dp, "cost": round(best_cost, 6) if best_cost < float("inf") else 0.0, "ok": tried}
"""

TEXTS_AND_FLAGS = """
def generate_config(workload, environment):
    family = str(workload.get("model_family", "")).lower()
    topology = (environment.get("network_topology") or "").lower()
    fast = "nvlink" in topology and "slingshot" in topology
    parts = [p for p in family.replace("_", "-").split("-") if p]
    digits = "".join(c for c in family if c.isdigit())
    return {
        "algorithm": "ring" if fast else "tree",
        "family": parts[0].upper() if parts else "none",
        "size": int(digits) if digits else 0,
        "moe": bool(workload.get("moe")),
        "label": f"{environment.get('gpu_model', '?')!s:>12}|{workload.get('batch_size', 0):05d}|{1 / 3:.3f}",
        "long": 1024 < (workload.get("seq_len") or 0) <= 8192,
    }
"""

LOOPS_AND_COLLECTIONS = """
import math


def generate_config(workload, environment):
    layers = workload.get("num_layers")
    layers = layers if isinstance(layers, int) and layers > 0 else 27
    total = environment.get("total_gpus", 8)
    powers, n = [], 1
    while n <= total:
        powers.append(n)
        n *= 2
    divisors = [d for d in reversed(powers) if layers % d == 0]
    seen = set()
    for dim in workload.get("config_space", []):
        for choice in dim["choices"]:
            if isinstance(choice, bool) or not isinstance(choice, int):
                break
            if choice in seen:
                continue
            seen.add(choice)
    ordered = sorted(seen, reverse=True)
    table = {}
    for index, key in enumerate(["a", "b", "c"]):
        table.setdefault(key, []).append(index ** 2)
    pairs = list(zip(powers, ordered))
    pairs.sort(key=lambda pair: (-pair[1], pair[0]))
    return {
        "pp": divisors[0] if divisors else 1,
        "stages": math.ceil(layers / max(powers)),
        "widest": ordered[0] if ordered else 0,
        "all_small": all(c <= total for c in ordered),
        "any_big": any(c > total for c in ordered),
        "sum": sum(v[0] for v in table.values()),
        "first": pairs[0][0] * 100 + pairs[0][1] if pairs else 0,
        "floor": -7 // 2,
        "mod": -7 % 3,
        "power": 2 ** 0.5,
    }
"""

DEFAULTS_AND_FALLBACKS = """
def nearest_valid(choices, wanted, fallback=1):
    valid = [c for c in choices if type(c) is not bool and c <= wanted]
    return max(valid) if valid else (min(choices) if choices else fallback)


def generate_config(workload, environment):
    dims = {d["key"]: d for d in workload.get("config_space", [])}
    config = {}
    for key, dim in dims.items():
        choices = dim["choices"]
        kind = dim.get("type", "int")
        if kind == "bool":
            config[key] = bool(choices[-1])
        elif kind == "int":
            config[key] = nearest_valid(choices, environment.get("gpus_per_node", 4))
        else:
            config[key] = choices[len(choices) // 2]
    assert "tp" in config, f"no tp among {sorted(config)}"
    return config
"""

RAISES_KEY_ERROR = """
def generate_config(workload, environment):
    return {dim["name"]: dim["choices"][0] for dim in workload["config_space"]}
"""

STYLES = {
    "choices and helpers": CHOICES_AND_HELPERS,
    "search with scores": SEARCH_WITH_SCORES,
    "texts and flags": TEXTS_AND_FLAGS,
    "loops and collections": LOOPS_AND_COLLECTIONS,
    "defaults and fallbacks": DEFAULTS_AND_FALLBACKS,
}
