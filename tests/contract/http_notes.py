"""A notes server on the loopback, an adapter for it, and wrong adapters for the HTTP part of the kit to catch.

Read ``NotesAdapter`` as the smallest honest adapter over HTTP.
"""

import anyio

from memory import BackendError, BackendHealth, BackendReadiness, ResetReceipt, RetrieveResult, WriteReceipt
from memory.adapter import (
    AdapterTraits,
    BackendRejected,
    ContextEntry,
    IdAlphabet,
    ScopeEncoder,
    SequentialBulk,
    ShieldedCalls,
)
from memory.adapter._http import JsonHttp
from memory.testing import LoopbackAnswer, LoopbackServer


class NotesServer(LoopbackServer):
    """``PUT /spaces/x``, ``POST`` and ``GET /spaces/x/notes``, ``DELETE /spaces/x``, ``GET /health``."""

    def __init__(self):
        super().__init__()
        self.spaces = {}

    def state(self):
        return self.spaces

    def handle(self, request):
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["health"]:
                return LoopbackAnswer(200, {"status": "ok"})
            case "PUT", ["spaces", space]:
                return LoopbackAnswer(200, {"notes": len(self.spaces.setdefault(space, []))})
            case "POST", ["spaces", space, "notes"] if space in self.spaces:
                self.spaces[space].append(request.json["text"])
                return LoopbackAnswer(201, {"id": str(len(self.spaces[space]))})
            case "GET", ["spaces", space, "notes"] if space in self.spaces:
                return LoopbackAnswer(200, {"notes": self.spaces[space]})
            case "DELETE", ["spaces", space] if space in self.spaces:
                self.spaces[space] = []
                return LoopbackAnswer(204)
        return LoopbackAnswer(404, {"detail": "not found"})


class NotesAdapter(SequentialBulk):
    backend_name = "notes"
    traits = AdapterTraits(bulk_size=1)
    _encoder = ScopeEncoder(IdAlphabet(), {"space": "{run_id}:{persona_id}:{backend_namespace}:{agent_id}"})

    def __init__(self, url):
        self._http = JsonHttp(url, backend="notes", timeout_s=30)
        self.shielded = ShieldedCalls()

    def native_scope(self, scope):
        return self._encoder.encode(scope)

    def path(self, scope):
        return f"/spaces/{self.native_scope(scope)['space']}"

    async def setup_scope(self, scope):
        await self._http.request("PUT", self.path(scope))

    async def record_event(self, event):
        async def write():
            for message in event.messages:
                await self.post(event, message)

        await self.shielded.run(event.scope, write)
        return WriteReceipt(
            event_id=event.event_id, status="committed", trace=self.trace(event.scope, "POST notes")
        )

    async def post(self, event, message):
        await self._http.request("POST", f"{self.path(event.scope)}/notes", json={"text": message.content})

    async def retrieve(self, request):
        notes = (await self._http.request("GET", f"{self.path(request.scope)}/notes"))["notes"]
        return RetrieveResult(
            request=request,
            raw={"notes": notes},
            entries=tuple(ContextEntry(note) for note in notes),
            trace=self.trace(request.scope, "GET notes"),
        )

    async def readiness(self, scope):
        await self._http.request("PUT", self.path(scope))
        return BackendReadiness(state="ready")

    async def wait_until_ready(self, scope, timeout_s):
        return await self.readiness(scope)

    async def reset_scope(self, scope):
        await self._http.request("DELETE", self.path(scope))
        left = (await self._http.request("PUT", self.path(scope)))["notes"]
        return ResetReceipt(scope=scope, verified=left == 0, trace=self.trace(scope, "DELETE space"))

    async def health(self):
        try:
            await self._http.request("GET", "/health")
        except BackendError as error:
            return BackendHealth(
                backend_name="notes",
                status="unavailable",
                consistency_model="immediate",
                warnings=(str(error),),
            )
        return BackendHealth(backend_name="notes", status="ok", consistency_model="immediate")

    async def aclose_native(self):
        await self._http.aclose()


class SwallowsReadErrors(NotesAdapter):
    async def retrieve(self, request):
        try:
            return await super().retrieve(request)
        except BackendError:
            return RetrieveResult(
                request=request, raw={}, entries=(), trace=self.trace(request.scope, "GET notes")
            )


class SwallowsWriteErrors(NotesAdapter):
    async def post(self, event, message):
        try:
            await super().post(event, message)
        except BackendError:
            pass


class RetriesBlindly(NotesAdapter):
    async def post(self, event, message):
        try:
            await super().post(event, message)
        except BackendError:
            await super().post(event, message)


class RepeatsTheServer(NotesAdapter):
    async def retrieve(self, request):
        try:
            return await super().retrieve(request)
        except BackendError as error:
            text = getattr(getattr(error.__cause__, "response", None), "text", "")
            raise type(error)(
                f"{error}: {text}", operation="GET", diagnostics=error.diagnostics
            ) from error.__cause__


class CallsEverythingRejected(NotesAdapter):
    async def retrieve(self, request):
        try:
            return await super().retrieve(request)
        except BackendError as error:
            raise BackendRejected("refused", diagnostics=error.diagnostics) from error


class ClaimsToHaveReset(NotesAdapter):
    async def reset_scope(self, scope):
        try:
            return await super().reset_scope(scope)
        except BackendError:
            return ResetReceipt(scope=scope, verified=True, trace=self.trace(scope, "DELETE space"))


class ReadyAnyway(NotesAdapter):
    async def readiness(self, scope):
        try:
            return await super().readiness(scope)
        except BackendError:
            return BackendReadiness(state="ready")


class HealthyAnyway(NotesAdapter):
    async def health(self):
        await super().health()
        return BackendHealth(backend_name="notes", status="ok", consistency_model="immediate")


class CannotBeStopped(NotesAdapter):
    async def retrieve(self, request):
        with anyio.CancelScope(shield=True):
            return await super().retrieve(request)


class BlamesTheReader(NotesAdapter):
    """Where nobody listens it says the request was sent."""

    async def setup_scope(self, scope):
        try:
            await super().setup_scope(scope)
        except BackendError as error:
            error.sent = True
            raise


class LosesReceipts(NotesAdapter):
    """All at once, and as if nothing had been written where one event fails."""

    traits = AdapterTraits()

    async def record_events(self, events):
        return [await self.record_event(event) for event in events]


class ClaimsTheWholeBatch(NotesAdapter):
    traits = AdapterTraits()

    async def record_events(self, events):
        try:
            return await super().record_events(events)
        except BackendError as error:
            error.receipts = [WriteReceipt(event_id=event.event_id, status="committed") for event in events]
            raise


HTTP_MUTANTS = {
    SwallowsReadErrors: ("test_a_read_that_met_a_fault_never_looks_empty",),
    SwallowsWriteErrors: ("test_a_write_that_met_a_fault_is_an_error_or_unknown",),
    RetriesBlindly: ("test_a_lost_answer_is_not_stored_twice",),
    RepeatsTheServer: ("test_a_read_that_met_a_fault_never_looks_empty",),
    CallsEverythingRejected: ("test_a_read_that_met_a_fault_never_looks_empty",),
    ClaimsToHaveReset: ("test_a_reset_that_met_a_fault_is_not_verified",),
    ReadyAnyway: ("test_readiness_that_met_a_fault_is_not_ready",),
    HealthyAnyway: ("test_health_tells_of_every_fault",),
    CannotBeStopped: ("test_no_call_hangs_past_its_deadline",),
    LosesReceipts: ("test_a_bulk_write_that_met_a_fault_says_what_it_stored",),
    ClaimsTheWholeBatch: ("test_a_bulk_write_that_met_a_fault_says_what_it_stored",),
    BlamesTheReader: ("test_nobody_listens",),
}
