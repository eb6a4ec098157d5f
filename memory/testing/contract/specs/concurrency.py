"""Nothing blocks the event loop (DESIGN 5)."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel

from memory import MemslotError
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import ON_A_WORKER, promise

_ROUNDS = 5
_TURN_S = 0.01
_A_BLOCKED_SHARE = 0.35


@promise(ON_A_WORKER)
async def the_event_loop_is_never_blocked(kit: Kit) -> None:
    """DESIGN 5: a synchronous SDK belongs on threads, or one slow answer stops every other user's turn.

    The kit slows native calls down. A blocking call holds the loop for a large share of the call, every time.
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
        shares: list[float] = []
        while len(shares) < _ROUNDS and min(shares, default=1.0) > _A_BLOCKED_SHARE:
            shares.append(await _share_without_a_turn(kit, call))
        held = f"{name}: the event loop stood still for {min(shares):.0%} of a slow call"
        assert min(shares) <= _A_BLOCKED_SHARE, held


async def _share_without_a_turn(kit: Kit, call: Callable[[], Awaitable[Any]]) -> float:
    """The largest share of a slow call, from 0 to 1, in which another task got no turn.

    A second thread counts its turns. A busy machine gives turns to neither, so the share does not depend on it.
    """
    turns = missed = worst = 0
    done = threading.Event()

    def count_turns() -> None:
        nonlocal turns, missed, worst
        while not done.wait(_TURN_S):
            turns += 1
            missed += 1
            worst = max(worst, missed)

    async def take_turns() -> None:
        nonlocal missed
        while True:
            missed = 0
            await anyio.sleep(_TURN_S / 2)

    thread = threading.Thread(target=count_turns, name="memslot-kit-turns")
    with kit.fault("late"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_turns)
            await anyio.lowlevel.checkpoint()
            thread.start()
            try:
                await _regardless(call)
            finally:
                done.set()
                thread.join()
                tasks.cancel_scope.cancel()
    return worst / max(turns, 1)


async def _regardless(call: Callable[[], Awaitable[Any]]) -> None:
    with suppress(MemslotError):
        await call()
