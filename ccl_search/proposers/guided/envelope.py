"""The back of the envelope: how the parts of a step should scale from one config to another.

Rules of thumb, each a textbook formula: 6 FLOP per parameter and token for training (Kaplan et al. 2020), ring
collectives move 2(n-1)/n of a buffer for an all-reduce (Thakur et al. 2005), a 1F1B pipeline idles (p-1)/m of its work
(Narayanan et al. 2021), full recomputation repeats the forward pass. Absolute values do not matter: measured trials
set the scale of every part (`calibration.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccl_search.proposers.guided.setting import Setting

_RECOMPUTE = {"none": 1.0, "selective": 1.02, "full": 4 / 3}
_KEPT_ACTIVATIONS = {"none": 34.0, "selective": 24.0, "full": 2.0}
_COLLECTIVE_LATENCY_S = 2e-5
_HIDEABLE = 0.5
_NEVER_HIDDEN = 0.3
_FUSION_GAIN = 0.93
_LAUNCH_S = 6e-6
_KERNELS_PER_LAYER = 40
_GB = 2**30


@dataclass(frozen=True)
class Degrees:
    """The degrees of a config; absent knobs count as 1."""

    tp: int
    pp: int
    dp: int
    shard: int
    cp: int
    ep: int
    micro_batch: int
    micro_batches: int

    @classmethod
    def of(cls, config: Mapping[str, Any], setting: Setting) -> Degrees:
        """Read a config of whatever framework."""
        dp = int(config.get("dp", config.get("dp_replicate", 1) * config.get("dp_shard", 1)))
        micro_batch = int(config.get("micro_batch_size", 1)) if setting.training else max(1, setting.batch // dp)
        return cls(
            tp=int(config.get("tp", 1)),
            pp=int(config.get("pp", 1)),
            dp=dp,
            shard=int(config.get("dp_shard", dp if config.get("zero_stage", 1) else 1)),
            cp=int(config.get("cp", 1)),
            ep=int(config.get("ep", 1)),
            micro_batch=micro_batch,
            micro_batches=max(1, setting.batch // max(1, dp * micro_batch)),
        )

    @property
    def world(self) -> int:
        """Devices used."""
        return self.tp * self.pp * self.dp * self.cp


@dataclass(frozen=True)
class Envelope:
    """Estimated parts of a step, in seconds up to a common scale: compute, exposed communication by cause, bubble.

    `memory_gb` is the estimated peak of the fullest device.
    """

    compute: float
    tensor: float
    data: float
    expert: float
    bubble: float
    memory_gb: float

    @property
    def exposed(self) -> float:
        """Exposed communication of all causes."""
        return self.tensor + self.data + self.expert

    @property
    def total(self) -> float:
        """The step."""
        return self.compute + self.exposed + self.bubble


def estimate(config: Mapping[str, Any], setting: Setting) -> Envelope:
    """The parts of a step under `config`."""
    degrees = Degrees.of(config, setting)
    if not setting.training:
        return _inference(config, degrees, setting)
    compute = _compute(config, degrees, setting)
    tensor = _tensor(config, degrees, setting)
    stages = 2 if config.get("pipeline_schedule") == "interleaved" else 1
    bubble = (degrees.pp - 1) / (degrees.micro_batches * stages) * (compute + tensor)
    return Envelope(
        compute=compute,
        tensor=tensor,
        data=_data(config, degrees, setting, compute),
        expert=_expert(degrees, setting),
        bubble=bubble,
        memory_gb=_memory(config, degrees, setting),
    )


def _compute(config: Mapping[str, Any], degrees: Degrees, setting: Setting) -> float:
    tokens = setting.batch * setting.seq_len
    work = 6 * setting.active_params * tokens / degrees.world / setting.flops
    repeated = _RECOMPUTE.get(str(config.get("activation_checkpointing", "none")), 1.0)
    passes = 3 * _KERNELS_PER_LAYER * setting.layers / degrees.pp * degrees.micro_batches
    launches = passes * _LAUNCH_S * (0.4 if config.get("compile") else 1.0)
    rows = degrees.micro_batch * setting.seq_len / degrees.cp
    thinness = 1 + 256 / rows + 0.03 * (degrees.tp - 1)
    fused = _FUSION_GAIN if config.get("compile") else 1.0
    return max(work * thinness * repeated * fused, launches)


def _tensor(config: Mapping[str, Any], degrees: Degrees, setting: Setting) -> float:
    """Two all-reduces a layer forward and two backward; recomputation repeats the forward ones."""
    group = degrees.tp * degrees.cp
    if group == 1:
        return 0.0
    full = config.get("activation_checkpointing") == "full"
    calls = (6 if full else 4) * setting.layers / degrees.pp * degrees.micro_batches
    size = degrees.micro_batch * setting.seq_len / degrees.cp * setting.hidden * 2
    return calls * (_ring(size, group, setting.bandwidth(group, 1)) * 2 + _COLLECTIVE_LATENCY_S)


def _data(config: Mapping[str, Any], degrees: Degrees, setting: Setting, compute: float) -> float:
    """Exposed data-parallel time: gradients of shared weights and of experts, each over its own replicas, and gathers.

    Gradients can hide behind the backward pass of the micro-batches that still come, gathers behind all compute.
    """
    shared = (setting.params - setting.expert_params) / (degrees.tp * degrees.pp)
    replicas = degrees.dp * degrees.cp
    held, expert_replicas = _experts_held(degrees, setting)
    rounds, gathers = _gradient_rounds(config, degrees), _gathers(config, degrees)
    reduced = gathered = 0.0
    for size, ranks, shards in (
        (shared, replicas, degrees.shard * degrees.cp),
        (held, expert_replicas, min(expert_replicas, degrees.shard * degrees.cp)),
    ):
        bandwidth = setting.bandwidth(ranks, replicas * degrees.tp // ranks)
        twice = 2 if shards < ranks or not config.get("zero_stage", 1) else 1
        reduced += _ring(size * 4 * twice, ranks, bandwidth) * rounds
        gathered += _ring(size * 2, max(1, shards), bandwidth) * gathers
    hideable = _HIDEABLE * compute
    return _exposed(reduced, hideable * rounds / degrees.micro_batches) + _exposed(gathered, hideable)


def _exposed(communication: float, hideable: float) -> float:
    return max(communication - hideable, _NEVER_HIDDEN * communication)


def _experts_held(degrees: Degrees, setting: Setting) -> tuple[float, int]:
    """Routed experts' parameters on a device, and how many devices hold the same ones."""
    on_stage = setting.expert_params / degrees.pp
    ranks = degrees.dp * degrees.cp
    if setting.experts_borrow_tp:
        split = degrees.ep if degrees.ep > 1 else degrees.tp
        return on_stage / split, max(1, ranks * degrees.tp // split)
    return on_stage / (degrees.ep * degrees.tp), max(1, ranks // degrees.ep)


def _gradient_rounds(config: Mapping[str, Any], degrees: Degrees) -> int:
    """Fully sharded training reduces after every micro-batch, other training once a step."""
    return degrees.micro_batches if config.get("zero_stage", 0) == 3 else 1


def _gathers(config: Mapping[str, Any], degrees: Degrees) -> int:
    stage = int(config.get("zero_stage", 3 if "dp_shard" in config else 0))
    return {0: 0, 1: 1, 2: 1}.get(stage, 2 * degrees.micro_batches)


def _expert(degrees: Degrees, setting: Setting) -> float:
    """Dispatch and combine, forward and backward, of every token's chosen experts."""
    if not setting.moe or degrees.ep == 1:
        return 0.0
    calls = 4 * setting.layers / degrees.pp * degrees.micro_batches
    size = degrees.micro_batch * setting.seq_len / degrees.cp * setting.experts_per_token * setting.hidden * 2
    bandwidth = setting.bandwidth(degrees.ep, 1 if setting.experts_borrow_tp else degrees.tp)
    return calls * (_ring(size, degrees.ep, bandwidth) + _COLLECTIVE_LATENCY_S)


def _memory(config: Mapping[str, Any], degrees: Degrees, setting: Setting) -> float:
    experts, expert_replicas = _experts_held(degrees, setting)
    shared = (setting.params - setting.expert_params) / (degrees.tp * degrees.pp)
    zero = int(config.get("zero_stage", 3 if "dp_shard" in config else 0))
    shard = max(1, degrees.shard * degrees.cp)
    state = sum(
        held * (16 / over + 2 if zero >= 2 else 6 + 12 / (over if zero else 1))
        for held, over in ((shared, shard), (experts, min(shard, expert_replicas)))
    )
    rows = degrees.micro_batch * setting.seq_len / degrees.cp / degrees.tp
    kept = _KEPT_ACTIVATIONS.get(str(config.get("activation_checkpointing", "none")), 34.0)
    in_flight = min(degrees.pp, degrees.micro_batches)
    activations = rows * setting.hidden * kept * setting.layers / degrees.pp * in_flight
    return (state + activations) / _GB


def _inference(config: Mapping[str, Any], degrees: Degrees, setting: Setting) -> Envelope:
    """A decode step reads the weights and the KV cache of its sequences; TP all-reduces twice a layer."""
    group = degrees.tp * degrees.pp
    sequences = min(int(config.get("max_num_seqs", degrees.micro_batch)), degrees.micro_batch)
    rounds = -(-degrees.micro_batch // max(1, sequences))
    weights = 2 * setting.params / group / (min(degrees.ep, degrees.dp) if setting.moe else 1)
    cache = 2 * sequences * setting.seq_len * setting.kv_width * setting.layers / group
    launches = _KERNELS_PER_LAYER * setting.layers * _LAUNCH_S * (0.2 if config.get("cuda_graph") else 1.0)
    compute = rounds * max((weights + cache) / setting.memory_rate * degrees.pp, launches)
    size = sequences * setting.hidden * 2
    per_call = 2 * _ring(size, degrees.tp, setting.bandwidth(degrees.tp, 1)) + _COLLECTIVE_LATENCY_S
    tensor = 2 * setting.layers * per_call * rounds if degrees.tp > 1 else 0.0
    return Envelope(
        compute=compute,
        tensor=tensor,
        data=0.0,
        expert=_expert_decode(degrees, setting, sequences) * rounds,
        bubble=0.0,
        memory_gb=(weights + cache) / _GB,
    )


def _expert_decode(degrees: Degrees, setting: Setting, sequences: int) -> float:
    if not setting.moe or degrees.ep == 1:
        return 0.0
    size = sequences * setting.experts_per_token * setting.hidden * 2
    bandwidth = setting.bandwidth(degrees.ep, 1)
    return 2 * setting.layers * (_ring(size, degrees.ep, bandwidth) + _COLLECTIVE_LATENCY_S)


def _ring(size: float, ranks: int, bandwidth: float) -> float:
    """Seconds to pass `(n-1)/n` of `size` bytes over one device's link."""
    return (ranks - 1) / ranks * size / bandwidth
