"""`Store`: opening and closing the record of all runs, its folders, plain SQL, checks and backups."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from sqlalchemy import text

from runs.errors import BadInputError
from runs.store.engine import Database, explain, explained, sqlite_file
from runs.store.errors import StoreError
from runs.store.home import refuse_network, resolve_home, resolve_url
from runs.store.ledger import SqlLedger
from runs.store.lock import WriterLock, holder, is_held
from runs.store.migrations import MIGRATIONS, Migration, migrate, refuse_newer, schema_version, update_views
from runs.store.part import run_row
from runs.store.read_part import ReadPart
from runs.store.run_part import RunPart
from runs.store.screening_part import ScreeningPart
from runs.store.trial_part import TrialPart


class Store(RunPart, TrialPart, ScreeningPart, ReadPart):
    """The record of all runs. Made by `Store.open`; a context manager; `runs.store` lists all methods."""

    def __init__(self, database: Database, home: Path, url: str, lock: WriterLock | None, lock_path: Path) -> None:
        super().__init__(database, home)
        self.url = url
        self.ledger = SqlLedger(database, home)
        self._lock = lock
        self._lock_path = lock_path
        self._found: set[str] = set()

    @classmethod
    def open(
        cls,
        home: Path | None = None,
        url: str | None = None,
        *,
        write: bool = False,
        metric_columns: Sequence[str] | None = None,
        product_version: str = "",
        known: Sequence[Migration] = MIGRATIONS,
    ) -> Store:
        """Open the store: files at `home` (see `resolve_home`), the database there or at `url` (see `resolve_url`).

        To write is to be the only writer: folders and tables are made, migrations applied, runs left running by a
        process that died become interrupted, and the views get a column per metric of `metric_columns` (None: as
        they are). A reader makes nothing; it only applies migrations to an older store.

        Raises:
            BadInputError: nothing to read there, a network file system, or no usable URL.
            StoreLockedError: another process writes.
            StoreError: the database is damaged, foreign, from a newer product, or cannot be written.
        """
        place = resolve_home(home)
        address = resolve_url(place, url)
        file = sqlite_file(address)
        lock_path = place / "writer.lock" if file is None else file.with_name(file.name + ".lock")
        if file is not None:
            refuse_network(file)
        if not write:
            return cls._open_reader(place, address, file, lock_path, product_version, known)
        _make_folders(place, lock_path.parent)
        lock = WriterLock(lock_path)
        try:
            database = Database(address, str(file or place), writable=True)
            store = cls(database, place, address, lock, lock_path)
            migrate(database, known, product_version)
            update_views(database, metric_columns)
            if file is not None:  # on a server, runs of other machines may be alive
                store.mark_interrupted()
        except BaseException:
            lock.release()
            raise
        return store

    @classmethod
    def _open_reader(
        cls, home: Path, url: str, file: Path | None, lock_path: Path, version: str, known: Sequence[Migration]
    ) -> Store:
        if file is not None and not file.is_file():
            raise BadInputError(f"there is no store at {file}", "start a search first, or give --home")
        frozen = file is not None and _is_frozen(file, lock_path)
        database = Database(url, str(file or home), writable=False, frozen=frozen)
        with database.reading() as session:
            schema = schema_version(session, database.where)
        refuse_newer(schema, known, database.where)
        if schema == 0:
            raise BadInputError(f"the store at {database.where} is empty", "start a search first, or give --home")
        if schema < max(migration.version for migration in known):
            cls.open(home, url, write=True, product_version=version, known=known).close()
        return cls(database, home, url, None, lock_path)

    def close(self) -> None:
        """Close the database and free the writer lock; a second call does nothing."""
        self._database.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def run_dir(self, run_id: str) -> Path:
        """The folder of a run; who may write makes it when it is missing.

        Raises:
            BadInputError: there is no such run.
            StoreError: the folder cannot be made.
        """
        if run_id not in self._found:  # a run that was there stays
            with self._database.reading() as session:
                run_row(session, run_id)
            self._found.add(run_id)
        return self._folder(self.home / "runs" / run_id)

    def trial_dir(self, run_id: str, number: int) -> Path:
        """The folder of a trial; made and raising as that of a run."""
        return self._folder(self.run_dir(run_id) / "trials" / str(number))

    def _folder(self, folder: Path) -> Path:
        if self._database.writable:
            _make_folders(folder)
        return folder

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a plain SQL query, read only, `?` standing for parameters; for users, never for the loop.

        Raises:
            BadInputError: the database refuses the query.
        """
        file = sqlite_file(self.url)
        if file is None:
            return self._query_server(sql, parameters)
        address = f"{file.as_uri()}?mode=ro" + ("&immutable=1" if _is_frozen(file, self._lock_path) else "")
        with explained(self._database.where), closing(sqlite3.connect(address, uri=True)) as connection:
            try:
                cursor = connection.execute(sql, tuple(parameters))
                names = [column[0] for column in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor]
            except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
                raise _bad_query(error) from error

    def _query_server(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        with self._database.reading() as session:
            result = session.connection().exec_driver_sql(sql, tuple(parameters))
            found = [dict(row) for row in result.mappings()] if result.returns_rows else []
            session.rollback()
            return found

    def check(self) -> list[str]:
        """What is wrong with the database by its own word; empty when it is sound. Reads all of it."""
        if not self._database.is_sqlite:
            return []
        with self._database.reading() as session:
            connection = session.connection()
            found = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
            loose = [f"{row[0]} row {row[1]}" for row in connection.execute(text("PRAGMA foreign_key_check"))]
        return [line for line in found if line != "ok"] + [f"points to nothing: {line}" for line in loose]

    def backup(self, path: Path) -> None:
        """Copy the database, as it is at this moment, to the new file `path`; also while a search writes.

        Raises:
            BadInputError: `path` exists, or the database is a server's.
            StoreError: the copy cannot be written; nothing of it stays.
        """
        file = sqlite_file(self.url)
        if file is None:
            raise BadInputError("only an SQLite file can be copied", "use the database server's own backup")
        if path.exists():
            raise BadInputError(f"{path} exists already", "give a new file for the backup")
        try:
            source = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
            with closing(source), closing(sqlite3.connect(path)) as target:
                source.backup(target)
        except sqlite3.Error as error:
            path.unlink(missing_ok=True)
            raise explain(error, str(path)) from error

    def writer_pid(self) -> int | None:
        """The process that writes to the store now, this one included; None when there is none."""
        return holder(self._lock_path)


def _make_folders(*folders: Path) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot make the folder {folder}: {error.strerror}", "check its permissions, or use another --home"
            ) from error


def _is_frozen(file: Path, lock: Path) -> bool:
    """An SQLite file in a folder that cannot be written, with no writer and nothing left in a write-ahead log."""
    log = file.with_name(file.name + "-wal")
    return not os.access(file.parent, os.W_OK) and not is_held(lock) and not (log.exists() and log.stat().st_size)


def _bad_query(error: sqlite3.Error) -> BadInputError:
    return BadInputError(f"the query cannot be answered: {error}", "see the tables and views in docs/store.md")
