"""From a card's blocks to the typed facts of a run: `Workload` and `Environment`, or an error that names the field."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Literal, NoReturn, cast

from runs import catalogue
from runs.card.aliases import bundled_cluster, bundled_model
from runs.card.findings import shown
from runs.card.normal import architecture_value, bandwidths, framework_name, framework_version
from runs.card.schema import Data, Framework, Hardware, Model, NetworkTopology, WorkloadBlock, XpuSpec
from runs.card.values import count, entries, family, positive, text, whole
from runs.environment import Device, Environment
from runs.errors import BadInputError
from runs.workload import ModelArchitecture, Phase, Workload

_COUNTS = ("num_params", "num_active_params", "num_params_embedding")
_ZERO_ALLOWED = ("num_experts", "num_experts_per_tok", "num_shared_experts", "first_dense_layers")
_PHASES = ("training", "inference", "serving")
_ARCH = "workload.model.model_arch"


def workload_from(block: WorkloadBlock) -> Workload:
    """The workload a card's block `workload` describes (`WorkloadCard.workload`)."""
    model, data = block.model or Model(), block.data or Data()
    phase = _phase(model)
    architecture = architecture_from(model)
    return Workload(
        name=text(block.name) or f"{architecture.model_family}-{phase}",
        model=architecture,
        phase=phase,
        batch_size=_batch_size(data),
        seq_len=_seq_len(data, phase),
        precision=text(model.precision) or _missing("workload.model.precision", "bf16"),
        input_len=count(data.input_len),
        output_len=count(data.output_len),
    )


def architecture_from(model: Model) -> ModelArchitecture:
    """The architecture of a card's `workload.model`; its `source` says which number the card or the catalogue gave.

    Published counts of the catalogue are left out where the card gives the model another shape: they would be wrong.

    Raises:
        BadInputError: numbers are missing that neither the card nor the catalogue has, or `moe` contradicts them.
    """
    name = family(model.model_family) or _missing("workload.model.model_family", "llama-3.1-8b")
    own = _own_numbers(model)
    known = bundled_model(name)
    rest = _bundled_numbers(known, own)
    missing = [f.name for f in fields(ModelArchitecture) if f.default is MISSING and f.name not in own | rest]
    missing = [key for key in missing if key != "model_family"]
    if missing:
        _architecture_missing(name, missing, known)
    built = ModelArchitecture(model_family=name, source=_sources(own, rest, known), **(rest | own))
    _check_experts(model, built)
    _check_complete(built)
    return built


def environment_from(hardware: Hardware, framework: Framework) -> Environment:
    """The environment a card's hardware and framework describe (`WorkloadCard.environment`)."""
    xpu, network = hardware.xpu_spec or XpuSpec(), hardware.network_topo or NetworkTopology()
    device = _device(xpu)
    total = count(xpu.total_count) or _missing("workload.hardware.xpu_spec.total_count", "16", xpu.total_count)
    per_node = count(xpu.count_per_node) or _missing(
        "workload.hardware.xpu_spec.count_per_node", "4", xpu.count_per_node
    )
    scale_out, scale_up = _bandwidths(network, single_node=total <= per_node)
    topology, rest, extras = _cluster(network, device)
    return Environment(
        name=text(hardware.name) or f"{device.name}-{total}",
        device=device,
        total_xpus=total,
        xpus_per_node=per_node,
        intra_node_gbps=scale_up,
        inter_node_gbps=scale_out,
        topology=topology,
        framework=framework_name(framework) or "",
        framework_version=framework_version(framework) or "",
        driver_version=text(hardware.driver_version) or "",
        memory_gb=positive(xpu.memory_gb),
        extras=extras,
        **rest,
    )


def _missing(field: str, example: str, found: Any = None) -> NoReturn:
    what = f"{field} is {shown(found)}, which cannot be used" if found is not None else f"{field} is missing"
    raise BadInputError(f"the card cannot be run: {what}", f"write for example `{field.rpartition('.')[2]}: {example}`")


def _phase(model: Model) -> Phase:
    if model.phase not in _PHASES:
        _missing("workload.model.phase", "training", model.phase)
    return cast("Phase", model.phase)


def _batch_size(data: Data) -> int:
    if isinstance(data.batch_size, list):
        raise BadInputError(
            f"the card cannot be run: workload.data.batch_size is a list ({shown(data.batch_size)})",
            "a run has one global batch: make a card for each size",
        )
    if data.batch_size_scope not in (None, "global"):
        raise BadInputError(
            f"the card cannot be run: workload.data.batch_size_scope is {shown(data.batch_size_scope)}",
            "give the global batch, and batch_size_scope: global or none",
        )
    return count(data.batch_size) or _missing("workload.data.batch_size", "8", data.batch_size)


def _seq_len(data: Data, phase: Phase) -> int:
    given, lengths = count(data.seq_len), [count(data.input_len), count(data.output_len)]
    if given is None and phase != "training" and all(lengths):
        return sum(length or 0 for length in lengths)
    return given or _missing("workload.data.seq_len", "1024", data.seq_len)


def _own_numbers(model: Model) -> dict[str, Any]:
    """What the card itself says of the architecture; values that cannot be used do not count."""
    own: dict[str, Any] = {}
    for f in fields(ModelArchitecture):
        value = architecture_value(model, f.name)
        if f.name == "num_active_params" and value is None:
            value = architecture_value(model, "num_params_active")
        if _usable(f.name, value):
            own[f.name] = value
    return own


def _usable(key: str, value: Any) -> bool:
    if key in ("model_family", "source"):
        return False
    if key == "tied_embeddings":
        return isinstance(value, bool)
    if key == "attention":
        return value in ("gqa", "mla")
    if key in _ZERO_ALLOWED:
        return whole(value) is not None and value >= 0
    return count(value) is not None


def _bundled_numbers(known: ModelArchitecture | None, own: dict[str, Any]) -> dict[str, Any]:
    """What the catalogue adds to the card's own numbers."""
    if known is None:
        return {}
    facts = {f.name: getattr(known, f.name) for f in fields(known) if f.name not in ("model_family", "source")}
    same_shape = all(facts[key] == value for key, value in own.items() if key not in _COUNTS)
    kept = {key: value for key, value in facts.items() if same_shape or key not in _COUNTS}
    return {key: value for key, value in kept.items() if value is not None and key not in own}


def _sources(own: dict[str, Any], rest: dict[str, Any], known: ModelArchitecture | None) -> str:
    parts = [f"card: {', '.join(own)}"] if own else []
    if known is not None and rest:
        parts.append(f"catalogue {known.model_family} ({known.source}): {', '.join(rest) if own else 'all'}")
    return "; ".join(parts)


def _architecture_missing(name: str, missing: list[str], known: ModelArchitecture | None) -> NoReturn:
    what = f"{_ARCH} lacks {', '.join(missing)}"
    why = "" if known else f", and no bundled model is called {name!r}"
    bundled = ", ".join(catalogue.model_names())
    raise BadInputError(
        f"the card cannot be run: {what}{why}", f"add them under model_arch, or use a bundled model_family: {bundled}"
    )


def _check_experts(model: Model, built: ModelArchitecture) -> None:
    if model.moe is True and not built.moe:
        raise BadInputError(
            f"the card cannot be run: workload.model.moe is true, but {_ARCH}.num_experts is missing",
            "add num_experts, num_experts_per_tok and moe_intermediate_size under model_arch",
        )
    if model.moe is False and built.moe:
        raise BadInputError(
            f"the card cannot be run: workload.model.moe is false, but {built.model_family} has {built.num_experts} "
            "experts",
            "set moe: true, or give another model_family",
        )


def _check_complete(built: ModelArchitecture) -> None:
    """What only some architectures need."""
    needed = [] if built.moe else ["intermediate_size"]
    needed += ["num_experts_per_tok", "moe_intermediate_size"] if built.moe else []
    needed += ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"] if built.attention == "mla" else []
    missing = [key for key in needed if not getattr(built, key)]
    if missing:
        raise BadInputError(f"the card cannot be run: {_ARCH} lacks {', '.join(missing)}", "add them under model_arch")


def _device(xpu: XpuSpec) -> Device:
    name = text(xpu.model) or _missing("workload.hardware.xpu_spec.model", "nvidia_a100", xpu.model)
    try:
        return catalogue.device(name)
    except BadInputError as error:
        message = f"the card cannot be run: workload.hardware.xpu_spec.model {shown(name)} is no bundled device"
        raise BadInputError(message, error.hint) from error


def _bandwidths(network: NetworkTopology, single_node: bool) -> tuple[float | None, float | None]:
    """Scale-out and scale-up in Gb/s. A single value is scale-up where there is only one node, else it is neither."""
    values = entries(network.bandwidth_gbps)
    if len(values) == 1 and single_node:
        return None, positive(values[0])
    scale_out, scale_up = bandwidths(network)
    return positive(scale_out), positive(scale_up)


def _cluster(network: NetworkTopology, device: Device) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Topology, and what the card or else a bundled cluster of that topology knows of its network cards."""
    written = text(network.topology) or ""
    bundled = bundled_cluster(written, device.name)
    rest: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    if bundled is not None:
        rest = {key: getattr(bundled, key) for key in _NETWORK_FACTS}
        if bundled.topology != written:
            extras = {"card_topology": written, "network_facts": f"catalogue {bundled.name.rpartition('-')[0]}"}
    own = {"nics_per_node": count(network.nics_per_node)} | dict(
        zip(_NETWORK_FACTS[:2], _latencies(network), strict=True)
    )
    rest |= {key: value for key, value in own.items() if value is not None}
    return (bundled.topology if bundled else written), rest, extras


_NETWORK_FACTS: tuple[Literal["inter_node_latency_us", "intra_node_latency_us", "nics_per_node"], ...] = (
    "inter_node_latency_us",
    "intra_node_latency_us",
    "nics_per_node",
)


def _latencies(network: NetworkTopology) -> tuple[float | None, float | None]:
    values = entries(network.latency_us)
    return (positive(values[0]), positive(values[1])) if len(values) == 2 else (None, None)
