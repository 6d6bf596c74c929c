"""Exporting a run: tables (csv, parquet), one JSON document, a folder of benchmark entries, an Optuna study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runs.errors import BadInputError

if TYPE_CHECKING:
    from runs.store import Store

FORMATS = ("csv", "json", "parquet", "entries", "optuna")
TEXT_FORMATS = ("csv", "json")


def text_of(store: Store, reference: str, kind: str) -> str:
    """The run as text, for the formats that are text.

    Raises:
        BadInputError: there is no such run.
    """
    from ccl_search.exporting import tables

    run = store.run(reference)
    return tables.as_csv(store, run) if kind == "csv" else tables.as_json(store, run)


def write(store: Store, reference: str, kind: str, output: Path) -> None:
    """Write the run to `output`, which must not exist; nothing stays there when it fails.

    Raises:
        BadInputError: there is no such run or format, `output` exists or cannot be written, or a library is missing.
    """
    if kind not in FORMATS:
        raise BadInputError(f"there is no format {kind!r}", f"formats: {', '.join(FORMATS)}")
    run = store.run(reference)
    if output.exists() or output.is_symlink():
        raise BadInputError(f"{output} exists already", "name a new file or folder with --output")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _write(store, run.id, kind, output)
    except OSError as error:
        raise BadInputError(f"cannot write {output}: {error.strerror}", "check the path given to --output") from error


def _write(store: Store, run_id: str, kind: str, output: Path) -> None:
    from ccl_search.exporting import entries, parquet, study

    partial = output.with_name(f".{output.name}.partial")
    run = store.run(run_id)
    try:
        if kind in TEXT_FORMATS:
            partial.write_text(text_of(store, run_id, kind), encoding="utf-8", newline="")
        elif kind == "parquet":
            parquet.write(store, run, partial)
        elif kind == "optuna":
            study.write(store, run, partial)
        else:
            entries.write(store, run, partial)
        partial.rename(output)
    finally:
        entries.remove(partial)
