"""Writes keep their order, limits hold, and nothing blocks the event loop (DESIGN 5.1 and 5.5)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import anyio
import anyio.lowlevel

from memory import (
    MemoryScope,
    MemslotError,
    SupportsBulkIngest,
    SupportsReadiness,
)
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import ON_A_WORKER, NotRun, promise
from memory.testing.contract._watch import Concurrency
from memory.testing.contract.specs.capabilities import Calls, calls_about

_ROUNDS = 5
_LONGEST_WAIT_S = 0.25


@promise(
    "let every call of the client pass the same limit", "declare the max_concurrency that the client stands"
)
async def declared_concurrency_holds_for_every_kind_of_call(kit: Kit) -> None:
    """DESIGN 5.8: writes, reads, waits, queries and probes all keep the client's limit."""
    limit = kit.slot.traits.max_concurrency
    if limit is None:
        raise NotRun("not applicable", "a limit of concurrent calls")
    other = await kit.another_scope()
    for scope in (kit.scope, other):
        await kit.remember("blue", scope=scope)
    calls = [call for scope in (kit.scope, other) for call in await _calls(kit, scope)]
    seen = Concurrency(kit.adapter, kit.patch)
    async with anyio.create_task_group() as tasks:
        for call in calls * max(1, limit // 4):
            tasks.start_soon(_regardless, call)
    assert {"record_event", "retrieve", "health"} <= seen.kinds, "the calls did not reach the adapter"
    together = ", ".join(dict.fromkeys(seen.together))
    assert seen.peak <= limit, f"{seen.peak} calls at a time, {limit} declared: {together}"
    native = kit.aids.native_peak() if kit.aids.native_peak else 0
    assert native <= limit, f"{native} native calls at a time, {limit} declared"


async def _calls(kit: Kit, scope: MemoryScope) -> Calls:
    slot, entries = kit.slot, (await kit.ask("blue", scope=scope)).entries
    readiness, bulk = slot.capability(SupportsReadiness), slot.capability(SupportsBulkIngest)
    made: Calls = [
        lambda: kit.write("green", scope=scope),
        lambda: slot.retrieve(kit.question("blue", scope=scope)),
        lambda: slot.setup_scope(scope),
        slot.health,
        lambda: kit.queried(scope),
        *calls_about(kit, scope, entries[:1]),
    ]
    if readiness is not None:
        made.append(lambda: readiness.readiness(scope))
    if bulk is not None:
        made.append(lambda: bulk.record_events([kit.event(kit.fact("red"), scope=scope)]))
    return made


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
        waits = []
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
