"""Measured trials from a CSV file (docs/calibration.md has its columns)."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ccl_search.calibrating.measurements import Measurement, Measurements, merged
from runs import catalogue
from runs.digests import text_sha256
from runs.environment import Environment
from runs.errors import BadInputError
from runs.plan import ParallelPlan
from runs.workload import ModelArchitecture, Workload

REQUIRED = ("framework", "step_time_s", "micro_batch_size")
COUNTS = ("tp", "pp", "dp", "dp_shard", "dp_replicate", "ep", "cp", "zero_stage", "micro_batch_size")
FLAGS = ("sequence_parallel", "compile", "cuda_graph", "offload")
WORDS = (
    "activation_checkpointing", "pipeline_schedule", "collective_algorithm", "collective_protocol",
    "communication_library", "all2all_backend",
)  # fmt: skip
DONE = ("ok", "success", "succeeded")
_RECORDED = {"recompute-activations": "selective", "true": "selective", "false": "none"}
_TRUE, _FALSE = ("true", "1", "yes", "inductor"), ("false", "0", "no", "eager", "none")
_HINT = "docs/calibration.md has the columns"
_DAY = re.compile(r"(20\d\d)-?(\d\d)-?(\d\d)")


@dataclass(frozen=True)
class _Row:
    """One line of the table. `NAME_effective`, where filled, is what really ran and comes before `NAME`."""

    line: int
    cells: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"line {self.line}"

    def get(self, name: str) -> str:
        return self.cells.get(f"{name}_effective", "") or self.cells.get(name, "")

    def need(self, name: str) -> str:
        if not (text := self.get(name)):
            raise BadInputError(f"{self.place}: {name} is empty", _HINT)
        return text

    def count(self, name: str) -> int:
        text = self.need(name)
        if not text.isdecimal():
            raise BadInputError(f"{self.place}: {name}={text!r} is no whole number", _HINT)
        return int(text)

    def flag(self, name: str) -> bool | None:
        text = self.get(name).lower()
        if text in ("", *_TRUE, *_FALSE):
            return None if not text else text in _TRUE
        raise BadInputError(f"{self.place}: {name}={text!r} is neither true nor false", _HINT)


def read_table(path: Path, environment: str | None = None, where: Sequence[str] = ()) -> Measurements:
    """The distinct measured configs of a CSV file.

    `environment` is the bundled environment of rows that name none, with or without its count. `where` keeps the rows
    that match every `COLUMN=PATTERN` (shell patterns).

    Raises:
        BadInputError: the file cannot be read, lacks a column, holds simulated rows, or a row that would be used has a
            value that is no number, no known name or no realisable config; the message has the line.
    """
    content = _content(path)
    rows = _rows(path, content)
    filters = [_filter(text, rows) for text in where]
    dropped: dict[str, list[str]] = {}
    used: list[_Row] = []
    for row in rows:
        reason = "excluded by --where" if not all(_matches(row, each) for each in filters) else _unusable(row)
        if reason is None:
            used.append(row)
        else:
            dropped.setdefault(reason, []).append(row.place)
    found = merged(_measurement(row, environment) for row in used)
    digest = text_sha256(content)
    kept = {reason: tuple(lines) for reason, lines in dropped.items()}
    return Measurements(path.name, found, kept, digest, max(filter(None, map(_day, used)), default=None))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{path} cannot be read: {error}", "name a CSV file, or a run of `ccl-search list`"
        ) from error


def _rows(path: Path, content: str) -> list[_Row]:
    reader = csv.DictReader(io.StringIO(content, newline=""))
    columns = [name.strip() for name in reader.fieldnames or ()]
    lacking = [name for name in REQUIRED if name not in columns and f"{name}_effective" not in columns]
    if not {"workload", "model"} & set(columns):
        lacking.append("workload (or model)")
    if lacking:
        raise BadInputError(f"{path} lacks the column {', '.join(lacking)}", _HINT)
    rows = []
    for found in reader:
        cells = {str(key).strip(): value.strip() for key, value in found.items() if isinstance(value, str)}
        rows.append(_Row(reader.line_num, cells))
    if not rows:
        raise BadInputError(f"{path} has no rows", _HINT)
    return rows


def _filter(text: str, rows: Sequence[_Row]) -> tuple[str, str]:
    column, equals, pattern = text.partition("=")
    if not equals or column not in rows[0].cells:
        raise BadInputError(
            f"--where {text}: no COLUMN=PATTERN over a column of the file", f"columns: {', '.join(rows[0].cells)}"
        )
    return column, pattern


def _matches(row: _Row, wanted: tuple[str, str]) -> bool:
    return fnmatchcase(row.cells.get(wanted[0], ""), wanted[1])


def _unusable(row: _Row) -> str | None:
    """Why a row is left out: it did not succeed, was not measured again, or has no step time."""
    if row.get("fidelity") == "simulated":
        raise BadInputError(f"{row.place} is simulated", "never calibrate on a simulation: take measured rows only")
    if row.get("repeat_of"):
        return "repeats the outcome of an earlier row"
    status = row.get("status").lower()
    if status and status not in DONE:
        return f"failed: {row.get('failure_category') or status}"
    return None if row.get("step_time_s") else "no step time"


def _measurement(row: _Row, environment: str | None) -> Measurement:
    from launchers import frameworks

    seconds = _seconds(row)
    try:
        workload, framework = _workload(row), frameworks.get(row.need("framework"))
        config = _config(row, workload)
        place = _environment(row, config, environment)
        plan = framework.plan(config, workload, place)
        plan = _with_details(plan, row)
    except BadInputError as error:
        located = error.message if error.message.startswith("line ") else f"{row.place}: {error.message}"
        raise BadInputError(located, error.hint) from error
    variant = row.get("stack") or row.get("framework_variant") or row.get("framework_version")
    stack = f"{framework.name} {workload.model.model_family}{f' ({variant})' if variant else ''}"
    return Measurement(stack, workload, place, plan, (seconds,), (row.place,))


def _seconds(row: _Row) -> float:
    text = row.need("step_time_s")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise BadInputError(f"{row.place}: step_time_s={text!r} is no positive finite number", "mend or remove the row")
    return seconds


def _workload(row: _Row) -> Workload:
    if name := row.get("workload"):
        base = catalogue.workload(name)
    else:
        base = Workload("measured", catalogue.model(row.need("model")), "training", 0, 0)
    if not base.is_training:
        raise BadInputError(f"{row.place}: {base.name} is no training workload", "only training steps are calibrated")
    batch = row.count("global_batch_size") if row.get("global_batch_size") or not base.batch_size else base.batch_size
    length = row.count("seq_len") if row.get("seq_len") or not base.seq_len else base.seq_len
    return replace(
        base,
        model=_model(row, base.model),
        batch_size=batch,
        seq_len=length,
        precision=row.get("precision") or base.precision,
    )


def _model(row: _Row, model: ModelArchitecture) -> ModelArchitecture:
    """`model` with the table that really ran: shared with the head or not, padded to more words."""
    if (tied := row.flag("tied_embeddings")) is not None:
        model = replace(model, tied_embeddings=tied)
    if row.get("vocab_size"):
        if not (words := row.count("vocab_size")):
            raise BadInputError(f"{row.place}: vocab_size is 0", _HINT)
        model = replace(model, vocab_size=words)
    return model


def _config(row: _Row, workload: Workload) -> dict[str, Any]:
    config: dict[str, Any] = {name: row.count(name) for name in COUNTS if row.get(name)}
    config |= {name: flag for name in FLAGS if (flag := row.flag(name)) is not None}
    if (compiled := row.flag("compile_mode")) is not None:
        config.setdefault("compile", compiled)
    config |= {name: _RECORDED.get(row.get(name).lower(), row.get(name)) for name in WORDS if row.get(name)}
    if row.get("framework") == "megatron-lm" and workload.model.moe and config.get("tp", 1) > 1:
        config.setdefault("sequence_parallel", True)  # Megatron-LM runs experts with tensor parallelism only so
    return config


def _with_details(plan: ParallelPlan, row: _Row) -> ParallelPlan:
    overlap = row.flag("overlap_communication")
    return plan if overlap is None else replace(plan, overlap_communication=overlap)


def _environment(row: _Row, config: Mapping[str, Any], default: str | None) -> Environment:
    named = row.get("environment") or default
    if not named:
        raise BadInputError(
            f"{row.place} names no environment", "add a column environment, or give --environment for all rows"
        )
    degrees = ("tp", "pp", "dp", "cp") if "dp" in config else ("tp", "pp", "dp_shard", "dp_replicate", "cp")
    devices = math.prod(config.get(name, 1) for name in degrees)
    found = _sized(named, devices)
    if found.total_xpus < devices:
        raise BadInputError(f"the config takes {devices} devices, {found.name} has {found.total_xpus}", _HINT)
    return found


def _sized(named: str, devices: int) -> Environment:
    """The environment of that name; where the name has no count, the smallest bundled one that holds `devices`."""
    sizes = [name for name in catalogue.environment_names() if name.rpartition("-")[0] == named]
    for name in sizes:
        if catalogue.environment(name).total_xpus >= devices:
            return catalogue.environment(name)
    return catalogue.environment(sizes[-1] if sizes else named)


def _day(row: _Row) -> str | None:
    found = _DAY.search(row.get("date") or row.get("source_run"))
    return "-".join(found.groups()) if found else None
