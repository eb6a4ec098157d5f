"""What the journal and the host store ask of a database: a SQLite file of this machine, or a server of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from memory.slot.sqlite_file import SqliteLayout

T = TypeVar("T")


class Rows(Protocol):
    """What a statement has found or changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Statements(Protocol):
    """Carries out statements whose values are marked by ``?``; numbers only, in place of ``bool``."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Rows: ...


class Database(Protocol):
    """An open database; ``db`` is used within :meth:`sync` alone.

    Attributes:
        closed: whether it was closed.
        on_server: whether other machines use it, too.
        place: where it is, for messages; never with a password.
    """

    closed: bool
    on_server: bool
    place: str

    @property
    def db(self) -> Statements: ...

    def sync(self, call: Callable[[], T]) -> T:
        """``call`` at once; one on a server may call it twice where the first was certainly undone, or is lost.

        Raises:
            StoreError: as ``layout.error``: it was closed, or cannot be used.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """Changes of the body that are there all or not at all."""

    def check(self) -> None:
        """See that it is the one that was opened.

        Raises:
            StoreError: it is not.
        """

    def reaches(self, mb: int) -> bool:
        """Whether what it holds takes ``mb`` megabytes or more; never of a server, which has its own keeper."""

    def rewrite(self) -> None:
        """Leave no free page and no log of what was removed, as far as this is in our hands."""

    def fold_log(self) -> None:
        """Leave no log of what was there before; a server keeps its own."""

    def warnings(self) -> list[str]:
        """What is not as it should be, for health."""

    def close(self) -> None:
        """Give it back. Waits for the call under way. Idempotent."""


class JournalDatabase(Database, Protocol):
    """One that an event loop may wait for."""

    async def run(self, call: Callable[[], T]) -> T:
        """As :meth:`sync`, where it blocks nobody. Shielded: what has begun is not left without its end."""


class StateServer(Protocol):
    """A server that keeps what lies in files elsewhere.

    Attributes:
        place: where it is, for messages; never with a password.
    """

    place: str

    def open(self, layout: SqliteLayout) -> JournalDatabase:
        """Its tables, made where there are none.

        Raises:
            StoreError: as ``layout.error``: it cannot be reached or used.
        """


Place: TypeAlias = Path | StateServer
