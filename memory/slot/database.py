"""What the journal and the host store ask of a database: a SQLite file of this machine, or a server of many."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from memory.slot.sqlite_file import SqliteLayout

T = TypeVar("T")


class Database(Protocol):
    """An open database; methods as of :class:`~memory.slot.sqlite_file.SqliteFile`.

    Attributes:
        closed: whether it was closed.
        on_server: whether other machines use it, too. What is given to ``sync`` may be called twice then.
        place: where it is, for messages; never with a password.
        db: executes statements of both dialects, whose values are marked by ``?`` and hold no ``bool``; within
            :meth:`sync` alone.
    """

    closed: bool
    on_server: bool
    place: str
    db: Any

    def sync(self, call: Callable[[], T]) -> T: ...
    def transaction(self) -> AbstractContextManager[None]: ...
    def check(self) -> None: ...
    def reaches(self, mb: int) -> bool: ...
    def rewrite(self) -> None: ...
    def fold_log(self) -> None: ...
    def warnings(self) -> list[str]: ...
    def close(self) -> None: ...


class JournalDatabase(Database, Protocol):
    """One that an event loop may wait for: what ``run`` has begun is not left without its end."""

    async def run(self, call: Callable[[], T]) -> T: ...


class StateServer(Protocol):
    """A server that keeps what lies in files elsewhere; ``place`` as of :class:`Database`."""

    place: str

    def open(self, layout: SqliteLayout) -> JournalDatabase:
        """Its tables, made where there are none.

        Raises:
            StoreError: as ``layout.error``: it cannot be reached or used.
        """


Place: TypeAlias = Path | StateServer
