"""The rules for the block Model-executor: framework, parallelism, communication library."""

from __future__ import annotations

import math
from collections.abc import Iterator

from runs.card.context import Context
from runs.card.findings import Finding, shown
from runs.card.normal import data_parallel
from runs.card.values import split_version, text, whole

_EXECUTOR = "Model-executor"
_PLAN = (_EXECUTOR, "model_plan_parallelization")
_LIBRARY = (_EXECUTOR, "communication_library")
_ALL2ALL = "VLLM_ALL2ALL_BACKEND"
_ALL2ALL_BACKENDS = (
    "naive", "pplx", "deepep_high_throughput", "deepep_low_latency", "allgather_reducescatter", "flashinfer_all2allv",
)  # fmt: skip


def check_executor(context: Context) -> Iterator[Finding]:
    """Findings on the executor."""
    if context.nested:
        message = "workload.Model-executor: the block is indented under workload; read as if it were not"
        yield context.at("model_executor_nested", message, _EXECUTOR)
    if context.card.executor_block is None:
        yield context.at("model_executor_missing", "no block Model-executor", _EXECUTOR)
        return
    for part in (_framework, _experts, _parallelism, _product, _library, _environment):
        yield from part(context)


def _framework(context: Context) -> Iterator[Finding]:
    name = text(context.card.framework.name)
    if name is not None and split_version(name)[1] is not None:
        message = f"framework.name {shown(name)} ends with a version"
        yield context.at("framework_version_in_name", message, _EXECUTOR, "framework", "name")


def _experts(context: Context) -> Iterator[Finding]:
    ep = context.card.plan.ep
    if context.card.model.moe is True and (ep is None or whole(ep) == 1):
        message = f"moe is true, ep is {'missing' if ep is None else ep}"
        yield context.at("moe_without_ep", message, *_PLAN, "ep")


def _parallelism(context: Context) -> Iterator[Finding]:
    plan = context.card.plan
    data_parallel = next((v for v in (plan.dp_replicate, plan.dp_shard, plan.dp) if v is not None), None)
    degrees = {"tp": plan.tp, "pp": plan.pp, "dp": data_parallel}
    unset = [key for key, value in degrees.items() if value is None]
    if unset:
        message = f"{', '.join(unset)}: missing or null, so the product of degrees cannot be checked"
        yield context.at("parallelism_unset", message, *_PLAN, unset[0])


def _product(context: Context) -> Iterator[Finding]:
    plan, total = context.card.plan, whole(context.card.xpu.total_count)
    factors = [whole(value) for value in (plan.tp, plan.pp, plan.cp, plan.dp_replicate, plan.dp_shard)]
    given = [factor for factor in factors if factor is not None]
    if total is None or len(given) < len(factors) or math.prod(given) == total:
        return
    tp, pp, cp, *_ = given
    product = f"tp {tp} * pp {pp} * cp {cp} * dp {data_parallel(plan)} = {math.prod(given)}"
    yield context.at("parallel_product_mismatch", f"{product}, total_count {total}", *_PLAN)


def _library(context: Context) -> Iterator[Finding]:
    if text(context.card.library.name) is None:
        yield context.at("comm_library_missing", "communication_library.name is missing", *_LIBRARY, "name")
    if context.card.library.env is None:
        yield context.at("comm_env_missing", "communication_library.env is missing or null", *_LIBRARY, "env")


def _environment(context: Context) -> Iterator[Finding]:
    env = context.card.library.env
    backend = env.get(_ALL2ALL) if isinstance(env, dict) else None
    if backend is not None and backend not in _ALL2ALL_BACKENDS:
        message = f"{_ALL2ALL} is {shown(backend)}, none of {', '.join(_ALL2ALL_BACKENDS)}"
        yield context.at("unknown_all2all_backend", message, *_LIBRARY, "env", _ALL2ALL)
