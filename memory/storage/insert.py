"""Adds an entry to an outbox with only the standard library, for processes of a single call, such as hooks.

The module imports neither pydantic nor the rest of memslot. ``kind``, ``scope``, ``key`` and ``destination``
together identify an entry; a second insert of the same entry changes nothing.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

FILE_NAME = "memslot.db"
APPLICATION_ID = 0x6D656D73
WITHIN_S = 5.0
VERSIONS_TABLE = "CREATE TABLE IF NOT EXISTS versions (what TEXT PRIMARY KEY, version INTEGER NOT NULL);"
OUTBOX_VERSION = 1
OUTBOX_TABLES = """
CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    destination TEXT NOT NULL DEFAULT '',
    scope TEXT NOT NULL DEFAULT '',
    persona TEXT NOT NULL DEFAULT '',
    key TEXT NOT NULL,
    payload TEXT NOT NULL,
    digest TEXT,
    state TEXT NOT NULL DEFAULT 'waiting',
    sent INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_try REAL NOT NULL DEFAULT 0,
    error TEXT,
    outcome TEXT,
    erased INTEGER NOT NULL DEFAULT 0,
    recorded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE UNIQUE INDEX IF NOT EXISTS outbox_names ON outbox (kind, scope, key, destination) WHERE state != 'reset';
CREATE INDEX IF NOT EXISTS outbox_open ON outbox (kind, destination, scope, seq)
    WHERE state IN ('waiting', 'unknown');
CREATE INDEX IF NOT EXISTS outbox_aside ON outbox (kind, seq) WHERE state = 'aside';
CREATE INDEX IF NOT EXISTS outbox_past ON outbox (kind, scope, seq) WHERE erased = 0;
CREATE INDEX IF NOT EXISTS outbox_personas ON outbox (persona);
CREATE TABLE IF NOT EXISTS lanes (
    kind TEXT NOT NULL,
    destination TEXT NOT NULL,
    scope TEXT NOT NULL,
    fence INTEGER NOT NULL DEFAULT 0,
    holder TEXT NOT NULL DEFAULT '',
    beat INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, destination, scope)
);
"""
_INSERT = """
INSERT INTO outbox (kind, destination, scope, persona, key, payload) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""


def insert(
    path: str | Path,
    kind: str,
    key: str,
    payload: str,
    *,
    destination: str = "",
    scope: str = "",
    persona: str = "",
    within_s: float = WITHIN_S,
) -> bool:
    """Add an entry to the outbox in a store's SQLite file.

    Args:
        path: the file, usually ``data_dir / FILE_NAME``. A new file or directory is for this user only.
        kind, destination, scope, key: together identify the entry.
        payload: JSON text.
        persona: the person whose words these are, so that they can be forgotten later.
        within_s: seconds to wait for other writers.

    Returns:
        Whether the entry is new.

    Raises:
        sqlite3.Error: the file stays locked for ``within_s``, the disk is full, or it is no store of memslot.
        OSError: the file cannot be created.
    """
    ends = time.monotonic() + within_s
    create_file(Path(path))
    db = sqlite3.connect(path, timeout=within_s, isolation_level=None)
    try:
        while True:
            try:
                return _inserted(db, (kind, destination, scope, persona, key, payload))
            except sqlite3.OperationalError as error:
                # SQLite does not wait if two processes create the same file at the same moment.
                if "locked" not in str(error) or time.monotonic() >= ends:
                    raise
                time.sleep(0.005)
    finally:
        db.close()


def _inserted(db: sqlite3.Connection, row: tuple[str, ...]) -> bool:
    db.execute("PRAGMA secure_delete = ON")
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    try:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'lanes'").fetchone():
            begin(db)
            for statement in filter(str.strip, OUTBOX_TABLES.split(";")):
                db.execute(statement)
            db.execute("INSERT INTO versions VALUES ('outbox', ?)", (OUTBOX_VERSION,))
        new = db.execute(_INSERT, row).rowcount == 1
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return new


def begin(db: sqlite3.Connection) -> None:
    """Mark an empty file as a store. The caller holds a transaction."""
    found = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if found != APPLICATION_ID and tables:
        raise sqlite3.DatabaseError("file is not a store of memslot")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(VERSIONS_TABLE)


def create_file(path: Path) -> None:
    """Create an empty file and its missing directories, for this user only, whatever the umask."""
    if path.exists():
        return
    create_directory(path.parent)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def create_directory(path: Path) -> None:
    """Create a directory and its missing parents, for this user only, whatever the umask."""
    if not path.is_dir():
        create_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
