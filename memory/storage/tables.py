"""Groups of tables, each owned by one module."""

from __future__ import annotations

from dataclasses import dataclass


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


def wrong_version(place: str, tables: Tables, found: int) -> str:
    """The error message for tables that another version of memslot made."""
    mend = "update memslot" if found > tables.version else "use the memslot that made it"
    return (
        f"{place}: its {tables.what} has version {found}, and this memslot reads version {tables.version}; "
        f"{mend}, or set another place"
    )
