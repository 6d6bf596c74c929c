"""Benchmark entries: is a folder (or a trial in memory) complete enough to be published?

The rules are those of CCL-Bench 1.0 (arXiv 2605.06544, section 3.3 and appendix C): a card, a launch script and traces;
at least 5 recorded training steps after 5 warm-up steps, or 128 decode steps; a complete environment. The layout of
an entry's folder is in docs/cards.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.card import CardError, Finding, LoadedCard, WorkloadCard, load_card
from runs.card.findings import finding, shown
from runs.card.values import entries, positive, text, whole
from runs.workload import Workload

MIN_WARMUP_STEPS = 5
MIN_RECORDED_STEPS = 5
MIN_DECODE_STEPS = 128
CARD, SCRIPT, TRACE = "card.yaml", "script.sh", "trace"
METRICS, EXECUTION = "metrics.json", "execution.json"
_MAX_JSON_BYTES = 5_000_000
_NOT_SAID = ("unknown", "n/a", "tbd", "none")


@dataclass(frozen=True)
class Steps:
    """Steps an execution made; None where nothing tells. Decode steps are those in the steady state."""

    warmup: int | None = None
    recorded: int | None = None
    decode: int | None = None


def check_entry(directory: Path) -> list[Finding]:
    """Everything that keeps the folder from being a benchmark entry (severity `error`), and what else is to be said.

    Findings on the card itself are included; an entry is complete when no finding is an error.
    """
    if not directory.is_dir():
        return [finding("entry_not_a_folder", f"{shown(str(directory))} is no folder", file=directory.name)]
    found = [*_files(directory)]
    try:
        loaded = load_card(directory / CARD) if (directory / CARD).exists() else None
    except CardError as error:
        return [*error.findings, *found]
    steps, problems = _read_steps(directory / EXECUTION)
    found += problems
    if loaded is None:
        return [finding("entry_card_missing", f"there is no {CARD}", file=directory.name), *found]
    return [*loaded.findings, *check_environment(loaded.card, loaded.name), *found, *_steps_of(loaded, steps)]


def check_steps(
    workload: Workload,
    warmup_steps: int | None,
    recorded_steps: int | None,
    decode_steps: int | None = None,
) -> list[Finding]:
    """Findings on the number of steps of an execution of `workload`; None stands for a number nobody knows.

    Training needs 5 warm-up and 5 recorded steps, inference and serving 128 decode steps.
    """
    return list(_check_steps(workload.is_training, Steps(warmup_steps, recorded_steps, decode_steps), EXECUTION))


def check_environment(card: WorkloadCard, file: str = CARD) -> list[Finding]:
    """Facts of the environment that an entry needs and the card lacks: device, counts, bandwidths, framework, version.

    Scale-out bandwidth is needed only where there is more than one node.
    """
    facts = card.normalised()
    total, per_node = facts["total_count"], facts["count_per_node"]
    one_node = total is not None and per_node is not None and total <= per_node
    single = entries(card.network.bandwidth_gbps)
    scale_up = single[0] if one_node and len(single) == 1 else facts["scale_up_gbps"]
    needed = {
        "workload.hardware.xpu_spec.model": text(facts["xpu_model"]),
        "workload.hardware.xpu_spec.total_count": positive(total),
        "workload.hardware.xpu_spec.count_per_node": positive(per_node),
        "workload.hardware.network_topo.bandwidth_gbps (scale-up)": positive(scale_up),
        "workload.hardware.network_topo.bandwidth_gbps (scale-out)": one_node or positive(facts["scale_out_gbps"]),
        "Model-executor.framework.name": facts["framework_name"],
        "Model-executor.framework.version": facts["framework_version"],
    }
    needed = {key: None if str(value).lower() in _NOT_SAID else value for key, value in needed.items()}
    message = "{} is missing or cannot be used"
    return [
        finding("environment_incomplete", message.format(key), file=file) for key, value in needed.items() if not value
    ]


def _files(directory: Path) -> Iterator[Finding]:
    if not _has_content(directory / SCRIPT):
        yield finding("entry_script_missing", f"there is no {SCRIPT} with text in it", file=directory.name)
    trace = directory / TRACE
    if not trace.is_dir() or not any(_has_content(path) for path in trace.rglob("*")):
        yield finding("entry_trace_missing", f"there is no folder {TRACE} with a file in it", file=directory.name)
    metrics, reason = _read_json(directory / METRICS)
    if metrics is None:
        yield finding("entry_metrics_missing", f"{METRICS} {reason}", file=METRICS)


def _has_content(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False


def _read_json(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A JSON object, or None and the reason why there is none."""
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            return None, f"is larger than {_MAX_JSON_BYTES} bytes"
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, "is missing"
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return None, f"is no JSON: {error}"
    return (document, "") if isinstance(document, dict) else (None, "is no JSON object")


def _read_steps(path: Path) -> tuple[Steps, list[Finding]]:
    document, reason = _read_json(path)
    if document is None:
        code = "entry_execution_missing" if not path.exists() else "entry_execution_invalid"
        return Steps(), [finding(code, f"{path.name} {reason}", file=path.name)]
    counts = {key: document.get(f"{key}_steps") for key in ("warmup", "recorded", "decode")}
    wrong = {key: value for key, value in counts.items() if value is not None and (whole(value) is None or value < 0)}
    found = [
        finding("entry_execution_invalid", f"{key}_steps is {shown(value)}, no number of steps", file=path.name)
        for key, value in wrong.items()
    ]
    return Steps(**{key: None if key in wrong else value for key, value in counts.items()}), found


def _steps_of(loaded: LoadedCard, steps: Steps) -> Iterator[Finding]:
    """The rule on steps; the card's `iteration` stands in for recorded steps that nothing else tells."""
    card = loaded.card
    iteration = whole(card.model.iteration)
    recorded = iteration if steps.recorded is None else steps.recorded
    training = text(card.model.phase) == "training"
    yield from _check_steps(training, Steps(steps.warmup, recorded, steps.decode), EXECUTION)
    if training and None not in (iteration, steps.recorded) and iteration != steps.recorded:
        message = f"iteration is {iteration}, {EXECUTION} tells {steps.recorded} recorded steps"
        yield finding("iteration_mismatch", message, file=loaded.name)


def _check_steps(training: bool, steps: Steps, file: str) -> Iterator[Finding]:
    if training:
        yield from _at_least(MIN_WARMUP_STEPS, steps.warmup, "warmup_steps", file)
        yield from _at_least(MIN_RECORDED_STEPS, steps.recorded, "recorded_steps", file)
        return
    yield from _at_least(MIN_DECODE_STEPS, steps.decode, "decode_steps", file)
    if not steps.warmup:
        yield finding("warmup_missing", "no warm-up batch before the trace is recorded", file=file)


def _at_least(least: int, steps: int | None, what: str, file: str) -> Iterator[Finding]:
    if steps is None:
        yield finding("steps_unknown", f"{what} is not recorded; at least {least} are needed", file=file)
    elif steps < least:
        yield finding(f"{what}_too_few", f"{what} is {steps}, at least {least} are needed", file=file)
