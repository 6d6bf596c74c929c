"""How commands speak: tables and notes for people on stderr, one JSON document on stdout with `--json`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        envvar="CCL_SEARCH_HOME",
        show_default="./ccl-runs",
        help="Folder that keeps the store and the trials' files.",
    ),
]


_PIPED_WIDTH = 200
_SHORT = {
    "micro_batch_size": "mbs",
    "activation_checkpointing": "recompute",
    "pipeline_schedule": "schedule",
    "sequence_parallel": "sp",
    "zero_stage": "zero",
    "dp_shard": "shard",
    "dp_replicate": "replicas",
    "collective_algorithm": "algorithm",
    "collective_protocol": "protocol",
    "max_num_batched_tokens": "tokens",
    "max_num_seqs": "seqs",
}


def short(knob: str) -> str:
    """A knob's name as a column head."""
    return _SHORT.get(knob, knob)


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`; `plural` is for a noun that takes no `s`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def console() -> Console:
    """A console on stderr that takes text as it is; wide where stderr is no terminal, for logs and pipes."""
    from rich.console import Console

    found = Console(stderr=True, highlight=False, markup=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = Console(stderr=True, highlight=False, markup=False, width=_PIPED_WIDTH)
    return found


def print_json(document: Any) -> None:
    """Write `document` to stdout as JSON. NaN and infinities are an error, never text that is no JSON."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False, default=str)
    sys.stdout.write("\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stderr. A leading `>` in a column's name aligns it right, a trailing `!` keeps its cells whole."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">").rstrip("!"), justify=justify, no_wrap=column.endswith("!"), overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)
