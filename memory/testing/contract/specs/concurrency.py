"""Nothing blocks the event loop (DESIGN 5)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import anyio
import anyio.lowlevel

from memory import MemslotError
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import ON_A_WORKER, promise

_ROUNDS = 5
_LONGEST_WAIT_S = 0.25


@promise(ON_A_WORKER)
async def the_event_loop_is_never_blocked(kit: Kit) -> None:
    """DESIGN 5: a synchronous SDK belongs on threads, or one slow answer stops every other user's turn.

    The kit slows native calls down, and looks how long another task waits. A busy machine makes it wait now and
    then, a blocking call every time.
    """
    await kit.remember("blue")
    await kit.another_scope("gone")
    numbers = count()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "record_event": lambda: kit.write("green"),
        "retrieve": lambda: kit.slot.retrieve(kit.question("blue")),
        "health": kit.slot.health,
        "setup_scope": lambda: kit.another_scope(f"new{next(numbers)}"),
        "reset_scope": lambda: kit.slot.reset_scope(kit.scope_of("gone")),
    }
    for name, call in calls.items():
        waits: list[float] = []
        while len(waits) < _ROUNDS and min(waits, default=math.inf) > _LONGEST_WAIT_S:
            waits.append(await _longest_wait(kit, call))
        held = f"{name}: the event loop stood still for {min(waits):.1f} s"
        assert min(waits) <= _LONGEST_WAIT_S, held


async def _longest_wait(kit: Kit, call: Callable[[], Awaitable[Any]]) -> float:
    """The longest time in seconds that another task waits for its turn during a slow call."""
    turns = [anyio.current_time()]

    async def take_turns() -> None:
        while True:
            turns.append(anyio.current_time())
            await anyio.sleep(0.01)

    with kit.fault("late"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_turns)
            await anyio.lowlevel.checkpoint()
            await _regardless(call)
            tasks.cancel_scope.cancel()
    turns.append(anyio.current_time())
    return max(later - earlier for earlier, later in pairwise(turns))


async def _regardless(call: Callable[[], Awaitable[Any]]) -> None:
    with suppress(MemslotError):
        await call()
