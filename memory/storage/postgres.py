"""A store in PostgreSQL (``memory.state``), for several machines. Opening one imports psycopg 3.

Statements are written in SQLite's dialect; this module translates only value placeholders and table
definitions. No message of the server leaves it, because such a message may repeat user text or a password.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread

from memory.contract.errors import ConfigError, StoreError
from memory.storage.insert import VERSIONS_TABLE
from memory.storage.shared_file import when_collected
from memory.storage.store import HandleOptions, Store
from memory.storage.tables import Tables, make_missing

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_CONNECTIONS = 4
_SCHEMA = "memslot"
_MAKING = 0x6D656D73  # key of the advisory lock for creating tables
_DEFAULTS = {
    "application_name": "memslot",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_IN_ITS_WORDS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    " REAL ": " DOUBLE PRECISION ",
    "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')": (
        "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
    ),
}
# PostgreSQL's texts hold no NUL. Only ids contain these two characters, because JSON escapes them.
_ESCAPED = (("\x1b", "\x1be"), ("\x00", "\x1b0"))
_WHY = {
    "42501": "its user has no right to do this; GRANT CREATE ON DATABASE to it, or let its owner run this once",
    "25006": "it is read-only, as a standby is; name the primary in memory.state",
    "42P01": "its tables are gone; restore them, or drop the schema memslot and start again",
    "53100": "its disk is full; free some space; {lost}",
    "53300": "it has no connection left; raise its max_connections",
    "54000": "an id is too long for it; shorten it; {lost}",
    "55P03": "another process keeps its rows locked; end that process, or try again; {lost}",
}


class PostgresStore(Store):
    """A handle on the database of a ``postgresql://`` URL.

    Raises:
        ConfigError: psycopg is not installed, or cannot read the URL.
    """

    shared = True
    begun = True

    def __init__(self, url: str, tables: Iterable[Tables] = (), **options: Unpack[HandleOptions]) -> None:
        super().__init__(tables, **options)
        self._url = url
        self._server: _Server | None = None
        self.place = _place_of(url)

    def _another(self, tables: tuple[Tables, ...], options: HandleOptions) -> PostgresStore:
        return PostgresStore(self._url, tables, **options)

    def call(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        self._check_open()
        ends = time.monotonic() + self.within_s
        server, repeated = self._entered(), False
        while True:
            call = _Call(server, self, work, writes, ends)
            try:
                result: T = call.result()
                return result
            except server.psycopg.Error as error:
                # The server was restarted, or another process was quicker. Nothing of the call was kept, so
                # one more attempt is safe.
                lost = (server.psycopg.OperationalError, server.psycopg.errors.UniqueViolation)
                passing = isinstance(error, lost) and not call.maybe_done
                if repeated or not passing or time.monotonic() >= ends:
                    raise server.in_words(error, self, maybe_done=call.maybe_done) from None
                repeated = True

    async def run(self, work: Callable[[Any], T], *, writes: bool = True) -> T:
        await anyio.lowlevel.checkpoint_if_cancelled()
        with anyio.CancelScope(shield=True):
            result = await anyio.to_thread.run_sync(lambda: self.call(work, writes=writes))
        return result

    def fold(self) -> bool:
        """Always True: the server's log and backups are its owner's responsibility."""
        return True

    def _entered(self) -> _Server:
        """The shared connections, with this handle as one more user. A forked child has its own."""
        server = self._server
        if server is None or server.pid != os.getpid():
            server = self._server = _Server.entered(self._url)
            # An unclosed handle gives the connections back when it is garbage-collected.
            self._give_back = when_collected(self, server.leave)
        return server


class _Call:
    """One call on a separate thread, so that its caller waits for a hung server only until the deadline."""

    def __init__(
        self, server: _Server, store: PostgresStore, work: Callable[[Any], Any], writes: bool, ends: float
    ) -> None:
        self.maybe_done = False
        self._server = server
        self._store = store
        self._work = work
        self._writes = writes
        self._ends = ends
        self._connection: psycopg.Connection[Any] | None = None
        self._changing = threading.Lock()
        self._given_up = False

    def result(self) -> Any:
        called = self._server.threads.submit(self._carry_out)
        try:
            return called.result(max(0.0, self._ends - time.monotonic()))
        except TimeoutError:
            if called.cancel():
                raise self._late("all its connections are busy") from None
            with self._changing:
                self._given_up = True
            if called.done():
                return called.result()
            _shut(self._connection)
            raise self._late(f"no answer within {self._store.within_s:g} s") from None

    def _late(self, why: str) -> StoreError:
        store = self._store
        lost = "it may or may not have been kept" if self.maybe_done else store.lost
        error = store.error(f"{store.place}: {why}; start it, or correct memory.state; {lost}")
        error.maybe_done = self.maybe_done
        return error

    def _carry_out(self) -> Any:
        with self._server.connection(self._ends) as self._connection:
            self._server.make_tables(self._connection, self._store)
            database = _Statements(self._connection)
            return self._in_transaction(database) if self._writes else self._work(database)

    def _in_transaction(self, database: _Statements) -> Any:
        """Run the work as a transaction, which is not committed once the caller has given up."""
        database.execute("BEGIN")
        try:
            result = self._work(database)
        except BaseException:
            with suppress(self._server.psycopg.Error):
                database.execute("ROLLBACK")
            raise
        with self._changing:
            if not self._given_up:
                self.maybe_done = True
        database.execute("COMMIT" if self.maybe_done else "ROLLBACK")
        return result


def _shut(connection: psycopg.Connection[Any] | None) -> None:
    """End a connection from another thread, so that a call that waits for an answer fails at once."""
    if connection is not None:
        with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)


def _parsed(url: str) -> dict[str, Any]:
    """The parts of a URL. Raises ConfigError if psycopg is not installed or cannot read the URL."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise ConfigError("memory.state: PostgreSQL needs psycopg: pip install 'memslot[postgres]'") from None
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error:  # its text repeats the URL, password included
        raise ConfigError(
            "memory.state: cannot be read; write postgresql://user:password@host:5432/database"
        ) from None


def _place_of(url: str) -> str:
    """The database's address for messages, without the password."""
    given = _parsed(url)
    host = given.get("host") or "localhost"
    return f"PostgreSQL at {host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"


class _Server:
    """The connections that all handles of a URL share in this process."""

    _all: ClassVar[dict[tuple[int, str], _Server]] = {}
    _registering: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, url: str) -> None:
        import psycopg
        from psycopg.conninfo import make_conninfo

        given = _parsed(url)
        self.place = _place_of(url)
        self.psycopg = psycopg
        self.pid = os.getpid()
        self.threads = ThreadPoolExecutor(_CONNECTIONS, "memslot-postgres")
        self._url = url
        self._texts = _text_loader()
        self._given = make_conninfo("", **{**_DEFAULTS, **given})
        self._patience = given.get("connect_timeout")
        self._idle: list[psycopg.Connection[Any]] = []
        self._users = 0
        self._made: set[Tables] = set()

    @classmethod
    def entered(cls, url: str) -> _Server:
        # A forked child must not write to its parent's sockets.
        with cls._registering:
            key = os.getpid(), url
            server = cls._all.get(key)
            if server is None:
                server = cls._all[key] = cls(url)
            server._users += 1
        return server

    def leave(self) -> None:
        if self.pid != os.getpid():  # the connections stay with the parent
            return
        with self._registering:
            self._users -= 1
            if self._users:
                return
            self._all.pop((os.getpid(), self._url), None)
        self.threads.shutdown(wait=False)
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError, self.psycopg.Error):
                self._idle.pop().close()

    @contextmanager
    def connection(self, ends: float) -> Iterator[psycopg.Connection[Any]]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connected(ends)
        try:
            yield connection
        finally:
            if connection.closed or connection.info.transaction_status.name != "IDLE":
                connection.close()
                self._drop_idle()  # a restarted server has lost the other connections, too
            elif self._users:
                self._idle.append(connection)
            else:
                connection.close()

    def _connected(self, ends: float) -> psycopg.Connection[Any]:
        patience = self._patience or math.ceil(max(1.0, ends - time.monotonic()))
        connection = self.psycopg.connect(self._given, autocommit=True, connect_timeout=patience)
        connection.adapters.register_loader("text", self._texts)
        connection.execute(f"SET search_path TO {_SCHEMA}; SET lock_timeout TO '4s'")
        return connection

    def make_tables(self, connection: psycopg.Connection[Any], store: PostgresStore) -> None:
        if self._made.issuperset(store.tables):
            return
        database = _Statements(connection)
        with connection.transaction():
            database.execute("SELECT pg_advisory_xact_lock(?)", (_MAKING,))
            if database.execute("SELECT to_regclass(?)", (f"{_SCHEMA}.versions",)).fetchone()[0] is None:
                database.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
                database.execute(VERSIONS_TABLE.replace("INTEGER", "BIGINT"))
            make_missing(database, store, _translated)
        self._made.update(store.tables)

    def in_words(self, error: psycopg.Error, store: PostgresStore, *, maybe_done: bool) -> StoreError:
        """The error in one sentence, with the remedy and without the server's own words."""
        if (why := _WHY.get(error.sqlstate or "")) is None:
            said = str(error) if error.sqlstate is None else ""  # a failed connection has no sqlstate
            if "password" in said or "role" in said:
                why = "it refuses this user or password; correct memory.state"
            elif "does not exist" in said:
                why = "it has no such database; create it, or correct memory.state"
            elif isinstance(error, self.psycopg.OperationalError):
                why = "it cannot be reached; start it, or correct memory.state; {lost}"
            else:
                why = f"it cannot be used ({type(error).__name__}, {error.sqlstate}); {{lost}}"
        lost = "it may or may not have been kept" if maybe_done else store.lost
        failure = store.error(f"{self.place}: {why.format(lost=lost)}")
        failure.maybe_done = maybe_done
        return failure


def _begin_child() -> None:
    _Server._registering = threading.Lock()  # a thread of the parent may have held the old one


os.register_at_fork(after_in_child=_begin_child)


class _Statements:
    """A :class:`~memory.storage.store.Database` over a connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        return self._connection.execute(_marked(statement), _escaped(values) or None)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        cursor = self._connection.cursor()
        cursor.executemany(_marked(statement), [_escaped(row) for row in rows])
        return cursor


def _translated(statements: str) -> str:
    for words, its in _IN_ITS_WORDS.items():
        statements = statements.replace(words, its)
    return statements


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
