"""Capabilities behind the slot's rules: each view offers one protocol and nothing else.

A view is handed out only where the adapter has the capability, so that no slot pretends to one it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from memory.contract.adapter import (
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
    capabilities_of,
)
from memory.contract.errors import BackendTimeout, InputError, MemslotError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import (
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
from memory.slot.delivery import Delivery
from memory.slot.rules import Rules, without_recalled_context

__all__ = ["guard"]

T = TypeVar("T")


class _View:
    def __init__(self, rules: Rules, delivery: Delivery) -> None:
        self._rules = rules
        self._adapter: Any = rules.adapter
        self._delivery = delivery


class _Feedback(_View):
    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        rules = self._rules
        rules.check_scope(feedback.scope)
        feedback = without_recalled_context(feedback)
        return await rules.write(
            "apply_feedback",
            feedback.scope,
            lambda: rules.call(
                "apply_feedback", rules.deadlines.write_s, lambda: self._adapter.apply_feedback(feedback)
            ),
            lambda: FeedbackReceipt(feedback_id=feedback.feedback_id, status="skipped_read_only"),
            session_id=feedback.session_id,
        )


class _BulkIngest(_View):
    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """One receipt per event, in order. Events of several scopes are written scope by scope.

        Raises:
            MemslotError: the backend failed, or refused an event; ``error.receipts`` holds those of the events that
                are stored, also where an answer was lost and the backend could be asked.
        """
        by_scope: dict[MemoryScope, list[MemoryEvent]] = {}
        for event in events:
            self._rules.check_scope(event.scope)
            by_scope.setdefault(event.scope, []).append(without_recalled_context(event))
        if len({(event.scope, event.event_id) for event in events}) != len(events):
            raise InputError("record_events: two events of a scope share an event_id; give each its own")
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
        return await self._rules.write(
            "record_events",
            scope,
            lambda: self._delivery.many(events),
            lambda: [WriteReceipt(event_id=event.event_id, status="skipped_read_only") for event in events],
        )


class _Readiness(_View):
    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        rules = self._rules
        answer = await rules.read(
            "readiness",
            scope,
            lambda: rules.call("readiness", rules.deadlines.query_s, lambda: self._adapter.readiness(scope)),
        )
        return self._undelivered(scope) or answer

    def _undelivered(self, scope: MemoryScope) -> BackendReadiness | None:
        count = self._delivery.waiting(scope)
        detail = f"{count} events wait in the journal for their delivery"
        return BackendReadiness(state="pending", detail=detail, pending_count=count) if count else None

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        """Like the adapter's, and never much longer than ``timeout_s`` seconds: late is ``pending``.

        Raises:
            InputError: ``timeout_s`` is no finite number of seconds, 0 or more.
        """
        if not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s < math.inf:
            raise InputError("timeout_s must be a finite number of seconds, 0 or more")

        await self._delivery.deliver(scope)

        async def wait() -> BackendReadiness:
            answer: BackendReadiness
            try:
                answer = await self._rules.call(
                    "wait_until_ready",
                    timeout_s + 1.0,
                    lambda: self._adapter.wait_until_ready(scope, timeout_s),
                )
            except BackendTimeout:
                answer = BackendReadiness(state="pending", detail=f"no answer within {timeout_s:g} s")
            return answer

        answer = await self._rules.read("wait_until_ready", scope, wait)
        return self._undelivered(scope) or answer


class _NativeMutation(_View):
    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        rules = self._rules
        return await rules.write(
            "native_mutation",
            request.scope,
            lambda: rules.call(
                "native_mutation", rules.deadlines.write_s, lambda: self._adapter.native_mutation(request)
            ),
            lambda: NativeMutationReceipt(status="skipped_read_only"),
        )


class _Provenance(_View):
    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        rules = self._rules
        return await rules.read(
            "provenance",
            request.scope,
            lambda: rules.call(
                "provenance", rules.deadlines.query_s, lambda: self._adapter.provenance(request)
            ),
        )


class _NativeQuery(_View):
    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        rules = self._rules
        return await rules.read(
            "native_query",
            request.scope,
            lambda: rules.call(
                "native_query", rules.deadlines.query_s, lambda: self._adapter.native_query(request)
            ),
        )


# Callable, because mypy accepts no protocol class where it reads type[T].
_VIEWS: dict[Callable[..., Any], tuple[str, type[_View]]] = {
    SupportsFeedback: ("feedback", _Feedback),
    SupportsBulkIngest: ("bulk_ingest", _BulkIngest),
    SupportsReadiness: ("readiness", _Readiness),
    SupportsNativeMutation: ("native_mutation", _NativeMutation),
    SupportsProvenance: ("provenance", _Provenance),
    SupportsNativeQuery: ("native_query", _NativeQuery),
}


def guard(rules: Rules, delivery: Delivery, protocol: Callable[..., T]) -> T | None:
    """The guarded view of a capability, or None where the adapter lacks or withholds it.

    Raises:
        InputError: ``protocol`` is not one of the six capability protocols.
    """
    if protocol not in _VIEWS:
        known = ", ".join(getattr(view, "__name__", "") for view in _VIEWS)
        raise InputError(f"capability() takes one of {known}")
    name, view = _VIEWS[protocol]
    return cast(T, view(rules, delivery)) if name in capabilities_of(rules.adapter) else None
