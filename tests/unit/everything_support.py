"""An adapter with every capability, and every call of the contract by name, for rules that hold for all of them."""

from datetime import UTC, datetime

from slot_support import ALICE, Obedient, ask, event

from memory import (
    BackendReadiness,
    FeedbackReceipt,
    MemoryFeedback,
    MemoryScope,
    NativeMutationReceipt,
    NativeMutationRequest,
    NativeQueryRequest,
    NativeQueryResult,
    ProvenanceRequest,
    ProvenanceResult,
    SupportsBulkIngest,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
    WriteReceipt,
)

STRANGER = MemoryScope(run_id="r", persona_id="stranger")


class Everything(Obedient):
    """Each native call goes through ``native``, which a test may replace."""

    async def native(self, name):
        """Called first by every native call."""

    async def setup_scope(self, scope):
        await self.native("setup_scope")

    async def set_mode(self, mode):
        await self.native("set_mode")
        return await super().set_mode(mode)

    async def record_event(self, event):
        await self.native("record_event")
        return await super().record_event(event)

    async def record_events(self, events):
        await self.native("record_events")
        return [WriteReceipt(event_id=event.event_id, status="committed") for event in events]

    async def retrieve(self, request):
        await self.native("retrieve")
        return await super().retrieve(request)

    async def apply_feedback(self, feedback):
        await self.native("apply_feedback")
        return FeedbackReceipt(feedback_id=feedback.feedback_id, status="committed")

    async def native_mutation(self, request):
        await self.native("native_mutation")
        return NativeMutationReceipt(status="committed", native_ids=(request.native_id,))

    async def readiness(self, scope):
        await self.native("readiness")
        return BackendReadiness(state="ready")

    async def wait_until_ready(self, scope, timeout_s):
        await self.native("wait_until_ready")
        return BackendReadiness(state="ready")

    async def provenance(self, request):
        await self.native("provenance")
        return ProvenanceResult(raw={})

    async def native_query(self, request):
        await self.native("native_query")
        return NativeQueryResult(raw={})

    async def reset_scope(self, scope):
        await self.native("reset_scope")
        return await super().reset_scope(scope)

    async def health(self):
        await self.native("health")
        return await super().health()


def feedback(scope=ALICE, text="no"):
    return MemoryFeedback(
        feedback_id="f", scope=scope, session_id="s", timestamp=datetime(2024, 1, 1, tzinfo=UTC), content=text
    )


def calls(slot, scope=ALICE):
    """Every call that goes to the adapter, by its name in traces."""
    mutation = NativeMutationRequest(scope=scope, operation="delete", native_id="n1")
    query, source = NativeQueryRequest(scope=scope, operation="count"), ProvenanceRequest(scope=scope)
    return {
        "record_event": lambda: slot.record_event(event(scope=scope)),
        "record_events": lambda: slot.capability(SupportsBulkIngest).record_events([event(2, scope)]),
        "apply_feedback": lambda: slot.capability(SupportsFeedback).apply_feedback(feedback(scope)),
        "native_mutation": lambda: slot.capability(SupportsNativeMutation).native_mutation(mutation),
        "reset_scope": lambda: slot.reset_scope(scope),
        "retrieve": lambda: slot.retrieve(ask(scope)),
        "readiness": lambda: slot.capability(SupportsReadiness).readiness(scope),
        "wait_until_ready": lambda: slot.capability(SupportsReadiness).wait_until_ready(scope, 5),
        "provenance": lambda: slot.capability(SupportsProvenance).provenance(source),
        "native_query": lambda: slot.capability(SupportsNativeQuery).native_query(query),
        "health": slot.health,
        "setup_scope": lambda: slot.setup_scope(scope),
    }


WRITES = ("record_event", "record_events", "apply_feedback", "native_mutation", "reset_scope")
READS = ("retrieve", "readiness", "wait_until_ready", "provenance", "native_query")
NAMES = (*WRITES, *READS, "health", "setup_scope")
