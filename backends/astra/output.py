"""What ASTRA-sim prints and logs: the figures of every rank, complaints, nodes that never ended, times of operations.

One cycle is one nanosecond. Its "exposed communication" is the wall time less the computation: it counts pipeline
bubbles and host time too, so it is kept under the name of what it is (`not_computing_ns`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LOG_FOLDER, LOG_FILE = "log", "log.log"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (-?\d+) cycles")
_TIME = re.compile(r"sys\[(\d+)\], (Wall|GPU|CPU|Comm|Remote mem) time: (\d+)")
_OVERLAP = re.compile(r"sys\[(\d+)\], Total compute-communication overlap: (\d+)")
_PEAK = re.compile(r"sys\[(\d+)\] peak memory usage: ([\d.]+) (\w+)")
_CRITICAL = re.compile(r"\[critical\]\s*(.*)")
_UNRELEASED = re.compile(r"Hardware Resource sys\.id=(\d+) has unreleased nodes")
_STUCK = re.compile(r"(?:CPU|GPU comp|GPU comm) node id: (\d+)")
_UNFINISHED = re.compile(r"Node (\d+) did not finish")
_OPERATION = re.compile(
    r"(issue|callback),sys->id=(\d+), tick=(\d+), node->id=(\d+), node->name=(.*), node->type=(\d+)"
)
_ERRORS = re.compile(
    r"(terminate called.*|what\(\):.*|.*Assertion `.*' failed.*|NS_(?:ASSERT|ABORT|FATAL).*|\[?[Ee]rror\]?[: ].*|"
    r".*(?:not supported in|cannot open|Unable to open|Invalid command-line|Expected bool_list|Fail to setup).*)"
)
_BULK = ",sys->id="
"""What the lines of single operations hold, and no other line does."""
_SHOWN = 200
_SWALLOWED = "a callable is removed before call"
_NAMES = {"Wall": "wall_ns", "GPU": "compute_ns", "CPU": "host_ns", "Comm": "comm_ns", "Remote mem": "memory_ns"}
_BYTES = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass
class RankReport:
    """What one rank reported, in ns; None where the program did not say.

    `finished_ns` is the line that counts. `comm_ns` is the union of its communications, `not_computing_ns` what the
    program calls exposed communication, `overlap_ns` compute + comm - wall where that is above zero.
    """

    finished_ns: int | None = None
    not_computing_ns: int | None = None
    wall_ns: int | None = None
    compute_ns: int | None = None
    host_ns: int | None = None
    comm_ns: int | None = None
    memory_ns: int | None = None
    overlap_ns: int | None = None
    peak_memory_bytes: float | None = None


@dataclass(frozen=True)
class Operation:
    """One node as it ran on one rank, ns from the start."""

    rank: int
    node: int
    name: str
    kind: int
    start: int
    end: int


@dataclass
class Output:
    """Everything read from one run.

    `complaints` are critical and error lines in the order of the files; `swallowed` the exceptions that the program
    dropped and went on after; `stuck` the nodes that never ended, as (rank, node). `last_words` is the last line on
    its error stream.
    """

    ranks: dict[int, RankReport] = field(default_factory=lambda: defaultdict(RankReport))
    complaints: list[str] = field(default_factory=list)
    swallowed: list[str] = field(default_factory=list)
    stuck: list[tuple[int, int]] = field(default_factory=list)
    last_words: str = ""

    @property
    def finished(self) -> dict[int, RankReport]:
        """The ranks that reported their end."""
        return {rank: report for rank, report in sorted(self.ranks.items()) if report.finished_ns is not None}


def parse_output(lines: Iterable[str]) -> Output:
    """Read what the program printed, line by line; the same line twice counts once."""
    found, stuck_on = Output(), 0
    for line in lines:
        if _BULK in line:
            continue
        text = _COLOUR.sub("", line).strip()
        if owner := _UNRELEASED.search(text):
            stuck_on = int(owner[1])
        if node := _STUCK.search(text) or _UNFINISHED.search(text):
            _append(found.stuck, (stuck_on, int(node[1])))
        elif not _figure(found, text):
            _complaint(found, text)
    return found


def last_words(lines: Iterable[str]) -> str:
    """The last line that says something, cut to what a message can hold."""
    said = ""
    for line in lines:
        said = _COLOUR.sub("", line).strip() or said
    return said[:_SHOWN]


def _figure(found: Output, text: str) -> bool:
    if match := _FINISHED.search(text):
        report = found.ranks[int(match[1])]
        report.finished_ns, report.not_computing_ns = int(match[2]), int(match[3])
    elif match := _TIME.search(text):
        setattr(found.ranks[int(match[1])], _NAMES[match[2]], int(match[3]))
    elif match := _OVERLAP.search(text):
        found.ranks[int(match[1])].overlap_ns = int(match[2])
    elif match := _PEAK.search(text):
        found.ranks[int(match[1])].peak_memory_bytes = float(match[2]) * _BYTES.get(match[3], 1)
    return bool(match)


def _complaint(found: Output, text: str) -> None:
    critical = _CRITICAL.search(text)
    if critical and _SWALLOWED in critical[1]:
        _append(found.swallowed, critical[1].partition(_SWALLOWED)[2].strip())
    elif critical:
        _append(found.complaints, critical[1].strip("! "))
    elif error := _ERRORS.search(text):
        _append(found.complaints, error[1])


def _append(items: list[str] | list[tuple[int, int]], item: str | tuple[int, int]) -> None:
    if item and item not in items:
        items.append(item)  # type: ignore[arg-type]


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, none where it does not exist; bytes that are no text are replaced."""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from stream


def log_files(folder: Path) -> list[Path]:
    """The log files of a run, oldest first. The program keeps the last eleven files of 10 MiB each."""
    rotated = sorted(folder.glob(f"{Path(LOG_FILE).stem}.*.log"), key=_age, reverse=True)
    return [*rotated, *([folder / LOG_FILE] if (folder / LOG_FILE).is_file() else [])]


def _age(path: Path) -> int:
    middle = path.name.split(".")[1]
    return int(middle) if middle.isdigit() else 0


def parse_operations(lines: Iterable[str]) -> tuple[list[Operation], int]:
    """The operations in `issue` and `callback` lines, by start; and how many lines had no counterpart.

    A callback without an issue means that the log lost its beginning, an issue without a callback that the node never
    ended.
    """
    begun: dict[tuple[int, int], int] = {}
    found, alone = list[Operation](), 0
    for line in lines:
        match = _OPERATION.search(line) if _BULK in line else None
        if match is None:
            continue
        rank, tick, node = int(match[2]), int(match[3]), int(match[4])
        if match[1] == "issue":
            begun[rank, node] = tick
        elif (start := begun.pop((rank, node), None)) is None:
            alone += 1
        else:
            found.append(Operation(rank, node, match[5], int(match[6]), start, tick))
    return sorted(found, key=lambda one: (one.start, one.end, one.rank, one.node)), alone + len(begun)
