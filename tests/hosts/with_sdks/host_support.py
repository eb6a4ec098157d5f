"""What the suite of hosts needs of this project: the turns of a memory, with a policy."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from host_contract import HostContract
from stage import InLife

from memory import MemorySlot
from memory.runtime import TurnMemory, TurnPolicy, turns_of


class Hosted(HostContract):
    """A host of memslot's own."""

    def turns(
        self, memory: MemorySlot, *, on_trouble: Callable[[str, str], None] | None = None, **policy: Any
    ) -> TurnMemory:
        return turns_of(memory, TurnPolicy(**policy), on_trouble=on_trouble)


class Living(InLife, Hosted):
    """The same, with the scenes of its life."""


@contextmanager
def closed_loop() -> Iterator[None]:
    """Around an SDK's blocking call, which makes an event loop where the thread has none, and leaves it open."""
    if asyncio._get_running_loop() is not None:
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        loop.close()
        asyncio.set_event_loop(None)
