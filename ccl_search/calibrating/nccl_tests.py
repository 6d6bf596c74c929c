"""What nccl-tests prints: which collective ran over which ranks of which hosts, and how long each size took.

Versions differ in their columns (`redop` and `root` came later, `error` became `#wrong`), in the lines that name ranks
and the test, and in what mpirun or srun put before each line; the header of the table decides how a row is read.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runs.errors import BadInputError

_HINT = "give the whole text that nccl-tests printed, one file or several (docs/calibration.md)"
_TAG = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\d+:(?=\s))")
_RANK = re.compile(r"Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s*(.*)")
_NAMED = re.compile(r"\b(\w+?)_perf(?:_mpi)?\b")
_VERSION = re.compile(r"nccl-tests version (\S+)")
_BEGINS = re.compile(r"nThread\s+\d+\s+nGpus\s+\d+\s+minBytes")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)")
_ROW = re.compile(r"^\d+\s+\d+\s+[a-z]")
_NOTHING = ("N/A", "-")
KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
}
"""Tests that say something about links, and what the collective is called here."""
OTHERS = ("reduce", "gather", "scatter", "hypercube", "alltoallv")
"""Tests that are left out: no simulated step runs them."""
_CLEAR_GB_S = 1.0
"""Bandwidth from which the printed two decimals are exact enough to check a row."""


@dataclass(frozen=True)
class Rank:
    """One rank of a test: its number, its group of ranks that run together, its host and device there."""

    number: int
    group: int
    host: str
    device: int
    model: str = ""


@dataclass(frozen=True)
class SizeRow:
    """One size of a test: bytes as nccl-tests counts them, and the seconds (out of place, in place where printed)."""

    nbytes: int
    seconds: tuple[float, ...]
    line: int

    @property
    def median(self) -> float:
        """Seconds of one collective."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class NcclTest:
    """One test of a file. `kind` is the collective (None: one that is left out, by `name`)."""

    source: str
    line: int
    name: str
    kind: str | None
    ranks: tuple[Rank, ...]
    rows: tuple[SizeRow, ...]
    version: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the order of their first ranks."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))

    @property
    def groups(self) -> tuple[tuple[Rank, ...], ...]:
        """Ranks that run one collective, group by group."""
        names = dict.fromkeys(rank.group for rank in self.ranks)
        return tuple(tuple(rank for rank in self.ranks if rank.group == name) for name in names)

    def describe(self) -> str:
        """As `all_reduce over 16 ranks on 2 hosts`."""
        return f"{self.name} over {len(self.ranks)} ranks on {len(self.hosts)} host{'s' * (len(self.hosts) > 1)}"


@dataclass
class _Open:
    """A test while it is read."""

    line: int
    name: str | None
    version: str | None
    columns: tuple[str, ...] = ()
    ranks: list[Rank] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def is_nccl_text(text: str) -> bool:
    """Whether a file is what nccl-tests printed."""
    return "algbw" in text and "busbw" in text


def read_text(text: str, source: str) -> list[NcclTest]:
    """Every test of `text`; `source` names the file in messages, and the test where nothing else does.

    Raises:
        BadInputError: there is none, one is truncated, found wrong values, or a row cannot be read; the message has
            the file and the line.
    """
    found = [_closed(one, end, source) for one, end in _tests(text, source)]
    if not found:
        raise BadInputError(f"{source} holds no test of nccl-tests (no '# nThread … minBytes' line)", _HINT)
    return found


def _tests(text: str, source: str) -> Iterator[tuple[_Open, int]]:
    one: _Open | None = None
    name = version = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = _TAG.sub("", raw).strip()
        if one is None or not one.columns:
            name = _named(line) or name
            version = found.group(1) if (found := _VERSION.search(line)) else version
        if _BEGINS.search(line):
            if one is not None:
                raise _truncated(source, one)
            one = _Open(number, name, version)
        elif one is not None and "Avg bus bandwidth" in line:
            yield one, number
            one = name = version = None
        elif one is not None:
            _take(one, line, number, source)
    if one is not None:
        raise _truncated(source, one)


def _named(line: str) -> str | None:
    """The test that a command line or a header names; the last word that ends in `_perf` counts."""
    found = [name.rpartition("/")[2] for name in _NAMED.findall(line)]
    return next((name for name in reversed(found) if name in KINDS or name in OTHERS), None)


def _take(one: _Open, line: str, number: int, source: str) -> None:
    plain = line.lstrip("# ")
    if rank := _RANK.search(line):
        one.ranks.append(Rank(int(rank[1]), int(rank[2] or 0), rank[3], int(rank[4]), rank[5].strip()))
    elif plain.split()[:2] == ["size", "count"]:
        one.columns = tuple(plain.split())
    elif bounds := _BOUNDS.search(line):
        if int(bounds[1]):
            raise BadInputError(
                f"{source}:{number}: {bounds[1]} values were wrong",
                "times of a collective that fails count for nothing",
            )
    elif _ROW.match(line):
        one.rows.append((number, line.split()))


def _truncated(source: str, one: _Open) -> BadInputError:
    return BadInputError(
        f"{source}: the test that begins in line {one.line} is truncated: it has no 'Avg bus bandwidth' line", _HINT
    )


def _closed(one: _Open, end: int, source: str) -> NcclTest:
    if not one.columns:
        raise BadInputError(f"{source}:{one.line}: the test has no table", _HINT)
    if len(one.ranks) < 2:
        raise BadInputError(
            f"{source}:{one.line}: the test names {len(one.ranks)} ranks ('# Rank … on HOST'): nothing crosses a link",
            "keep the 'Using devices' lines, and run on two devices or more",
        )
    one.ranks.sort(key=lambda rank: rank.number)
    rows = [_row(one, number, cells, source) for number, cells in one.rows]
    kept = tuple(row for row in rows if row.nbytes > 0)
    name = one.name or _named_by_file(source) or _inferred(one, kept, source)
    test = NcclTest(source, one.line, name, KINDS.get(name), tuple(one.ranks), kept, one.version)
    _check_bandwidths(test, one)
    return test


def _row(one: _Open, number: int, cells: Sequence[str], source: str) -> SizeRow:
    where = f"{source}:{number}"
    if len(cells) != len(one.columns):
        raise BadInputError(f"{where}: a row of {len(cells)} cells under {len(one.columns)} columns: truncated", _HINT)
    seconds = []
    for place, column in enumerate(one.columns):
        cell = cells[place]
        if column == "time" and cell not in _NOTHING:
            seconds.append(_number(cell, where, column) * 1e-6)
        elif column == "#wrong" and cell not in _NOTHING and _number(cell, where, column):
            raise BadInputError(
                f"{where}: {cell} values were wrong", "times of a collective that fails count for nothing"
            )
    if not seconds or not all(time > 0 for time in seconds):
        raise BadInputError(f"{where}: no time above zero", _HINT)
    return SizeRow(int(cells[0]), tuple(seconds), number)


def _number(cell: str, where: str, column: str) -> float:
    try:
        value = float(cell.rstrip("*"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInputError(f"{where}: {column} is {cell!r}, no number", _HINT)
    return value


def _named_by_file(source: str) -> str | None:
    stem = Path(source).stem.lower()
    return next((name for name in sorted((*KINDS, *OTHERS), key=len, reverse=True) if name in stem), None)


def _inferred(one: _Open, rows: Sequence[SizeRow], source: str) -> str:
    """The test that prints these bus bandwidths, where only one does."""
    count = len(one.ranks) / max(1, len({rank.group for rank in one.ranks}))
    ratios = [bus / alg for alg, bus in _bandwidths(one) if alg >= _CLEAR_GB_S]
    reduces = "redop" in one.columns and any(cells[3] != "none" for _, cells in one.rows)
    if ratios and reduces:
        ratio = statistics.median(ratios)
        if math.isclose(ratio, 2 * (count - 1) / count, rel_tol=0.05):
            return "all_reduce"
        if math.isclose(ratio, (count - 1) / count, rel_tol=0.05):
            return "reduce_scatter"
    raise BadInputError(
        f"{source}:{one.line}: which collective this is cannot be told", "name it in the file's name, as alltoall.txt"
    )


def _bandwidths(one: _Open) -> list[tuple[float, float]]:
    """Algorithm and bus bandwidths of all rows in GB/s."""
    places = [place for place, column in enumerate(one.columns) if column == "algbw"]
    pairs = [(cells[place], cells[place + 1]) for _, cells in one.rows for place in places]
    return [(float(alg), float(bus)) for alg, bus in pairs if alg not in _NOTHING and bus not in _NOTHING]


def bus_share(kind: str, count: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md): what one link carries of the size."""
    return {"all_reduce": 2 * (count - 1) / count, "broadcast": 1.0, "send_recv": 1.0}.get(kind, (count - 1) / count)


def _agree(printed: float, meant: float, rounding: float) -> bool:
    """Whether two figures are the same but for two decimals and a time of four digits."""
    return abs(printed - meant) <= rounding + 0.002 * meant


def _check_bandwidths(test: NcclTest, one: _Open) -> None:
    """Size over time has to be the printed bandwidth, and the ranks named have to be those the bus bandwidth is for."""
    if test.kind is None:
        return
    share = bus_share(test.kind, len(test.groups[0]))
    for (number, cells), place in ((row, one.columns.index("algbw")) for row in one.rows):
        if cells[place] in _NOTHING or float(cells[place]) < _CLEAR_GB_S:
            continue
        printed, bus = float(cells[place]), float(cells[place + 1])
        meant = int(cells[0]) / float(cells[one.columns.index("time")]) * 1e-3
        if not _agree(printed, meant, 0.01) or not _agree(bus, printed * share, 0.01 * (1 + share)):
            raise BadInputError(
                f"{test.source}:{number}: {cells[0]} bytes at {bus} GB/s of bus bandwidth is no {test.describe()}",
                "sizes in bytes, times in microseconds; every rank of the test needs its '# Rank' line",
            )
