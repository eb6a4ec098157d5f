"""Groups of tables, each owned by one module."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tables:
    """A group of tables that one module owns.

    Attributes:
        what: its name, for messages and for the table of versions.
        version: of the statements.
        statements: SQLite's words, each repeatable (``IF NOT EXISTS``), split by semicolons.
    """

    what: str
    version: int
    statements: str


def wrong_version(place: str, tables: Tables, found: int) -> str:
    """The sentence for tables that another version of memslot made."""
    mend = "update memslot" if found > tables.version else "use the memslot that made it"
    return (
        f"{place}: its {tables.what} has version {found}, and this memslot reads version {tables.version}; "
        f"{mend}, or set another place"
    )
