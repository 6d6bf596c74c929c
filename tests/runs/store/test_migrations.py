"""Migrations: forward, one transaction each, and never a store from the future."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.engine import Connection
from sqlmodel import SQLModel

from runs.store import Store, StoreError, tables
from runs.store.migrations import MIGRATIONS, Migration
from tests.runs.store import make


def _add_tags(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT 'none'")
    connection.exec_driver_sql("CREATE TABLE tags (name VARCHAR(20))")


def _break(connection: Connection) -> None:
    _add_tags(connection)
    connection.exec_driver_sql("INSERT INTO no_such_table VALUES (1)")


NEXT = len(MIGRATIONS) + 1
SECOND = (*MIGRATIONS, Migration(NEXT, "tags of runs", _add_tags))
BROKEN = (*MIGRATIONS, Migration(NEXT, "tags of runs", _break))
OWN = [
    (1, "first schema", "0.1.0"),
    (2, "decisions of screens", "0.1.0"),
    (3, "when trace files were dropped", "0.1.0"),
]
VERSIONS = "SELECT version, name, product_version FROM schema_migrations ORDER BY version"


@pytest.fixture
def run_id(home: Path) -> str:
    """A run in a store of the first schema."""
    with Store.open(home, write=True, metric_columns=["avg_step_time"], product_version="0.1.0") as store:
        run_id = store.create_run(make.new_run())
        make.add_success(store, run_id, 1.0)
    return run_id


def test_a_new_store_records_its_schema(home: Path, run_id: str) -> None:
    assert make.raw(home, VERSIONS) == OWN


def test_a_later_migration_keeps_rows_and_views(home: Path, run_id: str) -> None:
    with Store.open(home, write=True, product_version="0.2.0", known=SECOND) as store:
        assert store.trial(run_id, 0).values == {"avg_step_time": 1.0}
        assert store.query("SELECT avg_step_time FROM leaderboard") == [{"avg_step_time": 1.0}]
    assert make.raw(home, VERSIONS) == [*OWN, (NEXT, "tags of runs", "0.2.0")]
    assert make.raw(home, "SELECT tags FROM runs") == [("none",)]


def test_migrations_are_applied_once(home: Path, run_id: str) -> None:
    for _ in range(2):
        Store.open(home, write=True, known=SECOND).close()
    assert len(make.raw(home, VERSIONS)) == NEXT


def test_a_new_store_goes_through_all_migrations(home: Path) -> None:
    Store.open(home, write=True, known=SECOND).close()
    assert [row[0] for row in make.raw(home, VERSIONS)] == list(range(1, NEXT + 1))


def test_a_reader_brings_an_older_store_up(home: Path, run_id: str) -> None:
    with Store.open(home, known=SECOND) as reader:
        assert reader.query("SELECT id, tags FROM runs") == [{"id": run_id, "tags": "none"}]
    assert len(make.raw(home, VERSIONS)) == NEXT


def test_a_migration_that_fails_leaves_no_trace(home: Path, run_id: str) -> None:
    before = make.raw(home, "SELECT sql FROM sqlite_master ORDER BY name")
    with pytest.raises(StoreError, match="no_such_table"):
        Store.open(home, write=True, known=BROKEN)
    assert make.raw(home, "SELECT sql FROM sqlite_master ORDER BY name") == before
    assert make.raw(home, VERSIONS) == OWN
    with Store.open(home, write=True) as store:
        assert store.trial(run_id, 0).score == -1.0


def test_a_migration_that_cannot_be_recorded_is_undone(home: Path, run_id: str) -> None:
    def record_itself(connection: Connection) -> None:
        _add_tags(connection)
        connection.exec_driver_sql(f"INSERT INTO schema_migrations VALUES ({NEXT}, 'mine', '', '')")

    with pytest.raises(StoreError, match="UNIQUE constraint failed"):
        Store.open(home, write=True, known=(*MIGRATIONS, Migration(NEXT, "tags of runs", record_itself)))
    assert [row[0] for row in make.raw(home, VERSIONS)] == list(range(1, NEXT))
    assert make.raw(home, "SELECT count(*) FROM sqlite_master WHERE name = 'tags'") == [(0,)]


@pytest.mark.parametrize("write", [True, False])
def test_a_store_of_a_newer_product_is_refused(home: Path, run_id: str, write: bool) -> None:
    Store.open(home, write=True, known=SECOND).close()
    with pytest.raises(
        StoreError, match=rf"newer ccl-search \(schema {NEXT}; this one knows up to {NEXT - 1}\)"
    ) as caught:
        Store.open(home, write=write)
    assert "upgrade" in caught.value.hint
    Store.open(home, write=True, known=SECOND).close()


def test_the_classes_are_the_tables(store: Store) -> None:
    inspector = sqlalchemy.inspect(store._database.engine)
    own = [t for t in SQLModel.metadata.tables.values() if _class_of(t.name).__module__ == tables.__name__]
    assert {table.name for table in own} == set(inspector.get_table_names())
    for table in own:
        found = {column["name"]: column for column in inspector.get_columns(table.name)}
        assert list(found) == [column.name for column in table.columns], table.name
        for column in table.columns:
            nullable = found[column.name]["nullable"]
            assert nullable == bool(column.nullable), f"{table.name}.{column.name}"
            assert _family(found[column.name]["type"]) == _family(column.type), f"{table.name}.{column.name}"
        keys = {
            (key["constrained_columns"][0], key["referred_table"]) for key in inspector.get_foreign_keys(table.name)
        }
        assert keys == {(key.parent.name, key.column.table.name) for key in table.foreign_keys}, table.name


def _class_of(table: str) -> type:
    return next(m.class_ for m in SQLModel._sa_registry.mappers if m.local_table.name == table)


def _family(kind: sqlalchemy.types.TypeEngine[object]) -> str:
    families = (sqlalchemy.Boolean, sqlalchemy.Integer, sqlalchemy.Float, sqlalchemy.String)
    plain = getattr(kind, "impl", kind)  # sqlmodel wraps its texts
    return next(family.__name__ for family in families if isinstance(plain, family))
