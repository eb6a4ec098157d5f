"""The journal's file: its tables, one owner at a time, and never an empty journal where there was a full one."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Literal

from memory.contract.errors import JournalError

__all__ = ["VERSION", "Durability", "OpenFiles", "connect", "explained"]

Durability = Literal["process", "machine"]
VERSION = 1
_APPLICATION_ID = 0x6D656D73
_TABLES = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    persona TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting',
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    receipt TEXT,
    recorded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE UNIQUE INDEX one_event ON events (scope, event_id) WHERE status != 'reset';
CREATE INDEX undelivered ON events (scope, seq) WHERE status IN ('waiting', 'unknown');
CREATE INDEX personas ON events (persona);
CREATE TABLE replays (
    target TEXT NOT NULL,
    scope TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (target, scope)
) WITHOUT ROWID;
"""
_PAST = "CREATE INDEX IF NOT EXISTS past ON events (scope, seq) WHERE status != 'reset'"
"""Which the first journals of this version lack: a scope's past in pages, without sorting it for each."""


class OpenFiles:
    """The files of an open journal, as they were: SQLite would go on writing to one that nobody can open again."""

    def __init__(self, path: Path) -> None:
        self._seen: dict[Path, os.stat_result | None] = dict.fromkeys(
            (path, path.with_name(f"{path.name}-wal"))
        )
        self.check()

    def check(self) -> None:
        """Look at them again.

        Raises:
            JournalError: one was removed, replaced or emptied.
        """
        for path, before in self._seen.items():
            try:
                there = path.stat()
            except FileNotFoundError:
                there = None
            if before is not None and (
                there is None or not os.path.samestat(there, before) or before.st_size > there.st_size == 0
            ):
                raise JournalError(
                    f"{path.name}: removed, replaced or emptied while it was open; restore it and start again"
                )
            self._seen[path] = there


def connect(path: Path, durability: Durability) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.stat().st_size:
            raise JournalError(
                f"{path.name}: emptied from outside, or cut short when it was made; remove it to begin a new one"
            )
        db = sqlite3.connect(path, check_same_thread=False, timeout=0.0)
    except (OSError, sqlite3.Error) as error:
        raise explained(path, error) from error
    try:
        # Held from the first statement to the end of the process: a second one is refused here, not half-way.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA secure_delete = ON")
        application, version, tables = (
            db.execute(statement).fetchone()[0]
            for statement in (
                "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master",
            )
        )  # fmt: skip
        if tables and application != _APPLICATION_ID:
            raise JournalError(f"{path.name}: this SQLite file is no journal of memslot; give another path")
        if tables and version != VERSION:
            raise JournalError(
                f"{path.name}: a journal of version {version}; this memslot reads version {VERSION}"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")  # it flushes; done on a thread instead
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'machine' else 'NORMAL'}")
        if not tables:
            db.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} {_PAST}; PRAGMA application_id = {_APPLICATION_ID}; "
                f"PRAGMA user_version = {VERSION}; COMMIT;"
            )
        else:
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise JournalError(
                    f"{path.name}: the journal is damaged; restore it, or export what can be read"
                )
            db.execute(_PAST)
    except sqlite3.Error as error:
        db.close()
        raise explained(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def explained(path: Path, error: Exception) -> JournalError:
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return JournalError(f"{path.name}: another process has this journal open; give each process its own")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return JournalError(f"{path.name}: damaged, or no journal of memslot ({name})")
    if name.startswith("SQLITE_FULL"):
        return JournalError(f"{path.name}: the disk is full; the event was not kept, and not sent")
    return JournalError(f"{path.name}: the journal cannot be used ({name})")
