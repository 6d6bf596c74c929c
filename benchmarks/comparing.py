"""What the comparisons with recorded rows share: figures of errors, and a command line around parts of rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

Data = TypeVar("Data")


class Compared(Protocol):
    """A row of a reference with our answer; as text it is one line with both."""

    @property
    def error(self) -> float:
        """|ours / reference - 1|."""
        ...


Row = TypeVar("Row", bound=Compared)


def percentile(errors: Sequence[float], share: float) -> float:
    """The smallest error that `share` of all do not exceed."""
    ordered = sorted(errors)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 100 * len(ordered)) // 100) - 1))]


def cells(errors: Sequence[float]) -> str:
    """Median, 95 % and worst, as cells of a table."""
    return " | ".join(f"{100 * figure:.2f} %" for figure in (median(errors), percentile(errors, 0.95), max(errors)))


def main(
    doc: str | None,
    parts: Mapping[str, Callable[[Data], Iterable[Row]]],
    opened: Callable[[Path], AbstractContextManager[Data]],
    table: Callable[[list[Row]], str],
) -> None:
    """Read the command line, run the parts asked for, print their table and the worst rows."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    parser.add_argument("--data", type=Path, required=True, help="folder of the reference results")
    parser.add_argument("--table", type=Path, help="write the markdown table here")
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst rows to print")
    parser.add_argument("--only", choices=sorted(parts), action="append", help="only this part (repeatable)")
    asked: Any = parser.parse_args()
    begun = time.perf_counter(), time.process_time()
    with opened(asked.data) as data:
        rows = [row for name in asked.only or parts for row in parts[name](data)]
    text = table(rows)
    print(text)
    for row in sorted(rows, key=lambda row: -row.error)[: asked.worst]:
        print(row)
    took, spent = time.perf_counter() - begun[0], time.process_time() - begun[1]
    print(f"{len(rows)} rows in {took:.0f} s, {spent:.0f} s of processor time")
    if asked.table:
        asked.table.write_text(text, encoding="utf-8")
