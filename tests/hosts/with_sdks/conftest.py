"""A memory that every host is given, and what is in its store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from memory import MemoryScope, MemorySlot
from memory.runtime import TurnMemory, TurnPolicy
from memory.testing import FakeBackend, FakeNativeStore

SECTION = "<memory-context"


class Told:
    """A turn memory over a fake backend.

    Attributes:
        store: the backend's, whose faults may be set.
        memory: what a host is given.
    """

    def __init__(self) -> None:
        self.store = FakeNativeStore()
        scope = MemoryScope(run_id="app", persona_id="ada")
        self.slot = MemorySlot(FakeBackend(self.store), scope=scope)
        self.memory = TurnMemory(self.slot, TurnPolicy(recall_s=20.0))

    async def texts(self) -> list[str]:
        """Everything recorded so far, in order."""
        assert await self.memory.drain(20)
        return [row.text for row in self.store.rows.values()]


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    told = Told()
    async with told.slot, told.memory:
        yield told
