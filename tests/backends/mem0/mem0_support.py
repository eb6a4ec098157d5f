"""Shared by the tests of the mem0 backend: configurations, slots, events.

No test imports mem0 before our factory has: what is imported first decides about its telemetry and its home.
"""

import sqlite3
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from installed import installed
from said import said, wanted

from memory import (
    MemoryScope,
    NativeMutationRequest,
    NativeQueryRequest,
    SupportsNativeMutation,
    SupportsNativeQuery,
    open_memory,
)

ALICE = MemoryScope(run_id="run1", persona_id="alice")
BOB = MemoryScope(run_id="run1", persona_id="bob")
START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
NEEDS_MEM0 = pytest.mark.skipif(not installed("mem0"), reason="mem0ai is not installed")


def config(data_dir, *, deadlines=None, **options):
    """A configuration with the block's options as given. Without a journal, a write that fails raises."""
    memory = {"backend": "mem0", "data_dir": str(data_dir), "backends": {"mem0": options}}
    return {"memory": {**memory, "journal": False, **({"deadlines": deadlines} if deadlines else {})}}


@asynccontextmanager
async def opened(data_dir, *scopes, **options):
    """An open slot with Alice's scope, and others, set up."""
    async with open_memory(config(data_dir, **options), scope=ALICE) as slot:
        for scope in scopes:
            await slot.setup_scope(scope)
        yield slot


def event(*texts, scope=ALICE, **fields):
    """An event of user messages, a minute after the one before."""
    return said(scope, *texts, start=START, **fields)


def ask(query, scope=ALICE, max_items=None, **fields):
    """A request without a token limit."""
    return wanted(query, scope, max_items, **fields)


async def found(slot, query, **fields):
    """Texts retrieved, best first."""
    return [entry.text for entry in (await slot.retrieve(ask(query, **fields))).entries]


async def stored(slot, scope=ALICE):
    """Every native row of a scope."""
    query = slot.capability(SupportsNativeQuery)
    rows = (await query.native_query(NativeQueryRequest(scope=scope, operation="list"))).raw["results"]
    return rows


PEOPLE = [MemoryScope(run_id="run1", persona_id=f"p{number}") for number in range(8)]


async def lose_nothing(slot, count):
    """Write and read so many times at once, for all of ``PEOPLE``, and look for what each was told."""

    async def write_and_read(number):
        scope = PEOPLE[number % len(PEOPLE)]
        await slot.record_event(event(f"I have {number} cats.", scope=scope))
        await slot.retrieve(ask("cats", scope=scope))

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(write_and_read, number)
    for index, scope in enumerate(PEOPLE):
        numbers = {int(row["memory"].split()[2]) for row in await stored(slot, scope)}
        assert numbers == set(range(index, count, len(PEOPLE)))


COLOURS = {"red": 1, "green": 2, "blue": 3}


async def coloured(slot):
    for name, number in COLOURS.items():
        await slot.record_event(
            event(
                f"My {name} mug",
                context="work" if number < 3 else "personal",
                metadata={"colour": name, "n": number, "even": number % 2 == 0, "day": f"2023-05-0{number}"},
                timestamp=START + timedelta(days=number),
            )
        )


def histories(data_dir, query):
    """The rows of a query over the histories of all partitions."""
    rows = []
    for file in sorted(data_dir.glob("mem0/qdrant/scopes/*/*/history.db")):
        with closing(sqlite3.connect(file)) as connection:
            rows += connection.execute(query).fetchall()
    return rows


def on_disk(data_dir, text):
    """The files that hold a text."""
    return [path for path in data_dir.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def native(slot, scope=ALICE):
    """The ``mem0.Memory`` behind a slot, of a scope."""
    with slot._adapter._native.memory(slot.native_scope(scope)) as memory:
        return memory


async def mutate(slot, operation, native_id, scope=ALICE, **arguments):
    return await slot.capability(SupportsNativeMutation).native_mutation(
        NativeMutationRequest(scope=scope, operation=operation, native_id=native_id, arguments=arguments)
    )
