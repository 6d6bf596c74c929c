"""The connection to the database: how SQLite is set up, transactions, and database errors in plain words."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlmodel import Session

from runs.errors import BadInputError
from runs.store.errors import StoreError

BUSY_TIMEOUT_MS = 10_000
_WRITE, _QUICK, _DURABLE = "ccl_write", "NORMAL", "FULL"


class Database:
    """An engine and the transactions on it. `where` names the store in messages; `writable` is who may write."""

    def __init__(self, url: str, where: str, *, writable: bool, frozen: bool = False) -> None:
        """Prepare to connect to `url`; `frozen` opens an SQLite file that cannot change (a read-only disk).

        Raises:
            BadInputError: the URL is none, or its driver is not installed.
        """
        self.where = where
        self.writable = writable
        self.engine = _engine(url, frozen=frozen)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._quick = self.engine.execution_options(**{_WRITE: _QUICK})
        self._durable = self.engine.execution_options(**{_WRITE: _DURABLE})
        self._mutex = threading.RLock()
        self._local = threading.local()
        event.listen(self.engine, "begin", _begin)
        if self.is_sqlite:
            event.listen(self.engine, "connect", self._set_up)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Session]:
        """A session whose changes are committed together at the end, or not at all. Nested ones join the outer one.

        What is committed survives the end of the process, however it ends. `durable` also waits for the disk, so that
        it survives a power failure, with all that was committed before; without, the system writes it a little later.

        Raises:
            StoreError: the store was opened for reading, or the database fails.
        """
        if not self.writable:
            raise StoreError(f"{self.where} was opened for reading", "open it with write=True")
        current = getattr(self._local, "session", None)
        if current is not None:
            yield current
            return
        engine = self._durable if durable else self._quick
        with self._mutex, explained(self.where), Session(engine, expire_on_commit=False) as session:
            self._local.session = session
            try:
                with session.begin():
                    yield session
            finally:
                self._local.session = None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one state of the store; inside `transaction` it is that transaction's."""
        current = getattr(self._local, "session", None)
        if current is not None:
            yield current
            return
        with explained(self.where), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside `transaction`."""
        return getattr(self._local, "session", None) is not None

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _set_up(self, connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself; `_begin` does
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA foreign_keys = ON")
        if self.writable:
            cursor.execute("PRAGMA journal_mode = WAL")
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn database errors inside into `StoreError`s that say what is wrong with `where`."""
    try:
        yield
    except DBAPIError as error:
        raise explain(error.orig, where) from error
    except sqlite3.Error as error:
        raise explain(error, where) from error


def explain(error: BaseException | None, where: str) -> StoreError:
    """The database error in plain words."""
    code = getattr(error, "sqlite_errorcode", None)
    text, hint = _WORDS.get(-1 if code is None else code & 0xFF, ("failed", "see the cause with --debug"))
    return StoreError(f"the store {where} {text}: {error}", hint)


_WORDS = {
    sqlite3.SQLITE_FULL: ("cannot grow, the disk is full", "free space and resume; nothing recorded so far is lost"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore a backup, or save what is left: sqlite3 FILE .recover"),
    sqlite3.SQLITE_NOTADB: ("is no SQLite database", "check --home; restore a backup if the file was overwritten"),
    sqlite3.SQLITE_READONLY: ("cannot be written", "check the permissions of the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that the folder exists and may be read and written"),
    sqlite3.SQLITE_PERM: ("may not be opened", "check the permissions of the file and its folder"),
    sqlite3.SQLITE_BUSY: ("is locked by another program", "close whatever has it open for writing and try again"),
    sqlite3.SQLITE_LOCKED: ("is locked by another program", "close whatever has it open for writing and try again"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written, the disk failed", "check the disk and the kernel's log"),
    sqlite3.SQLITE_CONSTRAINT: ("refused a row", "this is a mistake of the calling code; see it with --debug"),
}


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL, absolute; None for a database in memory or a server.

    Raises:
        BadInputError: `url` is no database URL.
    """
    try:
        parsed = sqlalchemy.make_url(url)
    except ArgumentError as error:
        raise _bad_url(url) from error
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database)).expanduser().absolute()


def _engine(url: str, *, frozen: bool) -> Engine:
    file = sqlite_file(url)
    try:
        if file is None:
            return sqlalchemy.create_engine(url)
        if not frozen:
            return sqlalchemy.create_engine(f"sqlite:///{file}")
        return sqlalchemy.create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
        )
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise _bad_url(url) from error


def _bad_url(url: str) -> BadInputError:
    return BadInputError(
        f"no database can be reached by the URL {url.split('@')[-1]!r}",
        "write for example sqlite:////var/tmp/ccl.sqlite, or install the driver of the database server",
    )


def _begin(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        return
    driver: Any = connection.connection.dbapi_connection
    level = connection.get_execution_options().get(_WRITE)
    if level is None:
        driver.execute("BEGIN")
        return
    driver.execute(f"PRAGMA synchronous = {level}")
    # IMMEDIATE: a writer waits for the lock at once instead of failing when a read turns into a write
    driver.execute("BEGIN IMMEDIATE")
