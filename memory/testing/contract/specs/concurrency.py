"""Writes keep their order, limits hold, and nothing blocks the event loop (DESIGN 5.1 and 5.5)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from typing import Any

import anyio

from memory import (
    MemoryScope,
    MemslotError,
    SupportsBulkIngest,
    SupportsReadiness,
)
from memory.testing.contract._kit import Kit
from memory.testing.contract._spec import ON_A_WORKER, NotRun, promise
from memory.testing.contract._watch import Concurrency, LoopWatch
from memory.testing.contract.specs.capabilities import Calls, calls_about

_ROUNDS = 5
_A_BLOCKED_SHARE = 0.35


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


@promise(ON_A_WORKER, "where it cannot be helped: blocks_loop_ms, with the reason beside it")
async def the_event_loop_is_never_blocked(kit: Kit) -> None:
    """DESIGN 5: a synchronous SDK belongs on threads, or one slow answer stops every other user's turn.

    A blocking native call holds the loop for a large share of the call. A busy machine holds it for a small share.
    """
    await kit.remember("blue")
    calls: dict[str, Callable[[int], Awaitable[Any]]] = {
        "record_event": lambda _: kit.write("green"),
        "retrieve": lambda _: kit.slot.retrieve(kit.question("blue")),
        "health": lambda _: kit.slot.health(),
        "setup_scope": lambda number: kit.another_scope(f"new{number}"),
        "reset_scope": lambda number: kit.slot.reset_scope(kit.scope_of(f"gone{number}")),
    }
    numbers = count()
    together = await _watched(kit, next(numbers), *calls.values())
    if together.worst_ms > kit.declared.blocks_loop_ms:
        for name, call in calls.items():
            await _check_not_blocked(kit, name, lambda: _watched(kit, next(numbers), call))  # noqa: B023
    closed: list[Kit] = []

    async def close() -> LoopWatch:
        closing = kit.another() if closed else kit
        closed.append(closing)
        await closing.setup(kit.scope)
        async with LoopWatch().watching() as watch:
            await closing.close(clean_up=kit.declared.clean_up)
        return watch

    await _check_not_blocked(kit, "aclose", close)
    if kit.aids.native_fault is None and not kit.declared.cannot_fail:
        raise NotRun("not tested", "native_fault: without it no native call takes long enough to see")


async def _check_not_blocked(kit: Kit, name: str, watched: Callable[[], Awaitable[LoopWatch]]) -> None:
    """Fail if every round held the loop longer than declared, and for a large share of the call."""
    limit_ms, best_ms = kit.declared.blocks_loop_ms, math.inf
    for _ in range(_ROUNDS):
        watch = await watched()
        best_ms = min(best_ms, watch.worst_ms)
        if watch.worst_ms <= limit_ms or watch.share < _A_BLOCKED_SHARE:
            return
    raise AssertionError(
        f"{name}: the event loop stood still for {best_ms:.0f} ms, {limit_ms:.0f} ms declared"
    )


async def _watched(kit: Kit, number: int, *calls: Callable[[int], Awaitable[Any]]) -> LoopWatch:
    """Watch the loop while these calls run together. The kit slows each one down if it can."""
    await kit.another_scope(f"gone{number}")
    slow = kit.aids.native_fault is not None and not kit.declared.answers_at_once
    async with LoopWatch().watching() as watch:
        with kit.fault("late") if slow else nullcontext():
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(_regardless, partial(call, number))
    return watch


async def _regardless(call: Callable[[], Awaitable[Any]]) -> None:
    with suppress(MemslotError):
        await call()
