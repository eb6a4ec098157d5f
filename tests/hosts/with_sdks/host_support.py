"""What the suite of hosts needs of this project: a turn memory with a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory import MemorySlot
from memory.runtime import TurnMemory, TurnPolicy
from memory.testing import HostContract


class Hosted(HostContract):
    """A host of memslot's own."""

    def turn_memory(
        self, slot: MemorySlot, *, on_trouble: Callable[[str, str], None] | None = None, **policy: Any
    ) -> TurnMemory:
        return TurnMemory(slot, TurnPolicy(**policy), on_trouble=on_trouble)
