"""Real traces with independently computed values: every value, both rules, the other readings, and damaged folders."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from metrics import compute, registry
from metrics.api import evaluate, read_trace
from metrics.facts import CardFacts
from metrics.tool import Options, Rule
from metrics.traces.timeline import Lane, Op, Timeline
from runs.metric import MetricValue
from tests.reference import shared_path

pytestmark = pytest.mark.shared


@cache
def traces() -> Path:
    return shared_path("data/traces")


@cache
def expected() -> dict[str, Any]:
    return json.loads((traces() / "expected.json").read_text(encoding="utf-8"))["traces"]


@cache
def damaged() -> dict[str, Any]:
    return json.loads((traces() / "damaged" / "expected.json").read_text(encoding="utf-8"))["cases"]


@cache
def values(folder: str, rule: Rule = "sound", variant: str | None = None) -> dict[str, MetricValue]:
    facts, options = CardFacts.from_card_yaml(traces() / folder / "card.yaml"), Options(rule, variant)
    return {name: evaluate(registry.tool(name), facts, timeline(folder), options) for name in registry.BUNDLED}


@cache
def timeline(folder: str) -> Timeline:
    return read_trace(traces() / folder)


FOLDERS = (
    "kineto/cpu-only-rank", "kineto/ddp-a100-collective-args", "kineto/ddp-mi300-rccl-async", "kineto/dlrm-v100-8rank",
    "kineto/qwen05b-h100-hf", "kineto/qwen8b-mi300-sglang-decode", "kineto/recsys-a100-overlap",
    "kineto/recsys-a100-sendrecv-names", "kineto/resnet50-v100-2021", "kineto/vllm-mi300-decode-graph",
    "kineto/vllm-mi300-mixed-batch", "nsys/a100-cloverleaf", "nsys/h100-2gpu-nccl-a", "nsys/minimal-tables",
    "nsys/rtx3080-two-kernels", "xla/tpu-v6e-4chip",
)  # fmt: skip


def close(got: float, want: float, tolerance: float) -> bool:
    return got == want if tolerance == 0 else math.isclose(got, want, rel_tol=tolerance)


def test_every_folder_is_tested() -> None:
    assert set(expected()) == set(FOLDERS)
    assert set(damaged()) == set(DAMAGED)


def agrees(found: float | None, want: float | None, tolerance: float) -> bool:
    """Whether both are the same figure, or neither is one."""
    return found is want if found is None or want is None else close(found, want, tolerance)


@pytest.mark.parametrize("folder", FOLDERS)
def test_values(folder: str) -> None:
    wrong = []
    for name, entry in expected()[folder]["metrics"].items():
        found, want = values(folder)[name], entry["value"]
        if not agrees(found.value, want, entry.get("tol_rel", 0.0)):
            wrong.append((name, found.value, found.reason, want))
    assert not wrong


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_papers_rule(folder: str) -> None:
    """Where a trace has steps, `--rule paper` is the window; without steps there is nothing to clip to: the capture."""
    wrong = []
    for name, entry in expected()[folder]["metrics"].items():
        rules, found = entry.get("by_rule", {}), values(folder, "paper")[name]
        want = entry["value"]
        if "window" in rules:
            stepless = folder.startswith("nsys")
            want = rules.get("whole") if stepless and rules["window"] is None else rules["window"]
        if not agrees(found.value, want, entry.get("tol_rel", 0.0)):
            wrong.append((name, found.value, found.reason, want))
    assert not wrong


@pytest.mark.parametrize("folder", FOLDERS)
def test_other_readings(folder: str) -> None:
    checked, wrong = 0, []
    for name, entry in expected()[folder]["metrics"].items():
        for variant, want in _readings(entry).items():
            if variant not in registry.variants(name) or want is None:
                continue
            found, checked = values(folder, variant=variant)[name].value, checked + 1
            if found is None or not close(found, want, 1e-4 if want else 0):
                wrong.append((name, variant, found, want))
    assert not wrong
    assert checked or folder in ("kineto/cpu-only-rank",)


def _readings(entry: dict[str, Any]) -> dict[str, Any]:
    """Variants by the tool's names: a suffix names the rule, and some by_rule entries are variants."""
    out: dict[str, Any] = {}
    for name, want in (entry.get("variants") or {}).items():
        base, _, rule = name.partition(".")
        if rule in ("", entry.get("rule")):
            out[base] = want
    rules = entry.get("by_rule", {})
    if entry.get("rule") == "launch":
        out |= {rule: rules[rule] for rule in ("launch_or_window", "whole") if rule in rules}
    out |= {rule: rules[rule] for rule in ("to_gpu_end", "only_names_containing_moe") if rule in rules}
    return out


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.startswith("kineto")])
def test_facts_of_kineto_traces(folder: str) -> None:
    facts = expected()[folder]["facts"]
    lanes = timeline(folder).lanes
    assert [len(lane.kernels) for lane in lanes] == facts["kernels"]
    assert [int(lane.kernels.comm.sum()) for lane in lanes] == facts["communication_kernels"]
    assert [len(lane.copies) for lane in lanes] == facts["memory_records"]
    assert [int((lane.kernels.launch < 0).sum()) for lane in lanes] == facts["kernels_without_recorded_launch"]
    assert [len(lane.steps) for lane in lanes] == facts["steps"]["total"]
    assert lanes[0].step_kind == facts["steps"]["kind"]
    assert {lane.world_size for lane in lanes} == {facts["world_size"]}
    if facts["ranks"] != [None]:
        assert [lane.rank for lane in lanes] == facts["ranks"]
    if facts["collectives_by_op"] is not None:
        assert operations(lanes[0]) == facts["collectives_by_op"]


def operations(lane: Lane) -> dict[str, int]:
    """Counts by operation; the reference calls a kernel that only its generic name identifies by that name."""
    counts = Counter(Op(op).name.lower() for op in lane.collectives.op.tolist())
    unknown = counts.pop("unknown", 0)
    if unknown:
        first = lane.collectives.kernel[lane.collectives.op == Op.UNKNOWN][0]
        name = lane.names[lane.kernels.name[first]]
        counts["sendrecv_name_only" if "SendRecv" in name else "generic_name_only"] = unknown
    return dict(counts)


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.startswith("nsys")])
def test_facts_of_nsight_traces(folder: str) -> None:
    facts = expected()[folder]["facts"]
    lanes = timeline(folder).lanes
    assert [len(lane.kernels) for lane in lanes] == facts["kernels"]
    assert [int(lane.kernels.comm.sum()) for lane in lanes] == facts["communication_kernels"]
    assert sum(len(lane.copies) for lane in lanes) == facts["memory_records"]
    assert [lane.sm_count for lane in lanes] == facts["sm_count"]
    assert {lane.facts["schema"] for lane in lanes} == {facts["schema_version"]}


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.startswith("xla")])
def test_facts_of_xla_traces(folder: str) -> None:
    facts = expected()[folder]["facts"]
    lanes = timeline(folder).lanes
    assert [lane.device for lane in lanes] == facts["devices"]
    assert [len(lane.kernels) for lane in lanes] == facts["xla_ops"]
    assert [len(lane.steps) for lane in lanes] == facts["steps"]
    assert [len(lane.collectives) for lane in lanes] == facts["communication_ops"]
    entry = expected()[folder]["metrics"]["average_memory_bandwidth"]
    assert sum(len(lane.copies) for lane in lanes) == entry["copies"]
    assert sum(lane.facts["unpaired_copy_ops"] for lane in lanes) == entry["unpaired_start_or_done"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_bandwidth_by_direction(folder: str) -> None:
    entry = expected()[folder]["metrics"]["average_memory_bandwidth"]
    detail = values(folder)["average_memory_bandwidth"].detail or {}
    for direction, want in entry.get("by_direction", {}).items():
        assert close(detail["by_direction"][direction], want, max(entry["tol_rel"], 1e-4))
        assert detail["bytes_by_direction"][direction] == entry["bytes_by_direction"][direction]
    if "copies_without_bytes" in entry:
        assert detail["copies_without_bytes"] == entry["copies_without_bytes"]


@pytest.mark.parametrize("folder", ["kineto/ddp-mi300-rccl-async", "kineto/qwen8b-mi300-sglang-decode"])
@pytest.mark.parametrize("how", ["halves", "compact", "name_first"])
def test_files_of_other_shapes_give_the_same(tmp_path: Path, folder: str, how: str) -> None:
    """A real rank dealt out to two files at random, or written by another JSON writer, measures the same."""
    (path,) = (traces() / folder).glob("*.json.gz")
    data = json.loads(gzip.decompress(path.read_bytes()))
    events, random = data["traceEvents"], Random(7)
    parts = [events]
    if how == "halves":
        parts = [[], []]
        for event in events:
            parts[random.randrange(2)].append(event)
    elif how == "name_first":
        parts = [[{"name": event.get("name"), **event} for event in events]]
    for number, part in enumerate(parts):
        text = json.dumps({**data, "traceEvents": part}, separators=(",", ":") if how == "compact" else None)
        (tmp_path / f"part{number}.json").write_text(text)
    facts = CardFacts.from_card_yaml(traces() / folder / "card.yaml")
    found = compute(tmp_path, facts=facts)
    for name, want in values(folder).items():
        assert found[name].reason == want.reason, name
        assert found[name].value is None or close(found[name].value or 0.0, want.value or 0.0, 1e-12), name


@pytest.mark.parametrize("folder", FOLDERS)
def test_breakdown_adds_up_to_the_step(folder: str) -> None:
    parts = (
        "step_compute_time",
        "step_exposed_comm_time",
        "step_overlapped_comm_time",
        "step_memory_time",
        "step_idle_time",
    )
    for rule in ("sound", "paper"):
        found = [values(folder, rule)[part].value for part in parts]
        if None not in found:
            assert all(value >= 0 for value in found if value is not None)
            assert math.isclose(
                sum(v for v in found if v is not None), values(folder, rule)["avg_step_time"].value or 0
            )


DAMAGED = (
    "base", "gz", "list_root", "trailing_comma", "truncated", "invalid_escape", "latin1_byte", "nan_dur",
    "infinity_dur", "negative_dur", "name_null", "ts_as_string", "duplicated_rank", "empty_events", "metadata_only",
    "nested_folder", "missing_rank",
)  # fmt: skip
WARNINGS = {
    "truncated": ("rank1_trace.json", "incomplete"), "nan_dur": ("rank2_trace.json", "ignored", "NaN"),
    "infinity_dur": ("rank2_trace.json", "ignored", "Infinity"),
    "negative_dur": ("rank2_trace.json", "ignored", "negative"),
    "duplicated_rank": ("rank 1", "twice", "rank1_trace.json was used"),
    "empty_events": ("rank1_trace.json", "holds no events"),
    "metadata_only": ("rank1_trace.json", "no GPU events and no step"), "missing_rank": ("rank 2 of 3 is missing",),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damage(case: str) -> None:
    found = values(f"damaged/{case}")
    first = damaged()[case]["accept"][0]
    assert first["behaviour"] == "value"
    for name, entry in first["metrics"].items():
        assert found[name].value is not None, (name, found[name].reason)
        assert close(found[name].value or 0.0, entry["value"], entry.get("tol_rel", 0.0)), name
    told = "\n".join(found["avg_step_time"].warnings)
    assert all(word in told for word in WARNINGS.get(case, ())), told
    if first["warning"] is None:
        assert not told
