"""A process that adds entries to an outbox and delivers them, each as a line appended to a file.

Arguments: where the store is, the file of what arrived, a name, how many entries, and the length of a lease in
seconds. It prints the key of each entry once that is acknowledged.
"""

import json
import os
import sys
from pathlib import Path

import anyio
import anyio.lowlevel

from memory.storage import leases
from memory.storage.entries import OUTBOX, Lane, Verdict
from memory.storage.outbox import Outbox
from memory.storage.store import SqliteStore

LANE = Lane("somewhere", "{}")


def opened(place):
    """A store by its URL or its path."""
    if place.startswith("postgresql://"):
        from memory.storage.postgres import PostgresStore

        return PostgresStore(place, [OUTBOX])
    return SqliteStore(Path(place), [OUTBOX])


def arrived(file):
    """Keys of what arrived, in order; a line that a killed process did not finish counts for nothing."""
    text = file.read_text() if file.exists() else ""
    return text.split("\n")[:-1]


async def deliver(outbox, file):
    """Deliver what waits; an entry that was sent before is looked up."""

    async def send(entry):
        if entry.sent and entry.key in arrived(file):
            return Verdict("committed")
        with file.open("a") as lines:
            lines.write(f"{entry.key}\n")
        await anyio.lowlevel.checkpoint()
        return Verdict("committed")

    async with outbox.leasing(LANE) as lease:
        return "held" if lease is None else await outbox.deliver(lease, send)


async def main(place, file, name, count):
    store = opened(place)
    outbox = Outbox(store, "event", keep=True)
    for number in range(count):
        key = f"{name}-{number}"
        await outbox.add(LANE, key, json.dumps({"n": number}))
        os.write(1, f"{key}\n".encode())
        await deliver(outbox, file)
    while await outbox.counts():
        await deliver(outbox, file)
    outbox.close()
    store.close()


if __name__ == "__main__":
    leases.LEASE_S = float(sys.argv[5])
    anyio.run(main, sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
