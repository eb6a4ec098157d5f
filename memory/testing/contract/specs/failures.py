"""A failing backend gives an error with its cause, an honest receipt, and no leak (spec 9.7; DESIGN 4 and 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from memory import (
    BackendError,
    MemslotError,
    ProvenanceRequest,
    SupportsFeedback,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
)
from memory.adapter import ContextEntry, SupportsEventLookup
from memory.testing._faults import FAKE_KEY
from memory.testing.contract._kit import Kit, as_json, attempt, raises
from memory.testing.contract._spec import HEALTH_OF, NotRun, promise
from memory.testing.contract.specs.capabilities import calls_about

_LET_IT_PASS = "let the native error pass: the slot turns it into memslot's, with yours as the cause"


@promise(_LET_IT_PASS, "where the SDK hides its errors and answers empty, use a call of it that does not")
async def a_failing_backend_never_looks_empty(kit: Kit) -> None:
    """Spec 9.7: the call raises a BackendError with its native cause and with diagnostics that may be logged."""
    await kit.remember("blue")
    with kit.fault("500"), raises(BackendError, "a read while every native call fails") as raised:
        await kit.ask("secret")
    (error,) = raised
    assert error.backend_name == kit.slot.backend_name, "the error does not name its backend"
    assert kit.traces.last("retrieve").error == type(error).__name__, "the trace does not name the error"
    kit.assert_explained(error)
    await kit.assert_recalled("blue", "the slot must work again afterwards")


@promise(
    "let the native error pass: the slot says unknown where the write may have arrived",
    "where the SDK hides its errors, look the write up before the receipt says that it is stored",
)
async def a_failing_write_is_an_error_or_unknown(kit: Kit) -> None:
    """DESIGN 4: a lost write never gets a plain receipt. ``unknown`` carries a warning."""
    with kit.fault("500"):
        receipt, error = await attempt(kit.write("secret"))
    kit.assert_explained_or_unknown(receipt, error)
    assert kit.traces.last("record_event").consistency is None, "the trace of a failed write calls it stored"
    await kit.remember("blue")
    await kit.assert_recalled("blue", "the slot does not work again afterwards")


@promise(
    "make one cheap native call in health, and let its error pass: the slot answers unavailable", HEALTH_OF
)
async def health_tells_of_a_failing_backend(kit: Kit) -> None:
    """DESIGN 4: health is ``unavailable`` or ``degraded`` with a warning. It neither raises nor says ``ok``."""
    health = await kit.slot.health()
    assert health.status != "unavailable", f"a backend that works is called unavailable: {health.warnings}"
    with kit.fault("500"):
        health = await kit.slot.health()
    assert health.status != "ok", "a backend that fails is called ok"
    assert health.warnings, "health does not say what is wrong"
    assert FAKE_KEY not in health.model_dump_json(), "health repeats a key"


@promise(_LET_IT_PASS, core=False)
async def provenance_of_a_failing_backend_raises(kit: Kit) -> None:
    """An empty history would mean that the record never changed."""
    provenance = kit.needs(SupportsProvenance)
    await kit.remember("blue")
    request = ProvenanceRequest(scope=kit.scope, native_id=next(iter(await kit.native_ids("blue")), None))
    await _as_before_or_raises(kit, lambda: provenance.provenance(request))


@promise(_LET_IT_PASS, core=False)
async def a_native_query_of_a_failing_backend_raises(kit: Kit) -> None:
    """An empty list would mean that nothing is stored."""
    query, request = kit.needs(SupportsNativeQuery), kit.needs_query()
    await kit.remember("blue")
    await _as_before_or_raises(kit, lambda: query.native_query(request))


async def _as_before_or_raises(kit: Kit, call: Callable[[], Awaitable[Any]]) -> None:
    """A call that needs no failing part may answer, but only with its usual answer."""
    before = as_json((await call()).raw)
    with kit.fault("500"):
        during, error = await attempt(call())
    same = error is not None or as_json(during.raw) == before
    assert same, "the call answered with something else while the backend fails, in place of raising"


@promise(_LET_IT_PASS, core=False)
async def feedback_to_a_failing_backend_is_not_taken(kit: Kit) -> None:
    """The call raises or says ``unknown``. It says ``committed`` only if the feedback is stored."""
    feedback = kit.needs(SupportsFeedback)
    await kit.remember("blue")
    before = await kit.observe()
    with kit.fault("500"):
        receipt, error = await attempt(feedback.apply_feedback(kit.feedback(kit.fact("green"))))
    if error is None and receipt.status != "unknown":
        assert await kit.observe() != before, f"feedback was {receipt.status}, and is not there"


@promise(_LET_IT_PASS, "leave find_event out: a write without an answer is then unknown")
async def a_lookup_in_a_failing_backend_raises(kit: Kit) -> None:
    """ "Absent" would let the slot send a stored event again."""
    adapter = kit.adapter
    if not isinstance(adapter, SupportsEventLookup):
        raise NotRun("not applicable", "a look-up of events")
    event = kit.event(kit.fact("blue"))
    await kit.slot.record_event(event)
    before = during = await adapter.find_event(event)
    with kit.fault("500"), suppress(Exception):
        during = await adapter.find_event(event)
    assert during == before, "a look-up that failed says that the event is not there"


@promise(
    _LET_IT_PASS,
    "answer unknown with a detail",
    "where each write is stored at once, derive from SynchronousWrites and raise in probe_scope",
    core=False,
)
async def readiness_of_a_failing_backend_is_not_ready(kit: Kit) -> None:
    """A backend that is down is not ready, even if it stores each write at once."""
    readiness = kit.needs(SupportsReadiness)
    await kit.write("blue")
    with kit.fault("500"):
        answer, error = await attempt(readiness.readiness(kit.scope))
    assert error is not None or answer.state != "ready", "ready was said while the backend fails"


@promise(_LET_IT_PASS, "answer verified=False where the last look fails")
async def a_reset_of_a_failing_backend_is_not_verified(kit: Kit) -> None:
    """``verified`` means that the adapter looked. It cannot look into a backend that is down."""
    await kit.remember("blue")
    with kit.fault("500"):
        receipt, error = await attempt(kit.slot.reset_scope(kit.scope))
    if error is None and receipt.verified:
        await kit.until_ready(required=False)
        assert not await kit.recalls("blue"), "nothing is gone, and a reset of what is down is verified"
    await kit.reset()
    assert not await kit.recalls("blue"), "what was reset is still recalled"


@promise("name the record, the operation and the native error, never a text")
async def errors_do_not_repeat_what_is_stored(kit: Kit) -> None:
    """Errors reach logs and other people, so they never hold a user's words."""
    await kit.remember("secret")
    wrong_calls = calls_about(kit, kit.scope, [ContextEntry("", native_id="no-such-record")])
    messages = [await _message_of(wrong) for wrong in wrong_calls]
    if kit.aids.native_fault is not None:
        with kit.fault("500"):
            for call in (*wrong_calls, lambda: kit.ask("secret"), lambda: kit.write("secret")):
                messages.append(await _message_of(call))
            messages.append((await kit.slot.health()).model_dump_json())
    kit.assert_no_leak("\n".join(messages))


async def _message_of(call: Callable[[], Awaitable[Any]]) -> str:
    try:
        await call()
    except MemslotError as error:
        return f"{error} {as_json(getattr(error, 'diagnostics', {}))}"
    return ""
