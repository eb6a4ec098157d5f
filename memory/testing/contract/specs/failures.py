"""When the backend fails: an error with its cause, an honest receipt, and no leak (spec 9.7; DESIGN 4 and 5)."""

from __future__ import annotations

import time

import anyio

from memory import (
    BackendError,
    BackendTimeout,
    ContextBudget,
    Deadlines,
    MemoryEvent,
    MemorySlot,
    WriteReceipt,
)
from memory.adapter import SupportsEventLookup
from memory.testing._faults import FAKE_KEY
from memory.testing.contract._kit import STORED, Kit, assert_explained, raises
from memory.testing.contract._spec import promise

AREA = "failures"

_TRIES = 5
_SHORT = Deadlines(retrieve_s=0.1, write_s=0.1, query_s=0.1, health_s=0.1)


@promise(AREA)
async def a_failing_backend_never_looks_empty(kit: Kit) -> None:
    """Spec 9.7: an error of ours, with the native one as its cause and diagnostics that may be logged."""
    await kit.remember("blue")
    with kit.fault("500"), raises(BackendError, "a read while every native call fails") as raised:
        await kit.ask("secret")
    error = raised.value
    assert error.backend_name == kit.slot.backend_name, "the error does not name its backend"
    assert kit.traces.last("retrieve").error == type(error).__name__, "the trace does not name the error"
    assert_explained(kit, error)
    await kit.assert_recalled("blue", "the slot must work again afterwards")


@promise(AREA)
async def a_failing_write_is_an_error_or_unknown(kit: Kit) -> None:
    """DESIGN 4: never a plain receipt for what was not stored; ``unknown`` carries a warning."""
    error = None
    with kit.fault("500"):
        try:
            receipt = await kit.slot.record_event(kit.event(kit.fact("secret")))
        except BackendError as raised:
            error = raised
        else:
            assert receipt.status == "unknown", f"a write that failed was {receipt.status}"
            assert receipt.warnings, "an unknown write must say why"
    if error is not None:
        assert_explained(kit, error)
    assert kit.traces.last("record_event").consistency is None, "the trace of a failed write calls it stored"
    await kit.remember("blue")
    await kit.assert_recalled("blue", "the slot does not work again afterwards")


@promise(AREA)
async def health_tells_of_a_failing_backend(kit: Kit) -> None:
    """DESIGN 4: ``unavailable`` or ``degraded`` with a warning; not an exception, and not ``ok``."""
    health = await kit.slot.health()
    assert health.status != "unavailable", f"a backend that works is called unavailable: {health.warnings}"
    with kit.fault("500"):
        health = await kit.slot.health()
    assert health.status != "ok", "a backend that fails is called ok"
    assert health.warnings, "health does not say what is wrong"
    assert FAKE_KEY not in health.model_dump_json(), "health repeats a key"


@promise(AREA)
async def deadlines_hold(kit: Kit) -> None:
    """DESIGN 5.3: a read past its deadline raises; a write may or may not be stored, and says so."""
    await kit.remember("blue")
    slot: MemorySlot = kit.make_slot(deadlines=_SHORT, trace_sink=kit.traces)
    await slot.setup_scope(kit.scope)
    with kit.fault("late"):
        for _ in range(_TRIES):  # a busy machine slows one call down, not every one
            started = time.monotonic()
            with raises(BackendTimeout, "a read past its deadline") as raised:
                await slot.retrieve(kit.question("blue", budget=ContextBudget(max_items=1)))
            assert raised.value.__cause__ is not None, "the timeout is not the cause"
            if (took := time.monotonic() - started) < 0.45:
                break
        assert took < 0.45, "the deadline was 0.1 s"
        receipt = await _written(slot, kit.event(kit.fact("slow")))
    if receipt is not None:
        if receipt.status != "unknown":
            assert isinstance(kit.adapter, SupportsEventLookup), "only a look-up can settle a lost answer"
            assert receipt.status in STORED, f"a write past its deadline was {receipt.status}"
        assert receipt.warnings, "a write past its deadline must say so"
    assert kit.traces.last("retrieve").error == "BackendTimeout", "the trace does not name the timeout"
    await kit.remember("green")
    await kit.assert_recalled("green", "the slot does not work again afterwards")


@promise(AREA)
async def an_abandoned_write_does_not_land_after_the_flip(kit: Kit) -> None:
    """DESIGN 5.1: a write past its deadline may still be under way; becoming read-only waits for it."""
    await kit.remember("blue")
    slot = kit.make_slot(deadlines=_SHORT)
    await slot.setup_scope(kit.scope)
    with kit.fault("late"):
        for _ in range(_TRIES):  # one that never began, on a busy machine, is none that goes on
            started = time.monotonic()
            if await _written(slot, kit.event(kit.fact("slow"))) is not None:
                break
        await kit.read_only()
    flipped = await kit.observe()
    while time.monotonic() - started < 0.65:  # it is late by half a second
        await anyio.sleep(0.05)
        assert await kit.observe() == flipped, "a write landed while the slot was read-only"


async def _written(slot: MemorySlot, event: MemoryEvent) -> WriteReceipt | None:
    """The receipt; None for a write that never began, because it waited for a turn inside the adapter."""
    try:
        return await slot.record_event(event)
    except BackendTimeout as error:
        if error.ambiguous:
            raise
        return None
