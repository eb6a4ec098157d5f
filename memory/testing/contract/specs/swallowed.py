"""When the backend fails, no call looks as if it had worked: not the rare ones either (DESIGN 4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from memory import (
    BackendError,
    MemslotError,
    NativeMutationRequest,
    ProvenanceRequest,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
)
from memory.adapter import SupportsEventLookup
from memory.testing.contract._kit import Kit, as_json, assert_no_leak
from memory.testing.contract._spec import not_applicable, promise

AREA = "failures"
_LET_IT_PASS = "let the native error pass: the slot turns it into memslot's, with yours as the cause"


@promise(AREA, _LET_IT_PASS, core=False)
async def provenance_of_a_failing_backend_raises(kit: Kit) -> None:
    """An empty history would say that the record never changed."""
    provenance = kit.needs(SupportsProvenance)
    await kit.remember("blue")
    ids = [entry.native_id for entry in (await kit.ask("blue")).entries if entry.native_id]
    request = ProvenanceRequest(scope=kit.scope, native_id=ids[0] if ids else None)
    await _as_before_or_raises(kit, lambda: provenance.provenance(request))


@promise(AREA, _LET_IT_PASS, core=False)
async def a_native_query_of_a_failing_backend_raises(kit: Kit) -> None:
    """An empty list would say that nothing is stored."""
    query, request = kit.needs(SupportsNativeQuery), kit.needs_query(kit.scope)
    await kit.remember("blue")
    await _as_before_or_raises(kit, lambda: query.native_query(request))


async def _as_before_or_raises(kit: Kit, call: Callable[[], Awaitable[Any]]) -> None:
    """A call that needs no failing part may answer; what it answers is then what it always does."""
    before = as_json((await call()).raw)
    with kit.fault("500"):
        try:
            during = as_json((await call()).raw)
        except BackendError:
            return
    assert during == before, (
        "the call answered with something else while the backend fails, in place of raising"
    )


@promise(AREA, _LET_IT_PASS, core=False)
async def feedback_to_a_failing_backend_is_not_taken(kit: Kit) -> None:
    """It raises, or says ``unknown``; ``committed`` only where the feedback is really there."""
    feedback = kit.needs(SupportsFeedback)
    await kit.remember("blue")
    before = await kit.observe()
    with kit.fault("500"):
        try:
            receipt = await feedback.apply_feedback(kit.feedback(kit.fact("green")))
        except BackendError:
            return
    if receipt.status == "unknown":
        return
    assert await kit.observe() != before, (
        f"feedback that met a failing backend was {receipt.status}, and is not there"
    )


@promise(AREA, _LET_IT_PASS, "leave find_event out: a write without an answer is then unknown")
async def a_lookup_in_a_failing_backend_raises(kit: Kit) -> None:
    """ "Not there" would let the slot send an event again that is stored."""
    adapter = kit.adapter
    if not isinstance(adapter, SupportsEventLookup):
        not_applicable("a look-up of events")
    event = kit.event(kit.fact("blue"))
    await kit.slot.record_event(event)
    before = await adapter.find_event(event)
    with kit.fault("500"):
        try:
            during = await adapter.find_event(event)
        except Exception:
            return
    assert during == before, "a look-up that failed says that the event is not there"


@promise(AREA, _LET_IT_PASS, "answer unknown with a detail", core=False)
async def readiness_of_a_failing_backend_is_not_ready(kit: Kit) -> None:
    """A backend that derives later must be asked; where it cannot be, nobody knows."""
    readiness = kit.needs(SupportsReadiness)
    if kit.slot.traits.consistency == "immediate":
        not_applicable("derivation after the write")
    await kit.slot.record_event(kit.event(kit.fact("blue")))
    with kit.fault("500"):
        try:
            answer = await readiness.readiness(kit.scope)
        except BackendError:
            return
    assert answer.state != "ready", "ready was said while the backend fails"


@promise(AREA, _LET_IT_PASS, "answer verified=False where the last look fails")
async def a_reset_of_a_failing_backend_is_not_verified(kit: Kit) -> None:
    """``verified`` means that somebody looked; of a backend that is down nobody can say it."""
    await kit.remember("blue")
    with kit.fault("500"):
        try:
            receipt = await kit.slot.reset_scope(kit.scope)
        except BackendError:
            receipt = None
    if receipt is not None and receipt.verified:
        await kit.until_ready(required=False)
        assert not await kit.recalls("blue"), (
            "a reset is verified while the backend is down, and nothing is gone"
        )
    again = await kit.slot.reset_scope(kit.scope)
    assert again.verified, "a reset is not verified though the backend works again"
    assert not await kit.recalls("blue"), "what was reset is still recalled"


@promise(AREA, "name the record, the operation and the native error, never a text")
async def errors_do_not_repeat_what_is_stored(kit: Kit) -> None:
    """Errors are logged and shown to others; what a user said is not for them, whoever made the message."""
    await kit.remember("secret")
    messages: list[str] = []
    for call in _wrong_calls(kit):
        await _message_of(call, messages)
    if kit.aids.native_fault is not None:
        with kit.fault("500"):
            for call in (
                *_wrong_calls(kit),
                kit.ask("secret"),
                kit.slot.record_event(kit.event(kit.fact("secret"))),
            ):
                await _message_of(call, messages)
            messages.append((await kit.slot.health()).model_dump_json())
    assert_no_leak(kit, "\n".join(messages))


def _wrong_calls(kit: Kit) -> list[Awaitable[Any]]:
    """One call of each capability for a record that there is not."""
    slot, scope, nobody = kit.slot, kit.scope, "no-such-record"
    mutate, provenance = slot.capability(SupportsNativeMutation), slot.capability(SupportsProvenance)
    feedback = slot.capability(SupportsFeedback)
    calls: list[Awaitable[Any]] = []
    if mutate is not None:
        calls += [
            mutate.native_mutation(
                NativeMutationRequest(
                    scope=scope, operation=name, native_id=nobody, arguments=dict(arguments)
                )
            )
            for name, arguments in kit.declared.native_mutations.items()
        ]
    if provenance is not None:
        calls.append(provenance.provenance(ProvenanceRequest(scope=scope, native_id=nobody)))
    if feedback is not None:
        calls.append(feedback.apply_feedback(kit.feedback(native_ids=(nobody,))))
    return calls


async def _message_of(call: Awaitable[Any], messages: list[str]) -> None:
    try:
        await call
    except MemslotError as error:
        messages.append(f"{error} {as_json(getattr(error, 'diagnostics', {}))}")
