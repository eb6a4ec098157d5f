"""Shared by the tests of the mem0 backend: configurations, slots, events.

No test imports mem0 before our factory has: what is imported first decides about its telemetry and its home.
"""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from installed import installed
from said import said, wanted

from memory import (
    MemoryEvent,
    MemoryScope,
    MemorySlot,
    NativeMutationRequest,
    NativeQueryRequest,
    RetrieveRequest,
    SupportsNativeMutation,
    SupportsNativeQuery,
    open_memory,
)

ALICE = MemoryScope(run_id="run1", persona_id="alice")
BOB = MemoryScope(run_id="run1", persona_id="bob")
START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
NEEDS_MEM0 = pytest.mark.skipif(not installed("mem0"), reason="mem0ai is not installed")


def config(data_dir: Path, *, deadlines: dict[str, float] | None = None, **options: Any) -> dict[str, Any]:
    """A configuration with the block's options as given. Without a journal, a write that fails raises."""
    memory: dict[str, Any] = {"backend": "mem0", "data_dir": str(data_dir), "backends": {"mem0": options}}
    return {"memory": {**memory, "journal": False, **({"deadlines": deadlines} if deadlines else {})}}


@asynccontextmanager
async def opened(data_dir: Path, *scopes: MemoryScope, **options: Any) -> AsyncIterator[MemorySlot]:
    """An open slot with Alice's scope, and others, set up."""
    async with open_memory(config(data_dir, **options), scope=ALICE) as slot:
        for scope in scopes:
            await slot.setup_scope(scope)
        yield slot


def event(*texts: str, scope: MemoryScope = ALICE, **fields: Any) -> MemoryEvent:
    """An event of user messages, a minute after the one before."""
    return said(scope, *texts, start=START, **fields)


def ask(
    query: str, scope: MemoryScope = ALICE, max_items: int | None = None, **fields: Any
) -> RetrieveRequest:
    """A request without a token limit."""
    return wanted(query, scope, max_items, **fields)


async def found(slot: MemorySlot, query: str, **fields: Any) -> list[str]:
    """Texts retrieved, best first."""
    return [entry.text for entry in (await slot.retrieve(ask(query, **fields))).entries]


async def stored(slot: MemorySlot, scope: MemoryScope = ALICE) -> list[dict[str, Any]]:
    """Every native row of a scope."""
    query = slot.capability(SupportsNativeQuery)
    assert query is not None
    rows: list[dict[str, Any]] = (
        await query.native_query(NativeQueryRequest(scope=scope, operation="list"))
    ).raw["results"]
    return rows


PEOPLE = [MemoryScope(run_id="run1", persona_id=f"p{number}") for number in range(8)]


async def lose_nothing(slot: MemorySlot, count: int) -> None:
    """Write and read so many times at once, for all of ``PEOPLE``, and look for what each was told."""

    async def write_and_read(number: int) -> None:
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


async def coloured(slot: Any) -> None:
    for name, number in COLOURS.items():
        await slot.record_event(
            event(
                f"My {name} mug",
                context="work" if number < 3 else "personal",
                metadata={"colour": name, "n": number, "even": number % 2 == 0, "day": f"2023-05-0{number}"},
                timestamp=START + timedelta(days=number),
            )
        )


def histories(data_dir: Path, query: str) -> list[Any]:
    """The rows of a query over the histories of all partitions."""
    rows: list[Any] = []
    for file in sorted(data_dir.glob("mem0/qdrant/scopes/*/*/history.db")):
        with closing(sqlite3.connect(file)) as connection:
            rows += connection.execute(query).fetchall()
    return rows


def on_disk(data_dir: Path, text: str) -> list[Path]:
    """The files that hold a text."""
    return [path for path in data_dir.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def native(slot: Any, scope: MemoryScope = ALICE) -> Any:
    """The ``mem0.Memory`` behind a slot, of a scope."""
    with slot._adapter._native.memory(slot.native_scope(scope)) as memory:
        return memory


async def mutate(
    slot: Any, operation: str, native_id: str | None, scope: MemoryScope = ALICE, **arguments: Any
) -> Any:
    return await slot.capability(SupportsNativeMutation).native_mutation(
        NativeMutationRequest(scope=scope, operation=operation, native_id=native_id, arguments=arguments)
    )
