"""Which files of a folder are traces, of which family, and where a user's other JSON files are not mistaken for
them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from metrics.traces.raw import head_of
from runs.errors import BadInputError

_PEEK = 1 << 18
_XLA = re.compile(rb'"(?:/device:(?:TPU|GPU|CUSTOM)[^"]*|hlo_category|hlo_op)"')
_EVENTS = re.compile(rb'"traceEvents"|"ph"\s*:|^\s*\[\s*\]?\s*$')
_NOT_TRACES = re.compile(r"(?:\.latency\.json|_et\.json|execution_trace.*\.json|\.et\.json)$", re.IGNORECASE)
_DATABASE = ".sqlite"


@dataclass(frozen=True)
class TraceFile:
    """A trace file: where it is, how the user knows it (path below the folder), its family."""

    path: Path
    source: str
    family: str


def find(folder: Path) -> tuple[list[TraceFile], list[str]]:
    """The trace files of a folder (or a single file), folders below included, and warnings about files left out.

    Raises:
        BadInputError: the path does not exist, or holds no trace.
    """
    if not folder.exists():
        raise BadInputError(f"there is no trace at {folder}", "give the folder that holds the profiler's files")
    paths = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if _candidate(p.name) and p.is_file())
    files, warnings = [], []
    for path in paths:
        source = path.name if folder.is_file() else path.relative_to(folder).as_posix()
        family = family_of(path)
        if family is None:
            warnings.append(f"{source}: left out, not a trace of a known family")
        else:
            files.append(TraceFile(path, source, family))
    if not files:
        seen = (
            f"; {len(warnings)} file(s) were looked at: {', '.join(w.split(':')[0] for w in warnings[:5])}"
            if warnings
            else ""
        )
        raise BadInputError(
            f"no trace file in {folder} or in the folders below it{seen}",
            "expected Kineto or XLA JSON (.json, .json.gz), *.xplane.pb, or Nsight Systems .sqlite",
        )
    return files, warnings


def _candidate(name: str) -> bool:
    lower = name.lower()
    if _NOT_TRACES.search(lower.removesuffix(".gz")):
        return False
    return lower.endswith((".json", ".json.gz", _DATABASE, ".xplane.pb", ".db"))


def family_of(path: Path) -> str | None:
    """`kineto`, `xla`, `xplane` or `nsys` by what the file begins with; None for anything else."""
    if path.name.endswith(".xplane.pb"):
        return "xplane"
    head = head_of(path, _PEEK)
    if head.startswith(b"SQLite format 3\x00"):
        return "nsys"
    if not head.strip():
        return "kineto" if ".json" in path.name else None
    if _XLA.search(head) and b'"cat": "kernel"' not in head:
        return "xla"
    return "kineto" if _EVENTS.search(head) or _long_header(head) else None


def _long_header(head: bytes) -> bool:
    """A profile whose metadata alone is longer than what was looked at."""
    return len(head) >= _PEEK and b'"schemaVersion"' in head
