"""A journal asked directly, as the slot asks it, for one backend."""

from __future__ import annotations

from memory import MemoryEvent, MemoryScope
from memory.slot.journal import Journal
from memory.slot.journal_file import JournalEntry, JournalKey


def key(scope: MemoryScope, backend: str = "obedient", store: str = "") -> JournalKey:
    """Where the events of a scope go."""
    return JournalKey.of(backend, store, scope, {"id": scope.label})


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
