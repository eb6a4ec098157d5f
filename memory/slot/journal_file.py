"""The tables of a journal's file."""

from __future__ import annotations

from memory.contract.errors import JournalError
from memory.slot.sqlite_file import Layout

__all__ = ["JOURNAL"]

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
_LACKED = """
CREATE INDEX IF NOT EXISTS past ON events (scope, seq) WHERE status != 'reset';
CREATE TABLE IF NOT EXISTS doubts (
    target TEXT NOT NULL,
    scope TEXT NOT NULL,
    event_id TEXT NOT NULL,
    PRIMARY KEY (target, scope, event_id)
) WITHOUT ROWID;
"""
"""A scope's past in pages, without sorting it for each; and what a replay has no answer for."""

JOURNAL = Layout(
    what="journal",
    application_id=0x6D656D73,
    version=1,
    tables=_TABLES,
    lacked=_LACKED,
    full="the event was not kept, and not sent",
    error=JournalError,
)
