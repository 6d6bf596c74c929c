"""Rows as a file: csv, json or parquet, by its ending."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runs.errors import BadInputError

ENDINGS = (".csv", ".json", ".parquet")


def kind_of(path: Path) -> str:
    """`csv`, `json` or `parquet`.

    Raises:
        BadInputError: the ending is none of them, the file exists, or its folder does not.
    """
    if path.suffix not in ENDINGS:
        raise BadInputError(f"--out {path} has no ending that says what to write", f"use {', '.join(ENDINGS)}")
    if path.exists():
        raise BadInputError(f"{path} exists already", "name a new file with --out")
    if not path.parent.is_dir():
        raise BadInputError(f"there is no folder {path.parent}", "make it, or name another file with --out")
    return path.suffix.lstrip(".")


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the rows, which all have the same keys.

    Raises:
        BadInputError: as `kind_of`, the file cannot be written, or parquet is asked for without pyarrow.
    """
    kind = kind_of(path)
    try:
        if kind == "csv":
            with path.open("w", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        elif kind == "json":
            path.write_text(json.dumps(list(rows), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        else:
            _write_parquet(rows, path)
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror}", "check the path given to --out") from error


def _write_parquet(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow.parquet import write_table  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise BadInputError(
            "a .parquet file needs pyarrow, which is not installed",
            "install the extra: pip install 'ccl-search[parquet]'; csv and json need nothing",
        ) from error
    write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), path)
