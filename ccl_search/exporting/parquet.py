"""A run as a Parquet file, by pyarrow (the extra `parquet`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ccl_search.exporting.tables import SCHEMA_VERSION, columns, rows
from runs.errors import BadInputError

if TYPE_CHECKING:
    from runs.store import RunRecord, Store


def write(store: Store, run: RunRecord, path: Path) -> None:
    """Write the rows, each column with its documented type whatever values there are.

    Raises:
        BadInputError: pyarrow is not installed.
    """
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from pyarrow.parquet import write_table  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise BadInputError(
            "--format parquet needs pyarrow, which is not installed",
            "install the extra: pip install 'ccl-search[parquet]'; csv and json need nothing",
        ) from error
    kinds = {"str": pyarrow.string(), "int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    fields = [pyarrow.field(name, kinds[kind]) for name, kind in columns(run).items()]
    about = {b"ccl_search_schema_version": str(SCHEMA_VERSION).encode(), b"run_id": run.id.encode()}
    table = pyarrow.Table.from_pylist(rows(store, run), pyarrow.schema(fields, metadata=about))
    write_table(table, path)
