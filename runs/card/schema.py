"""The blocks of a CCL-Bench workload card as pydantic models: fields in the order of the template, values as written.

A leaf is never rejected: real cards hold lists where a number belongs, or `N/A`. Its `Kind` says what it should be;
`runs.card.rules` reports what it is not, and `runs.card.values` turns it into a usable value or None.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field


class Kind(Enum):
    """What a leaf should be."""

    COUNT = "a whole number above zero"
    NUMBER = "a number"
    TEXT = "text"
    FLAG = "true or false"
    LIST = "a list"
    MAPPING = "a mapping"


Count = Annotated[Any, Kind.COUNT]
Number = Annotated[Any, Kind.NUMBER]
Text = Annotated[Any, Kind.TEXT]
Flag = Annotated[Any, Kind.FLAG]
List = Annotated[Any, Kind.LIST]
Mapping = Annotated[Any, Kind.MAPPING]


class Section(BaseModel):
    """A block of a card. Unknown fields are kept (`extra`) and written back after the known ones."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())
    known_extras: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def keys(cls) -> dict[str, type[Section] | None]:
        """Keys of the block as cards spell them, with the model of those that are blocks themselves."""
        found: dict[str, type[Section] | None] = {}
        for name, field in cls.model_fields.items():
            blocks = [part for part in get_args(field.annotation) if isinstance(part, type)]
            found[field.alias or name] = next((part for part in blocks if issubclass(part, Section)), None)
        return found

    @classmethod
    def kinds(cls) -> dict[str, Kind]:
        """Kind of each leaf by its name."""
        pairs = ((name, part) for name, field in cls.model_fields.items() for part in field.metadata)
        return {name: part for name, part in pairs if isinstance(part, Kind)}

    @property
    def extra(self) -> dict[str, Any]:
        """Fields the schema does not know."""
        return dict(self.model_extra or {})


class Architecture(Section):
    """`model_arch`: published sizes of the model (elements and parameters); the last block is for MLA and MoE."""

    num_params: Count = None
    num_params_embedding: Count = None
    num_layers: Count = None
    num_heads: Count = None
    head_dim: Count = None
    num_params_active: Count = None
    num_active_params: Count = None
    num_kv_heads: Count = None
    hidden_size: Count = None
    intermediate_size: Count = None
    vocab_size: Count = None
    tied_embeddings: Flag = None
    attention: Text = None
    q_lora_rank: Count = None
    kv_lora_rank: Count = None
    qk_nope_head_dim: Count = None
    qk_rope_head_dim: Count = None
    v_head_dim: Count = None
    num_experts: Count = None
    num_experts_per_tok: Count = None
    num_shared_experts: Number = None
    moe_intermediate_size: Count = None
    moe_latent_size: Count = None
    first_dense_layers: Number = None


class Model(Section):
    """`workload.model`: what is computed, how often; architecture numbers also stand here in some cards."""

    phase: Text = None
    moe: Flag = None
    granularity: Text = None
    model_family: Text = None
    precision: Text = None
    epochs: Count = None
    iteration: Count = None
    model_arch: Architecture | None = None
    known_extras: ClassVar[frozenset[str]] = frozenset(Architecture.model_fields)


class Data(Section):
    """`workload.data`: the global batch in sequences, lengths in tokens."""

    batch_size: Count = None
    seq_len: Count = None
    input_len: Count = None
    output_len: Count = None
    dataset: Text = None
    batch_size_scope: Text = None
    known_extras: ClassVar[frozenset[str]] = frozenset({
        "max-model-len", "max-num-batched-tokens", "max-num-seqs", "max_tokens", "num_prompts",
        "request_rate",
    })  # fmt: skip


class NetworkTopology(Section):
    """`network_topo`: `bandwidth_gbps` is [scale-out, scale-up] in Gb/s; `latency_us` likewise, one hop."""

    topology: Text = None
    bandwidth_gbps: List = None
    nics_per_node: Count = None
    latency_us: List = None


class XpuSpec(Section):
    """`xpu_spec`: the devices. `memory_gb` overrides the nominal memory of the device."""

    type: Text = None
    model: Text = None
    total_count: Count = None
    count_per_node: Count = None
    memory_gb: Number = None
    num_nodes: Count = None
    topology: Text = None


class Hardware(Section):
    """`workload.hardware`."""

    network_topo: NetworkTopology | None = None
    xpu_spec: XpuSpec | None = None
    driver_version: Text = None
    name: Text = None


class WorkloadBlock(Section):
    """`workload`; `name` here and in `hardware` is the bundled workload or environment a card was made from."""

    model: Model | None = None
    data: Data | None = None
    hardware: Hardware | None = None
    name: Text = None


class Framework(Section):
    """`framework`: what is launched."""

    name: Text = None
    version: Text = None
    compiler_tool_selection: Text = None
    env: Mapping = None
    known_extras: ClassVar[frozenset[str]] = frozenset({"run_script", "trace_dir"})


class Parallelization(Section):
    """`model_plan_parallelization`: degrees in ranks; `pp_mb` is the micro-batch in sequences.

    The fields after `pp_mb` are those a trial adds: the rest of its plan, in the words of the knobs.
    """

    dp_replicate: Count = None
    dp_shard: Count = None
    tp: Count = None
    pp: Count = None
    cp: Count = None
    ep: Count = None
    pp_mb: Count = None
    dp: Count = None
    micro_batch: Count = None
    num_microbatches: Count = None
    pipeline_schedule: Text = None
    virtual_stages: Count = None
    activation_checkpointing: Text = None
    sequence_parallel: Flag = None
    zero_stage: Number = None
    expert_placement: Text = None
    compile: Flag = None
    cuda_graph: Flag = None
    offload: Flag = None
    collective_algorithm: Text = None
    collective_protocol: Text = None
    all2all_backend: Text = None
    tp_algorithm: Text = None
    ep_algorithm: Text = None
    topology: Count = None
    network_mode: Text = None
    rank_mapping: Text = None
    max_num_seqs: Count = None
    max_num_batched_tokens: Count = None


class CommunicationLibrary(Section):
    """`communication_library`: `env` holds environment variables of the library."""

    name: Text = None
    version: Text = None
    env: Mapping = None


class Executor(Section):
    """`Model-executor`."""

    framework: Framework | None = None
    model_plan_parallelization: Parallelization | None = None
    communication_library: CommunicationLibrary | None = None
    protocol_selection: List = None
    known_extras: ClassVar[frozenset[str]] = frozenset({"compiler_tool_selection", "expert_parallel", "serving"})


class MetricSource(Section):
    """`metric_source`: the kinds of traces there are."""

    traces: List = None
    metrics_specific_trace: List = None


class CardBlock(Section):
    """The top level of a card."""

    version: Number = None
    description: Text = None
    hf_url: Text = None
    trace_url: Text = None
    contributor: Text = None
    contact: Text = None
    workload_block: WorkloadBlock | None = Field(default=None, alias="workload")
    executor_block: Executor | None = Field(default=None, alias="Model-executor")
    metric_source: MetricSource | None = None
