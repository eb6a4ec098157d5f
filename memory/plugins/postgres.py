"""A PostgreSQL that keeps what lies in SQLite files elsewhere: ``memory.state``, for several machines (psycopg 3).
Its statements are SQLite's; only the marks of values and the words of the tables are put in its own. No message of
the server's gets out of here: it may repeat what somebody said, and a connection's may repeat the password."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from pydantic import SecretStr

from memory.contract.errors import ConfigError, StoreError
from memory.slot.sqlite_file import SqliteLayout

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_CONNECTIONS = 4
_SCHEMA = "memslot"
_MAKING = 0x6D656D73  # key of the lock under which tables are made
_PAUSE_S = 1.0
_DEFAULTS = {
    "application_name": "memslot",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_IN_ITS_WORDS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')": (
        "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
    ),
}
# Its texts hold no NUL. Both characters stand in ids alone: JSON escapes them.
_ESCAPED = (("\x1b", "\x1be"), ("\x00", "\x1b0"))
_WHY = {
    "42501": "its user has no right to do this; GRANT CREATE ON DATABASE to it, or let its owner run this once",
    "25006": "it is read-only, as a standby is; name the primary in memory.state",
    "42P01": "its tables are gone; restore them, or drop the schema memslot and start again",
    "53100": "its disk is full; {full}",
    "53300": "it has no connection left; raise its max_connections",
    "54000": "an id is too long for it; shorten it; {full}",
}


class PostgresServer:
    """The server of a ``postgresql://`` URL, with a few connections that everything opened here shares. ConfigError
    where psycopg is not installed, or cannot read the URL."""

    def __init__(self, url: SecretStr) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict, make_conninfo
        except ImportError:
            raise ConfigError(
                "memory.state: PostgreSQL needs psycopg: pip install 'memslot[postgres]'"
            ) from None
        try:
            given = conninfo_to_dict(url.get_secret_value())
        except psycopg.Error:  # which repeats the URL
            raise ConfigError(
                "memory.state: cannot be read; write postgresql://user:password@host:5432/database"
            ) from None
        host = given.get("host") or "localhost"
        self.place = f"PostgreSQL at {host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"
        self.psycopg = psycopg
        self._texts = _text_loader()
        self._given = make_conninfo("", **{**_DEFAULTS, **given})
        self._room = threading.Semaphore(_CONNECTIONS)
        self._idle: list[psycopg.Connection[Any]] = []
        self._users = 0
        self._counting = threading.Lock()
        self._down: tuple[float, psycopg.Error | None] = (0.0, None)

    def open(self, layout: SqliteLayout) -> PostgresDatabase:
        """Its tables for ``layout``, made where there are none; StoreError where they are of another version."""
        with self._counting:
            self._users += 1
        database = PostgresDatabase(self, layout)
        try:
            database.sync(database.make_tables)
        except BaseException:
            database.close()
            raise
        return database

    def leave(self) -> None:
        """One that was opened is closed; with the last of them so are the connections."""
        with self._counting:
            self._users -= 1
            while not self._users and self._idle:
                self._idle.pop().close()

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        with self._room:
            connection = self._idle.pop() if self._idle else self._connected()
            try:
                yield connection
            finally:
                if connection.closed:  # a server that was started again has closed the others, too
                    while self._idle:
                        self._idle.pop().close()
                elif self._users:
                    self._idle.append(connection)
                else:
                    connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        began = time.monotonic()
        until, why = self._down
        if why is not None and began < until:  # who waits for it holds others up
            raise why.with_traceback(None)
        try:
            connection = self.psycopg.connect(self._given, autocommit=True)
        except self.psycopg.Error as error:
            now = time.monotonic()
            self._down = now + max(_PAUSE_S, now - began), error
            raise
        connection.adapters.register_loader("text", self._texts)
        connection.execute(f"SET search_path TO {_SCHEMA}; SET lock_timeout TO '10s'")
        return connection

    def in_words(self, error: psycopg.Error, layout: SqliteLayout) -> StoreError:
        """What is wrong, as one sentence with the fix, and nothing that the server said."""
        if (why := _WHY.get(error.sqlstate or "")) is None:
            said = str(error) if error.sqlstate is None else ""  # of a connection that was not made
            if "password" in said or "role" in said:
                why = "it refuses this user or password; correct memory.state"
            elif "does not exist" in said:
                why = "it has no such database; create it, or correct memory.state"
            elif isinstance(error, self.psycopg.OperationalError):
                why = "it cannot be reached; start it, or correct memory.state; {full}"
            else:
                why = f"it cannot be used ({type(error).__name__}, {error.sqlstate}); {{full}}"
        return layout.error(f"{self.place}: {why.format(full=layout.full)}")


class PostgresDatabase:
    """The tables of a server that one layout is of, as a :class:`~memory.slot.sqlite_file.JournalDatabase`."""

    on_server = True

    def __init__(self, server: PostgresServer, layout: SqliteLayout) -> None:
        self.closed = False
        self.place = server.place
        self.db = self
        self._server = server
        self._layout = layout
        self._call = threading.local()  # its connection, while it is under way

    def make_tables(self) -> None:
        what, version, tables = self._layout.what, self._layout.version, self._layout.tables
        for words, its in _IN_ITS_WORDS.items():
            tables = tables.replace(words, its)
        with self.transaction():
            self.execute("SELECT pg_advisory_xact_lock(?)", (_MAKING,))
            if self.execute("SELECT to_regclass(?)", (f"{_SCHEMA}.versions",)).fetchone()[0] is None:
                self.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
                self.execute("CREATE TABLE versions (what TEXT PRIMARY KEY, version BIGINT NOT NULL)")
            found = self.execute("SELECT version FROM versions WHERE what = ?", (what,)).fetchone()
            if found is None:
                self.execute(tables)
                self.execute("INSERT INTO versions VALUES (?, ?)", (what, version))
            elif found[0] != version:
                raise self._layout.error(
                    f"{self.place}: its {what} is of version {found[0]}; this memslot reads version {version}; "
                    "use the memslot that made it, or another database"
                )

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._call.connection.execute(_marked(statement), _escaped(values) or None)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Any:
        cursor = self._call.connection.cursor()
        cursor.executemany(_marked(statement), [_escaped(row) for row in rows])
        return cursor

    def transaction(self) -> AbstractContextManager[Any]:
        return self._call.connection.transaction()  # type: ignore[no-any-return]

    def sync(self, call: Callable[[], T]) -> T:
        psycopg = self._server.psycopg
        # A connection that was lost, or another process that was quicker. What was lost may have been done: every
        # call of the journal and the host store may be made twice.
        passing = (psycopg.OperationalError, psycopg.errors.UniqueViolation)
        repeated = False
        while True:
            if self.closed:
                raise self._layout.error(f"{self.place}: the {self._layout.what} is closed")
            try:
                with self._server.connection() as self._call.connection:
                    return call()
            except psycopg.Error as error:
                if repeated or not isinstance(error, passing):
                    raise self._server.in_words(error, self._layout) from None
                repeated = True

    async def run(self, call: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint_if_cancelled()
        with anyio.CancelScope(shield=True):
            result = await anyio.to_thread.run_sync(self.sync, call)
        return result

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._server.leave()

    # What is its keeper's matter: size, log, copies; and what the next statement notices.

    def check(self) -> None:
        pass

    def reaches(self, mb: int) -> bool:
        return False

    def rewrite(self) -> None:
        with suppress(self._server.psycopg.errors.LockNotAvailable):
            for table in ("events", "replays", "unanswered"):
                self.execute(f"VACUUM FULL {table}")

    def fold_log(self) -> None:
        pass

    def warnings(self) -> list[str]:
        return []


@lru_cache(maxsize=256)
def _marked(statement: str) -> str:
    return statement.replace("?", "%s")


def _escaped(values: Sequence[Any]) -> list[Any]:
    def without_nul(text: str) -> str:
        for given, kept in _ESCAPED:
            text = text.replace(given, kept)
        return text

    return [without_nul(value) if isinstance(value, str) else value for value in values]


def _text_loader() -> Any:
    from psycopg.types.string import TextLoader

    class Texts(TextLoader):
        def load(self, data: Any) -> Any:
            text = str(super().load(data))
            for given, kept in reversed(_ESCAPED):
                text = text.replace(kept, given) if "\x1b" in text else text
            return text

    return Texts
