"""Capabilities under the slot's rules, with one view for each protocol, and the slot's health."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import anyio

from memory.contract._quantity import quantity
from memory.contract.adapter import CAPABILITIES, capabilities_of, check_operation
from memory.contract.errors import BackendError, BackendTimeout, InputError, LifecycleError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import (
    BackendHealth,
    BackendReadiness,
    FeedbackReceipt,
    NativeMutationReceipt,
    NativeQueryResult,
    ProvenanceResult,
    WriteReceipt,
)
from memory.contract.requests import (
    MemoryFeedback,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
)
from memory.contract.scope import MemoryScope
from memory.contract.traits import declared_health
from memory.slot.calls import NativeCalls, Span
from memory.slot.delivery import Delivery, skipped_receipts
from memory.slot.rendering import without_recalled_context

T = TypeVar("T")
ReceiptT = TypeVar("ReceiptT", FeedbackReceipt, NativeMutationReceipt)
ChangeT = TypeVar("ChangeT", MemoryFeedback, NativeMutationRequest)


class _View:
    def __init__(self, calls: NativeCalls, delivery: Delivery) -> None:
        self._calls = calls
        self._adapter: Any = calls.adapter
        self._delivery = delivery
        self._written = delivery.writes.written

    async def _read(self, operation: str, request: Any, scope: MemoryScope, answer: type[T]) -> T:
        """Ask the adapter's method of this name, with ``request`` as its argument."""
        calls = self._calls
        with calls.span(operation, scope) as span:
            calls.check_scope(scope)
            self._delivery.resetting.check_readable(scope)
            if isinstance(request, NativeQueryRequest):
                check_operation(calls.adapter, request)
            ask = getattr(self._adapter, operation)
            return calls.traced(
                span, await calls.call(span, calls.deadlines.query_s, lambda: ask(request), answer)
            )

    async def _change(self, span: Span, request: ChangeT, receipt: ReceiptT) -> ReceiptT:
        """Make a write that is no event. ``receipt`` is for a read-only slot. A lost answer is ``unknown``."""
        calls, scope = self._calls, request.scope
        request = without_recalled_context(request)
        if isinstance(request, NativeMutationRequest):
            check_operation(calls.adapter, request)
            self._written.forget(scope)
        change = getattr(self._adapter, span.operation)

        async def perform() -> ReceiptT:
            await self._delivery.resetting.finish(scope)
            try:
                return await calls.call(span, calls.deadlines.write_s, lambda: change(request), type(receipt))
            except BackendError as error:
                if not error.ambiguous:
                    raise
                self._written.unknown += 1
                warning = f"{error}; it may or may not have been carried out"
                return receipt.model_copy(update={"status": "unknown", "warnings": (warning,)})

        return await calls.write(span, perform, lambda: receipt)


class _Feedback(_View):
    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        receipt = FeedbackReceipt(feedback_id=feedback.feedback_id, status="skipped_read_only")
        with self._calls.span("apply_feedback", feedback.scope, session_id=feedback.session_id) as span:
            return await self._change(span, feedback, receipt)


class _NativeMutation(_View):
    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        with self._calls.span("native_mutation", request.scope) as span:
            return await self._change(span, request, NativeMutationReceipt(status="skipped_read_only"))


class _Provenance(_View):
    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        return await self._read("provenance", request, request.scope, ProvenanceResult)


class _NativeQuery(_View):
    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        return await self._read("native_query", request, request.scope, NativeQueryResult)


class _BulkIngest(_View):
    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Write events scope by scope. Returns one receipt per event, in order.

        The ``receipts`` of an error are those of all events known to be stored, by answer or by look-up.
        """
        with self._calls.span("record_events") as span:
            by_scope: dict[MemoryScope, list[MemoryEvent]] = {}
            for event in events:
                self._calls.check_scope(event.scope)
                by_scope.setdefault(event.scope, []).append(without_recalled_context(event))
            if len({(event.scope, event.event_id) for event in events}) != len(events):
                raise InputError("record_events: two events of a scope share an event_id; give each its own")
            span.finished = True  # each scope's part emits its own trace instead
        receipts: dict[tuple[MemoryScope, str], WriteReceipt] = {}
        for scope, group in by_scope.items():
            try:
                written = await self._write(scope, group)
            except MemslotError as error:
                error.receipts = (*receipts.values(), *error.receipts)
                raise
            receipts.update(((scope, receipt.event_id), receipt) for receipt in written)
        return [receipts[event.scope, event.event_id] for event in events]

    async def _write(self, scope: MemoryScope, events: list[MemoryEvent]) -> list[WriteReceipt]:
        with self._calls.span("record_events", scope) as span:
            return await self._calls.write(
                span, lambda: self._delivery.writes.write(span, events), lambda: skipped_receipts(events)
            )


class _Readiness(_View):
    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        queued = self._written.queued[scope]
        answer = await self._read("readiness", scope, scope, BackendReadiness)
        return await self._answered(scope, answer, queued)

    async def _answered(self, scope: MemoryScope, answer: BackendReadiness, queued: int) -> BackendReadiness:
        if answer.state == "ready":
            self._written.note_derived(scope, queued)
        if not (count := self._delivery.waiting(scope)):
            if answer.state == "ready" and (refused := await self._delivery.set_aside(scope)):
                return BackendReadiness(state="failed", detail=refused)
            return answer
        detail = f"{quantity(count, 'events')} not delivered yet"
        return BackendReadiness(state="pending", detail=detail, pending_count=count)

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        """The adapter's answer and the time it took. A late answer is ``pending``, soon after the timeout."""
        calls = self._calls
        with calls.span("wait_until_ready", scope) as span:
            if not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s < math.inf:
                raise InputError("timeout_s must be a finite number of seconds, 0 or more")
            calls.check_scope(scope)
            began = anyio.current_time()
            ends = began + timeout_s

            def left_s() -> float:
                return max(0.0, ends - anyio.current_time())

            with anyio.move_on_after(timeout_s):
                await self._delivery.deliver(scope, timeout_s)
            queued = self._written.queued[scope]
            try:
                answer = await calls.call(
                    span,
                    timeout_s + 1.0,
                    lambda: self._adapter.wait_until_ready(scope, left_s()),
                    BackendReadiness,
                    queue_timeout_s=left_s(),
                )
            except BackendTimeout:
                answer = BackendReadiness(state="pending", detail=f"no answer within {timeout_s:g} s")
            answer = await self._answered(scope, answer, queued)
            return answer.model_copy(update={"waited_ms": (anyio.current_time() - began) * 1000})


_VIEWS: dict[str, type[_View]] = {
    "feedback": _Feedback,
    "bulk_ingest": _BulkIngest,
    "readiness": _Readiness,
    "native_mutation": _NativeMutation,
    "provenance": _Provenance,
    "native_query": _NativeQuery,
}
_DECLARED = (
    "cs_filtering", "pet_observability", "equivalent_control", "differs_from_control", "fallback_components",
)  # fmt: skip
_NAMES: dict[object, str] = {protocol: name for name, protocol in CAPABILITIES.items()}


def guard(calls: NativeCalls, delivery: Delivery, protocol: Callable[..., T]) -> T | None:
    """The guarded view of a capability, or None if the adapter lacks or withholds it."""
    name = _NAMES.get(protocol)
    if name is None:
        known = ", ".join(kind.__name__ for kind in CAPABILITIES.values())
        raise InputError(f"capability() takes one of {known}")
    return cast(T, _VIEWS[name](calls, delivery)) if name in capabilities_of(calls.adapter) else None


async def health_of(calls: NativeCalls, delivery: Delivery) -> BackendHealth:
    traits, within_s = calls.traits, calls.deadlines.health_s
    with calls.span("health") as span:
        try:
            health = await calls.call(
                span, within_s, calls.adapter.health, BackendHealth, queue_timeout_s=within_s
            )
        except LifecycleError:
            raise
        except MemslotError as error:
            diagnostics = error.diagnostics if isinstance(error, BackendError) else {}
            health = declared_health(
                calls.backend_name, traits, status="unavailable", warnings=(str(error),), details=diagnostics
            )
    last = delivery.writes.written.last_at
    of_slot = {
        "writes_in_flight": calls.gate.in_flight,
        "unknown_writes": delivery.writes.written.unknown,
        "lost_traces": calls.lost_traces,
        "last_write_at": last.isoformat() if last else None,
        "waiting_writes": delivery.waiting(),
    }
    failed = (f"the last {operation} failed: {why}" for operation, why in calls.failed.items())
    noticed = (*await delivery.warnings(), *failed)
    return health.model_copy(
        update={
            "status": "degraded" if noticed and health.status == "ok" else health.status,
            "warnings": (*health.warnings, *noticed),
            "latency_ms": span.elapsed_ms,
            "condition_kind": traits.kind,
            **{name: getattr(traits, name) for name in _DECLARED},
            "details": {**health.details, "slot": of_slot},
        }
    )
