"""The rules of a good card, one function for each part of it. Each yields findings with the line they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from runs.card.context import Context
from runs.card.executor_rules import check_executor
from runs.card.findings import Finding, shown
from runs.card.normal import architecture_value
from runs.card.shape import check_shape
from runs.card.values import entries, number, text, whole

_MODEL_ROOT = re.compile(r"https://huggingface\.co/[^/\s?#]+/[^/\s?#]+/?")
_GRANULARITIES = ("kernel", "layer", "model_fwd", "model_fwd_pass", "model_fwd_bwd_pass", "request")
_TRAINING_GRANULARITIES = ("model_fwd_bwd_pass", "layer", "kernel")
_ARCHITECTURE = ("num_params", "num_layers", "num_heads")
_TRACE_TYPES = ("json", "json_tpu", "nsys")
_SERVED = ("inference", "serving")
_DATA = ("workload", "data")
_MODEL = ("workload", "model")
_NETWORK = ("workload", "hardware", "network_topo")
_XPU = ("workload", "hardware", "xpu_spec")
_SPECIFIC = ("metric_source", "metrics_specific_trace")


def check(context: Context) -> list[Finding]:
    """Every finding on the card, in the order of its lines."""
    parts = (_provenance, _model, _architecture, _batch, _lengths, _hardware, _counts, _metric_source, _file)
    found = [finding for part in parts for finding in part(context)]
    found += [*check_executor(context), *check_shape(context)]
    return sorted(found, key=lambda each: (each.line or 0, each.code))


def _provenance(context: Context) -> Iterator[Finding]:
    card = context.card
    if text(card.description) is None:
        yield context.at("description_empty", "description is missing or blank", "description")
    url = text(card.hf_url)
    if url is None:
        yield context.at("hf_url_missing", "hf_url is missing, null or blank", "hf_url")
    elif not _MODEL_ROOT.fullmatch(url):
        yield context.at("hf_url_not_model_root", f"hf_url is {shown(url)}, no model's page", "hf_url")
    yield from _trace_url(context)
    nobody = [key for key in ("contributor", "contact") if text(getattr(card, key)) is None]
    if nobody:
        yield context.at("contributor_missing", f"{', '.join(nobody)}: missing, null or blank", nobody[0])


def _trace_url(context: Context) -> Iterator[Finding]:
    url = text(context.card.trace_url)
    if url is None or url == "None":
        yield context.at("trace_url_missing", "trace_url is missing, null or blank", "trace_url")
        return
    is_url = url.lower().startswith(("http://", "https://")) and not re.search(r"\s", url)
    if not is_url:
        yield context.at("trace_url_not_url", f"trace_url is {shown(url)}, no http(s) URL", "trace_url")
    elif not _path_of(url).strip("/"):
        yield context.at("trace_url_bare_host", f"trace_url {shown(url)} names a host, but no trace", "trace_url")


def _path_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.path + parts.query


def _model(context: Context) -> Iterator[Finding]:
    model = context.card.model
    phase, granularity = text(model.phase), text(model.granularity)
    if phase not in ("training", *_SERVED):
        message = f"phase is {shown(model.phase)}, none of training, inference, serving"
        yield context.at("phase_unknown", message, *_MODEL, "phase")
    if granularity is None:
        yield context.at("granularity_missing", "workload.model.granularity is missing", *_MODEL, "granularity")
    elif granularity not in _GRANULARITIES:
        yield context.at("granularity_unknown", f"granularity is {shown(granularity)}", *_MODEL, "granularity")
    elif (phase == "training" and granularity not in _TRAINING_GRANULARITIES) or (
        phase in _SERVED and granularity == "model_fwd_bwd_pass"
    ):
        yield context.at("phase_granularity_mismatch", f"{phase} with {granularity}", *_MODEL, "granularity")
    if model.iteration is None:
        message = "workload.model.iteration is missing: nothing says how many steps were recorded"
        yield context.at("iteration_missing", message, *_MODEL, "iteration")


def _architecture(context: Context) -> Iterator[Finding]:
    model = context.card.model
    flat = [key for key in _ARCHITECTURE if key in model.extra]
    if flat:
        message = f"{', '.join(flat)}: in workload.model instead of workload.model.model_arch"
        yield context.at("arch_flat", message, *_MODEL, flat[0])
    if all(architecture_value(model, key) is None for key in _ARCHITECTURE):
        yield context.at("arch_missing", f"none of {', '.join(_ARCHITECTURE)} is given", *_MODEL, "model_arch")


def _batch(context: Context) -> Iterator[Finding]:
    batch = context.card.data.batch_size
    if batch is None:
        yield context.at("batch_size_missing", "workload.data.batch_size is missing", *_DATA, "batch_size")
    elif isinstance(batch, list):
        message = f"batch_size is {shown(batch)}, not one global batch"
        yield context.at("batch_size_is_list", message, *_DATA, "batch_size")
    scope = context.card.data.batch_size_scope
    if scope not in (None, "global"):
        message = f"batch_size_scope is {shown(scope)}, not global"
        yield context.at("batch_size_not_global", message, *_DATA, "batch_size_scope")


def _lengths(context: Context) -> Iterator[Finding]:
    data, phase = context.card.data, text(context.card.model.phase)
    lengths = {key: getattr(data, key) for key in ("input_len", "output_len")}
    missing = [key for key, value in lengths.items() if value is None]
    if data.seq_len is None:
        yield context.at("seq_len_missing", "workload.data.seq_len is missing", *_DATA, "seq_len")
    if phase == "training" and len(missing) < 2:
        given = [key for key in lengths if key not in missing]
        message = f"{', '.join(given)}: of no use in training"
        yield context.at("inference_lengths_in_training", message, *_DATA, given[0])
    if phase in _SERVED:
        for key in missing:
            yield context.at(f"{key}_missing", f"workload.data.{key} is missing in {phase}", *_DATA, key)
        yield from _length_sum(context)


def _length_sum(context: Context) -> Iterator[Finding]:
    data = context.card.data
    total, first, second = whole(data.seq_len), whole(data.input_len), whole(data.output_len)
    if total is not None and first is not None and second is not None and total != first + second:
        message = f"seq_len {total}, input_len {first} + output_len {second}"
        yield context.at("seq_len_mismatch", message, *_DATA, "seq_len")


def _hardware(context: Context) -> Iterator[Finding]:
    if context.card.block.hardware is None:
        yield context.at("hardware_missing", "no block workload.hardware", "workload", "hardware")
        return
    network = context.card.network
    if text(network.topology) is None:
        yield context.at("topology_missing", "network_topo.topology is missing or blank", *_NETWORK, "topology")
    bandwidth = network.bandwidth_gbps
    if bandwidth is None or bandwidth == []:
        yield context.at("bandwidth_missing", "network_topo.bandwidth_gbps is missing", *_NETWORK, "bandwidth_gbps")
    else:
        yield from _bandwidth(context)


def _bandwidth(context: Context) -> Iterator[Finding]:
    values, at = entries(context.card.network.bandwidth_gbps), (*_NETWORK, "bandwidth_gbps")
    strange = [index for index, value in enumerate(values) if number(value) is None]
    if strange:
        message = f"{shown(values)}: {shown(values[strange[0]])} is no number"
        yield context.at("bandwidth_not_numeric", message, *at, strange[0])
    if len(values) == 1:
        message = f"{shown(values)}: scale-out and scale-up cannot be told apart"
        yield context.at("bandwidth_single_value", message, *at)
    if len(values) == 2 and not strange and values[0] > values[1]:
        message = f"{shown(values)}: scale-out (first) is faster than scale-up (second); the values are not swapped"
        yield context.at("bandwidth_order_suspect", message, *at)


def _counts(context: Context) -> Iterator[Finding]:
    total, per_node = whole(context.card.xpu.total_count), whole(context.card.xpu.count_per_node)
    if total is None or per_node is None or per_node <= 0:
        return
    if per_node > total:
        message = f"count_per_node {per_node} > total_count {total}"
        yield context.at("count_per_node_exceeds_total", message, *_XPU, "count_per_node")
    elif total % per_node:
        message = f"total_count {total} is no multiple of count_per_node {per_node}"
        yield context.at("total_not_multiple_of_node", message, *_XPU, "total_count")


def _metric_source(context: Context) -> Iterator[Finding]:
    if context.card.metric_source is None:
        yield context.at("metric_source_missing", "no block metric_source", "metric_source")
        return
    for index, kind in enumerate(entries(context.card.metrics.traces)):
        if kind is not None and kind not in _TRACE_TYPES:
            message = f"trace type {shown(kind)} is none of {', '.join(_TRACE_TYPES)}"
            yield context.at("unknown_trace_type", message, "metric_source", "traces", index)
    yield from _specific_traces(context)


def _specific_traces(context: Context) -> Iterator[Finding]:
    source = context.card.metrics
    value = source.metrics_specific_trace
    if "metrics_specific_trace" not in source.model_fields_set:
        yield context.at("metrics_specific_trace_missing", "no key metrics_specific_trace", *_SPECIFIC)
    elif isinstance(value, str):
        yield context.at("metrics_specific_trace_not_list", f"{shown(value)} is text, not a list", *_SPECIFIC)
    for index, entry in enumerate(entries(value)):
        if entry is None:
            yield context.at("metrics_specific_trace_null_entry", f"entry {index + 1} is null", *_SPECIFIC, index)
        elif isinstance(entry, str) and "," in entry:
            message = f"entry {index + 1} holds several names: {shown(entry)}"
            yield context.at("metrics_specific_trace_comma_joined", message, *_SPECIFIC, index)


def _file(context: Context) -> Iterator[Finding]:
    for key in context.card.extra:
        message = f"top-level key {shown(key)} is no part of a card; it is kept"
        yield context.at("unknown_top_level_key", message, key)
    if context.file.lower().endswith(".yaml.yaml"):
        yield context.at("double_extension", f"the file name ends with .yaml.yaml: {shown(context.file)}")
