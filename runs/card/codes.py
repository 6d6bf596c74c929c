"""The codes of all findings on cards and benchmark entries: how severe each is and what it means."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Code(NamedTuple):
    """Severity and meaning of one code."""

    severity: Literal["info", "warning", "error"]
    meaning: str


_UNUSABLE = {
    "unreadable": "the file cannot be opened or read",
    "too_large": "the file is larger than 5 MB",
    "not_text": "the file is binary or not UTF-8",
    "empty": "the file holds nothing but blanks and comments",
    "not_yaml": "a strict parse failed and the repairs do not apply",
    "too_deep": "values are nested more than 100 deep",
    "alias_bomb": "YAML aliases refer to themselves or multiply the document beyond reason",
    "duplicate_key": "a mapping gives the same key twice",
    "not_a_mapping": "the document is a list or a single value",
    "section_not_mapping": "a block of the card is a list or a single value",
    "workload_missing": "there is no block `workload`, so this is no card",
}
_WARNINGS = {
    "repaired": "a strict parse failed and the text was repaired; one finding for each repair",
    "model_executor_nested": "the block Model-executor is indented under workload; it is read as if it were not",
    "model_executor_missing": "no block Model-executor anywhere",
    "hardware_missing": "no block workload.hardware",
    "metric_source_missing": "no block metric_source",
    "description_empty": "description is missing or blank",
    "hf_url_missing": "hf_url is missing, null or blank",
    "trace_url_bare_host": "trace_url is an http(s) URL without a path: it names no trace",
    "granularity_missing": "workload.model.granularity is missing",
    "granularity_unknown": (
        "granularity is none of kernel, layer, model_fwd, model_fwd_pass, model_fwd_bwd_pass, request"
    ),
    "phase_granularity_mismatch": (
        "training with a granularity of a forward pass, or inference with model_fwd_bwd_pass"
    ),
    "phase_unknown": "phase is none of training, inference, serving",
    "arch_flat": "architecture numbers stand in workload.model instead of workload.model.model_arch",
    "moe_without_ep": "moe is true, and ep is missing, null or 1",
    "batch_size_missing": "workload.data.batch_size is missing or null",
    "batch_size_is_list": "batch_size is a list, not one global batch",
    "batch_size_not_global": "batch_size_scope says that batch_size is not the global batch; a run refuses it",
    "seq_len_missing": "workload.data.seq_len is missing or null",
    "topology_missing": "network_topo.topology is missing, null or blank",
    "bandwidth_missing": "network_topo.bandwidth_gbps is missing, null or empty",
    "bandwidth_not_numeric": "an entry of bandwidth_gbps is not a number",
    "bandwidth_single_value": "bandwidth_gbps has one entry: scale-out and scale-up cannot be told apart",
    "bandwidth_order_suspect": "scale-out (first) is faster than scale-up (second): the order looks swapped",
    "parallel_product_mismatch": "tp * pp * cp * dp_replicate * dp_shard is not total_count",
    "parallelism_unset": "one of tp, pp, dp is missing or null: the product cannot be checked",
    "count_per_node_exceeds_total": "count_per_node is larger than total_count",
    "total_not_multiple_of_node": "total_count is more than a node and no multiple of count_per_node",
    "comm_library_missing": "communication_library.name is missing",
    "comm_env_missing": "communication_library.env is missing or null",
    "framework_version_in_name": "framework.name ends with a version",
    "unknown_trace_type": "metric_source.traces has an entry other than json, json_tpu, nsys",
    "unknown_all2all_backend": "VLLM_ALL2ALL_BACKEND is the name of no vLLM backend",
    "unknown_top_level_key": "a top-level key that is no part of a card; it is kept",
    "double_extension": "the file name ends with .yaml.yaml",
    "wrong_type": "a value is of another kind than the field's; it is kept, and counts as missing",
    "not_positive": "a count or a size is zero or negative; a run refuses it",
}
_INFO = {
    "hf_url_not_model_root": "hf_url is not https://huggingface.co/OWNER/MODEL",
    "trace_url_missing": "trace_url is missing, null, blank or the word None",
    "trace_url_not_url": "trace_url is text, but no http(s) URL (a path, for instance)",
    "contributor_missing": "contributor or contact is missing, null or blank",
    "arch_missing": "none of num_params, num_layers, num_heads is given",
    "input_len_missing": "inference or serving without input_len",
    "output_len_missing": "inference or serving without output_len",
    "seq_len_mismatch": "seq_len is not input_len + output_len",
    "inference_lengths_in_training": "training with input_len or output_len",
    "iteration_missing": "workload.model.iteration is missing or null",
    "metrics_specific_trace_missing": "metric_source has no key metrics_specific_trace",
    "metrics_specific_trace_not_list": "metrics_specific_trace is text, not a list",
    "metrics_specific_trace_null_entry": "metrics_specific_trace has a null entry",
    "metrics_specific_trace_comma_joined": "an entry of metrics_specific_trace holds several names joined by commas",
    "unknown_field": "a field inside a block that is no part of a card; it is kept",
}
_ENTRY_ERRORS = {
    "entry_not_a_folder": "the path is no folder",
    "entry_card_missing": "the entry has no card.yaml",
    "entry_script_missing": "the entry has no script.sh, or an empty one",
    "entry_trace_missing": "the folder trace is missing or holds no file with content",
    "entry_execution_invalid": "execution.json cannot be read as whole numbers of steps",
    "environment_incomplete": "the card leaves out a fact of the environment that an entry needs",
    "steps_unknown": "a count of steps the rule needs is not recorded",
    "warmup_steps_too_few": "training with fewer than 5 warm-up steps",
    "recorded_steps_too_few": "training with fewer than 5 recorded steps",
    "decode_steps_too_few": "inference or serving with fewer than 128 decode steps",
}
_ENTRY_WARNINGS = {
    "entry_metrics_missing": "the entry has no metrics.json, or one that is no JSON object",
    "entry_execution_missing": "the entry has no execution.json: only the card's iteration tells the steps",
    "iteration_mismatch": "the card's iteration is not the number of recorded steps",
    "warmup_missing": "inference or serving without a warm-up batch before the trace",
}

CODES: dict[str, Code] = {
    **{code: Code("error", meaning) for code, meaning in (_UNUSABLE | _ENTRY_ERRORS).items()},
    **{code: Code("warning", meaning) for code, meaning in (_WARNINGS | _ENTRY_WARNINGS).items()},
    **{code: Code("info", meaning) for code, meaning in _INFO.items()},
}
"""Every code a finding can carry."""
