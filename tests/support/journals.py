"""A journal asked directly, as the slot asks it, for one backend."""

import os
import time
from contextlib import closing

from memory.storage import leases
from memory.storage.insert import FILE_NAME
from memory.storage.journal import Journal, JournalEntry
from memory.storage.postgres import PostgresStore
from memory.storage.resets import JournalKey
from memory.storage.store import SqliteStore

URL, LEASE_S = "MEMSLOT_TEST_STATE", 0.3
server = os.environ.get(URL)
"""URL of the server that keeps the journals, see the fixture ``each_store``; None for files."""
if server is not None:  # of a process that a test has started
    leases.LEASE_S = LEASE_S


def open_store(directory):
    """The store of this test: a file in a directory, or that of its server."""
    return SqliteStore(directory / FILE_NAME) if server is None else PostgresStore(server)


def open_journal(directory, **options):
    """The journal of this test."""
    with closing(open_store(directory)) as store:
        journal = Journal(store, **options)
    journal.open()
    return journal


def key(scope, backend="obedient", store=""):
    """Where the events of a scope go."""
    return JournalKey.of(backend, store, scope, {"id": scope.label})


def outlive_a_lease():
    """Until what a process that was killed has held is free again."""
    if server is not None:
        time.sleep(LEASE_S)


async def keep(journal, *events, backend="obedient", sent=True):
    """Record events, those of each scope together."""
    found = []
    for scope in dict.fromkeys(event.scope for event in events):
        own = [event for event in events if event.scope == scope]
        done = await journal.append(key(scope, backend), own, send=sent)
        if done.lease is not None:
            await journal.outbox.leases.let_go(done.lease)
        found.extend(done.before)
    return found


async def waiting(journal, scope, backend="obedient"):
    """The events of a scope that wait, in their order."""
    return [JournalEntry.of(entry) for entry in await journal.outbox.waiting(key(scope, backend).lane)]


async def wipe(journal, scope):
    """Note the reset of a scope, from its beginning to its end."""
    await journal.resets.begin(key(scope))
    await journal.resets.end(key(scope))
    await journal.refresh()


def backlog(journal):
    """Events that wait, wherever they go."""
    return sum(count for _, count in journal.undelivered())
