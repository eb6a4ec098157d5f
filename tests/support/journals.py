"""A journal asked directly, as the slot asks it, for one backend."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import SecretStr

from memory import MemoryEvent, MemoryScope
from memory.plugins.postgres import PostgresServer
from memory.slot import journal_shared
from memory.slot.journal import Journal
from memory.slot.journal_file import JournalEntry, JournalKey
from memory.slot.journal_shared import SharedJournal

URL, LEASE_S = "MEMSLOT_TEST_STATE", 0.3
server: PostgresServer | None = PostgresServer(SecretStr(os.environ[URL])) if URL in os.environ else None
"""Where journals are, see the fixture ``each_store``; None for files."""
if server is not None:  # of a process that a test has started
    journal_shared._UNTIL = f"clock_timestamp() + interval '{LEASE_S} s'"


def open_journal(path: Path) -> Journal:
    """The journal of this test: a file, or that of its server."""
    return Journal(path) if server is None else SharedJournal(server)


def key(scope: MemoryScope, backend: str = "obedient", store: str = "") -> JournalKey:
    """Where the events of a scope go."""
    return JournalKey.of(backend, store, scope, {"id": scope.label})


def outlive_a_lease() -> None:
    """Until what a process that was killed has held is free again."""
    if server is not None:
        time.sleep(LEASE_S)


async def keep(
    journal: Journal, *events: MemoryEvent, backend: str = "obedient"
) -> list[JournalEntry | None]:
    """Record events, those of each scope together."""
    scopes = dict.fromkeys(event.scope for event in events)
    return [
        entry
        for scope in scopes
        for entry in await journal.append(
            key(scope, backend), [event for event in events if event.scope == scope]
        )
    ]


async def wipe(journal: Journal, scope: MemoryScope) -> None:
    """Note the reset of a scope, from its beginning to its end."""
    await journal.begin_reset(key(scope))
    await journal.end_reset(key(scope))


def backlog(journal: Journal) -> int:
    """Events that wait, wherever they go."""
    return sum(count for _, count in journal.undelivered())
