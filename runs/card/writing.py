"""Making cards: from a bundled workload and environment, with a trial's plan filled in, and as YAML text."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import yaml

from runs.card.aliases import bundled_model
from runs.card.card import WorkloadCard
from runs.card.schema import Section
from runs.card.values import count
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import ModelArchitecture, Workload

AnySection = TypeVar("AnySection", bound=Section)
_PLAN_FIELDS = (
    "num_microbatches", "pipeline_schedule", "virtual_stages", "sequence_parallel", "zero_stage", "compile",
    "cuda_graph", "offload", "collective_algorithm", "collective_protocol", "all2all_backend", "tp_algorithm",
    "ep_algorithm", "topology", "network_mode", "rank_mapping", "max_num_seqs", "max_num_batched_tokens",
)  # fmt: skip


def card_from(workload: Workload, environment: Environment) -> WorkloadCard:
    """The card of a workload on an environment and its framework, without parallelism; unset facts are left out.

    `card_from(w, e).workload()` is `w` and `.environment()` is `e` again, but for their `source`.
    """
    executor = {
        "framework": _given(name=environment.framework, version=environment.framework_version),
        "communication_library": {"name": _library(environment), "env": {}},
    }
    return WorkloadCard.model_validate({
        "version": 1,
        "description": _description(workload, environment),
        "hf_url": workload.model.source if workload.model.source.startswith("https://huggingface.co/") else "",
        "trace_url": "",
        "contributor": "",
        "contact": "",
        "workload": {
            "model": _model(workload),
            "data": _given(**{key: getattr(workload, key) for key in _DATA}),
            "hardware": _hardware(environment),
            "name": workload.name,
        },
        "Model-executor": executor,
        "metric_source": {
            "traces": ["json_tpu" if environment.device.xpu_type == "TPU" else "json"],
            "metrics_specific_trace": [],
        },
    })  # fmt: skip


def with_plan(card: WorkloadCard, plan: ParallelPlan, iteration: int) -> WorkloadCard:
    """`card` as a trial's: with its parallelism, the number of recorded steps, and the devices it occupied.

    A plan on fewer devices than the card has makes `total_count` the plan's world size (and lowers
    `count_per_node` to it), so that the card tells what ran.

    Raises:
        BadInputError: the plan needs more devices than the card has.
    """
    total, per_node = count(card.xpu.total_count), count(card.xpu.count_per_node)
    if total is not None and plan.world_size > total:
        raise BadInputError(
            f"the plan needs {plan.world_size} devices, the card has total_count {total}", "lower the degrees"
        )
    xpu = {"total_count": plan.world_size, "count_per_node": min(per_node or plan.world_size, plan.world_size)}
    hardware = _changed(card.hardware, xpu_spec=_changed(card.xpu, **xpu), **_renamed(card, plan.world_size))
    block = _changed(card.block, hardware=hardware, model=_changed(card.model, iteration=iteration))
    executor = _changed(card.executor, model_plan_parallelization=_changed(card.plan, **_plan(plan)))
    if plan.communication_library:
        library = _changed(card.library, name=plan.communication_library)
        executor = _changed(executor, communication_library=library)
    return _changed(card, workload_block=block, executor_block=executor)


def to_yaml(card: WorkloadCard) -> str:
    """The card as YAML text: fields in the order of the template, then those the template does not know.

    Only what the card gives is written; `parse_card(to_yaml(card)).card == card`.
    """
    document = card.model_dump(by_alias=True, exclude_unset=True)
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


_Fast: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, several times as fast, where there is one


class _Dumper(_Fast):  # type: ignore[misc]
    """Writes values out instead of using aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_DATA = ("batch_size", "seq_len", "input_len", "output_len")


def _given(**facts: Any) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None and value != ""}


def _changed(section: AnySection, **changes: Any) -> AnySection:
    return section.model_copy(update=changes)


def _renamed(card: WorkloadCard, devices: int) -> dict[str, str]:
    """The name of a bundled environment ends with its number of devices: the right one."""
    base, _, size = str(card.hardware.name or "").rpartition("-")
    return {"name": f"{base}-{devices}"} if base and size == str(card.xpu.total_count) else {}


def _description(workload: Workload, environment: Environment) -> str:
    what = f"{workload.description or workload.name}: {workload.phase} of {workload.model.model_family}"
    framework = f" with {environment.framework}" if environment.framework else ""
    return f"{what} on {environment.total_xpus} {environment.device.name}{framework}"


def _library(environment: Environment) -> str:
    if environment.device.xpu_type == "TPU":
        return "xla"
    return "RCCL" if environment.device.name.startswith("amd_") else "NCCL"


def _model(workload: Workload) -> dict[str, Any]:
    return {
        "phase": workload.phase,
        "moe": workload.model.moe,
        "granularity": "model_fwd_bwd_pass" if workload.is_training else "model_fwd",
        "model_family": workload.model.model_family,
        "precision": workload.precision,
        "epochs": 1,
        "model_arch": _architecture(workload.model),
    }


def _architecture(model: ModelArchitecture) -> dict[str, Any]:
    """Every number that is set; what is read back as the same without being written is left out."""
    known = bundled_model(model.model_family)
    told = {f.name: getattr(model, f.name) for f in fields(model) if f.name not in ("model_family", "source")}
    usual = {f.name: f.default for f in fields(model)}
    silent = {key for key, value in told.items() if value == usual[key] == getattr(known, key, value)}
    return {key: value for key, value in told.items() if value is not None and key not in silent}


def _hardware(environment: Environment) -> dict[str, Any]:
    bandwidth = [environment.inter_node_gbps, environment.intra_node_gbps]
    return {
        "network_topo": {
            "topology": environment.topology,
            "bandwidth_gbps": ["N/A" if value is None else value for value in bandwidth],
            "nics_per_node": environment.nics_per_node,
            "latency_us": [environment.inter_node_latency_us, environment.intra_node_latency_us],
        },
        "xpu_spec": _given(
            type=environment.device.xpu_type,
            model=environment.device.name,
            total_count=environment.total_xpus,
            count_per_node=environment.xpus_per_node,
            memory_gb=environment.memory_gb,
        ),
        **_given(driver_version=environment.driver_version),
        "name": environment.name,
    }


def _plan(plan: ParallelPlan) -> dict[str, Any]:
    degrees = {key: getattr(plan, key) for key in ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep")}
    more = _given(**{key: getattr(plan, key) for key in _PLAN_FIELDS})
    placement = {"expert_placement": plan.expert_placement} if plan.ep > 1 else {}
    return {**degrees, "pp_mb": plan.micro_batch_size, "activation_checkpointing": plan.recompute, **more, **placement}
