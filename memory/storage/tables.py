"""Groups of tables, each owned by one module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tables:
    """A group of tables that one module owns.

    Attributes:
        what: the group's name, for messages and for the table of versions.
        version: version of the statements.
        statements: SQL in SQLite's dialect, separated by semicolons, each repeatable (``IF NOT EXISTS``).
    """

    what: str
    version: int
    statements: str


def make_missing(db: Any, store: Any, translated: Callable[[str], str] = str) -> None:
    """Create the missing tables of a handle. The caller holds a transaction.

    Raises:
        StoreError: another version of memslot made one of the groups.
    """
    for tables in store.tables:
        found = db.execute("SELECT version FROM versions WHERE what = ?", (tables.what,)).fetchone()
        if found is None:
            for statement in filter(str.strip, translated(tables.statements).split(";")):
                db.execute(statement)
            db.execute("INSERT INTO versions VALUES (?, ?)", (tables.what, tables.version))
        elif found[0] != tables.version:
            mend = "update memslot" if found[0] > tables.version else "use the memslot that made it"
            raise store.error(
                f"{store.place}: its {tables.what} has version {found[0]}, and this memslot reads version "
                f"{tables.version}; {mend}, or set another place"
            )
