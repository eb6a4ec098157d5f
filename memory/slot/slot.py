"""MemorySlot: the object that a host holds. It applies every rule that all adapters share (DESIGN section 5).

An event passes through ``calls.NativeCalls`` (trace, scope, mode, order) and ``writes.Writes`` (outbox,
look-up). ``NativeCalls.call`` (place, deadline, errors) then calls the adapter. No call bypasses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar, Unpack, cast
from uuid import UUID

import anyio

from memory.contract.adapter import (
    MemoryAdapter,
    SupportsReadiness,
    SupportsStart,
    capabilities_of,
    check_adapter,
    native_scope_of,
)
from memory.contract.errors import MemslotError, ReadOnlyError
from memory.contract.events import MemoryEvent
from memory.contract.formatting import TokenCounter, Utf8TokenCounter
from memory.contract.receipts import (
    BackendHealth,
    BackendReadiness,
    ModeReceipt,
    ResetReceipt,
    RetrieveResult,
    WriteReceipt,
)
from memory.contract.requests import CROSS_CONTEXT, AdapterMode, ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits
from memory.slot.calls import Deadlines, NativeCalls
from memory.slot.capabilities import guard, health_of
from memory.slot.delivery import Delivery
from memory.slot.rendering import Rendering, check_filters
from memory.slot.tracing import TraceSink
from memory.slot.turns import RecallFields, TurnFields, event_from_turn, request_of
from memory.storage.insert import FILE_NAME
from memory.storage.journal import Journal
from memory.storage.store import SqliteStore, Store

T = TypeVar("T")


class Companion(Protocol):
    """An object that is built on a slot and closed before it."""

    async def aclose(self) -> None: ...


C = TypeVar("C", bound=Companion)


class MemorySlot(MemoryAdapter):
    """The memory that an agent loop holds. A slot is itself a :class:`MemoryAdapter`.

    Args:
        adapter: the backend or condition behind the slot.
        scope: default scope of :meth:`before_turn` and :meth:`after_turn`. Opening the slot sets it up.
        budget: default budget of :meth:`before_turn`.
        deadlines: seconds per kind of native call.
        token_counter: measures the context section; its name goes into every trace.
        trace_sink: receives the trace of every call.
        native_ids: context sections show the native id of each entry that has one.
        neutral_sections: context sections name neither backend nor scope, so no model can tell either.
        journal: keeps every event before it is sent; closed with the slot. None keeps nothing.
        store: this memory's store, or its directory. The slot notes resets in it. A scope's reset also
            removes what hosts keep there for the scope. None notes nothing.

    A slot belongs to the event loop that first uses it. Use it as ``async with slot:``, or call
    :meth:`aclose` yourself.

    Attributes:
        delivery: the waiting events, and calls beyond the contract for code that is built on a slot.
    """

    def __init__(
        self,
        adapter: MemoryAdapter,
        *,
        scope: MemoryScope | None = None,
        budget: ContextBudget | None = None,
        deadlines: Deadlines | None = None,
        token_counter: TokenCounter | None = None,
        trace_sink: TraceSink | None = None,
        journal: Journal | None = None,
        store: Store | Path | None = None,
        native_ids: bool = False,
        neutral_sections: bool = False,
    ) -> None:
        check_adapter(adapter)
        self.backend_name = adapter.backend_name
        self._adapter = adapter
        calls = self._calls = NativeCalls(adapter, deadlines or Deadlines(), trace_sink)
        counter: TokenCounter = token_counter or Utf8TokenCounter()
        self.delivery = Delivery(
            calls,
            SqliteStore(store / FILE_NAME) if isinstance(store, Path) else store,
            journal,
            self.setup_scope,
            scope,
            budget or ContextBudget(),
            counter,
        )
        self._rendering = Rendering(adapter, counter, neutral=neutral_sections, native_ids=native_ids)
        self._companions: dict[type, Companion] = {}

    async def __aenter__(self) -> Self:
        try:
            if self.scope is not None:
                await self.setup_scope(self.scope)
            elif isinstance(self._adapter, SupportsStart):
                with self._calls.span("start") as span:
                    await self._calls.call(span, self._calls.deadlines.setup_s, self._adapter.start)
        except BaseException:
            with suppress(MemslotError):  # the caller needs the first error, not this one
                await self.aclose()
            raise
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.aclose()

    @property
    def scope(self) -> MemoryScope | None:
        """The default scope of the turn calls."""
        return self.delivery.scope

    @property
    def closed(self) -> bool:
        """Whether the slot refuses every further call."""
        return self._calls.closed

    @property
    def traits(self) -> AdapterTraits:
        """The adapter's declared behaviour."""
        return self._calls.traits

    def __repr__(self) -> str:
        return f"<MemorySlot of {self.backend_name}{', read-only' if self.read_only else ''}>"

    @property
    def read_only(self) -> bool:
        """Whether writes are currently refused."""
        return self._calls.gate.read_only

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The scope's native ids, for the manifest."""
        return native_scope_of(self._adapter, scope)

    def capabilities(self) -> frozenset[str]:
        """Names of the capabilities that this adapter offers with its configuration."""
        return capabilities_of(self._adapter)

    def capability(self, protocol: Callable[..., T]) -> T | None:
        """The guarded capability, e.g. ``slot.capability(SupportsReadiness)``; None if the adapter lacks it.

        The mode gate, scope check, deadline, trace and error mapping apply as for the contract's calls.
        Raises InputError if ``protocol`` is not a capability protocol.
        """
        return guard(self._calls, self.delivery, protocol)

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Make a scope usable until the slot is closed. Idempotent.

        Raises:
            ScopeError: the adapter cannot represent the scope without sharing.
            ReadOnlyError: the slot is read-only, the set-up may write, and the scope was not set up before.
            BackendError: the backend failed.
        """
        calls = self._calls
        with calls.span("setup_scope", scope) as span:
            native_scope_of(self._adapter, scope)
            async with calls.gate.writing(calls.order(scope)) as allowed:
                if allowed or not calls.traits.setup_writes:
                    calls.scopes.setdefault(scope, False)
                    await calls.call(span, calls.deadlines.setup_s, lambda: self._adapter.setup_scope(scope))
                    calls.scopes[scope] = True
                elif not calls.scopes.get(scope, False):
                    raise ReadOnlyError(
                        f"scope {scope.label} is not set up, which may write; set it up before set_mode(read_only)"
                    )
        await self.delivery.resume(scope)

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch between accumulation and read-only test sessions (spec 4.2).

        The switch waits at most ``deadlines.drain_s`` for writes in flight. Writes that arrive meanwhile
        wait for the switch. The slot becomes read-only even if the adapter fails to.

        Raises:
            BackendTimeout: writes did not end in time (the mode is unchanged), or the adapter did not answer.
            BackendError: the adapter failed.
        """
        calls = self._calls
        with calls.span("set_mode") as span, calls.mapping("set_mode"):
            async with calls.gate.switching(mode.read_only, calls.deadlines.drain_s) as drained:
                await calls.call(span, calls.deadlines.write_s, lambda: self._adapter.set_mode(mode))
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason, drained=drained)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Write one event. While read-only nothing is sent and the receipt says ``skipped_read_only``.

        Returns:
            The receipt. ``unknown`` means that the event was sent and may be stored: the server failed or
            did not answer, or its answer is unreadable.

        Raises:
            ScopeError: the event's scope is not set up.
            InputError: the event holds nothing but recalled context.
            BackendError: the backend failed, and the event is not stored.
        """
        return await self.delivery.record(event)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Ask the memory. The result holds the raw payload, the fitted context section and the trace.

        Raises:
            ScopeError: the scope is not set up, or a filter would widen it.
            IsolationError: the backend returned a row of another scope.
            BackendError: the backend failed. An empty result is never an error.
        """
        calls, fields = self._calls, {"session_id": request.session_id}
        if request.filters.get(CROSS_CONTEXT) is True:
            fields["cs_filtering"] = "none"
        with calls.span("retrieve", request.scope, **fields) as span:
            calls.check_scope(request.scope)
            self.delivery.resetting.check_readable(request.scope)
            check_filters(request, calls.traits.filter_operators)
            asked = self._rendering.asked(request)
            waited = self.delivery.waiting(request.scope)
            result = await calls.call(
                span, calls.deadlines.retrieve_s, lambda: self._adapter.retrieve(asked), RetrieveResult
            )
            with calls.mapping("format_context"):
                result, section, measured = self._rendering.fitted(result, request)
            state = self.delivery.consistency(request.scope, result.trace.consistency, waited=waited)
            trace = calls.finish(span, result.trace, consistency=state, **measured)
        return result.model_copy(update={"formatted_context": section, "trace": trace})

    def format_context(self, result: RetrieveResult) -> str:
        """The result's context section; ``retrieve`` has already put it into ``formatted_context``.

        Raises:
            BackendError: the adapter's own rendering failed.
        """
        with self._calls.mapping("format_context"):
            return result.formatted_context or self._rendering.section(result)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Clear exactly this scope, after its writes in flight. The scope stays set up.

        A reset also works after a failed set-up, because it may repair a broken store. It discards the
        scope's waiting events, unless the backend certainly reset nothing.

        Raises:
            ReadOnlyError: the slot is read-only; a test session must not reset anything.
        """

        def refuse() -> ResetReceipt:
            raise ReadOnlyError("reset_scope is refused while the slot is read-only; set_mode first")

        async def perform() -> ResetReceipt:
            self.delivery.recalls.forget(scope)
            return await self.delivery.writes.reset(span, scope)

        with self._calls.span("reset_scope", scope) as span:
            return await self._calls.write(span, perform, refuse, tried=True)

    async def health(self) -> BackendHealth:
        """Probe the backend. A failed probe gives ``unavailable`` with diagnostics and raises nothing."""
        return await health_of(self._calls, self.delivery)

    def companion(self, kind: type[C], make: Callable[[], C]) -> C:
        """This slot's single object of a kind. The first call makes it; :meth:`aclose` closes it first."""
        return cast(C, self._companions.setdefault(kind, self._companions.get(kind) or make()))

    async def aclose(self) -> None:
        """Wait for calls under way (at most ``deadlines.close_s``) and release the adapter. Idempotent.

        Before that, background deliveries of turns get the time of one write. The rest stays in the journal.
        A cancelled close still runs to its end. A second one waits for the first and retries if it failed.

        Raises:
            BackendError: the adapter could not release everything.
        """
        calls = self._calls
        if not self.closed:
            calls.check_loop()
        try:
            for companion in self._companions.values():
                await companion.aclose()
        finally:
            try:
                if not self.closed:
                    with anyio.CancelScope(shield=True):
                        await self.delivery.end_deliveries()
                await calls.close()
            finally:
                if calls.released:
                    self.delivery.close()

    async def before_turn(
        self, user: str, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[RecallFields]
    ) -> str:
        """The context section for the prompt of the coming turn, or ``""`` if nothing is remembered.

        It omits rows that the backend marks as part of this session, because the chat still shows them.
        It shows equal texts once, and no row with a score below the backend's floor.

        Args:
            user: what the user just said, without recalled context.
            session_id: the conversation.
            scope: replaces the slot's default.
            fields: see :class:`~memory.slot.turns.RecallFields`.
        """
        fields["budget"] = fields.get("budget") or self.delivery.budget
        fields.setdefault("exclude_session", True)
        request = request_of(user, session_id, self.delivery.scope_or_default(scope), **fields)
        resets = await self.delivery.recalls.resets(request.scope)
        shown = self.for_prompt(await self.retrieve(request))
        self.delivery.recalls.note(shown, resets)
        return shown.formatted_context

    def for_prompt(self, result: RetrieveResult) -> RetrieveResult:
        """The result as :meth:`before_turn` shows it."""
        with self._calls.mapping("format_context"):
            return self._rendering.for_prompt(result, self._calls.traits.score_floor)

    async def after_turn(
        self, *, session_id: str, scope: MemoryScope | None = None, **fields: Unpack[TurnFields]
    ) -> WriteReceipt:
        """Record what was said in a turn.

        If the slot has a journal and the backend extracts with a language model, no turn waits for the
        extraction: the receipt says ``queued``, and the delivery follows in the background.

        Args:
            session_id: the conversation.
            scope: replaces the slot's default.
            fields: see :class:`~memory.slot.turns.TurnFields`.
        """
        event = event_from_turn(session_id, self.delivery.scope_or_default(scope), **fields)
        receipt = await self.delivery.record_turn(event)
        if receipt.status != "skipped_read_only":
            await self.delivery.recalls.keep(event)
        return receipt

    def for_scope(
        self,
        scope: MemoryScope | str | int | UUID | None = None,
        *,
        persona_id: str | int | UUID | None = None,
        run_id: str | int | UUID | None = None,
        agent_id: str | int | UUID | None = None,
    ) -> ScopedMemory:
        """One person's view of this slot, set up at its first use: ``memory.for_scope("alice")``.

        Share one slot in the whole process: a second one cannot open an embedded store, which is locked.

        Args:
            scope: a scope, or a person's id within the slot's own scope. Default: the slot's own scope.
            persona_id, run_id, agent_id: replace the scope's fields.

        Raises:
            ScopeError: neither the call nor the slot gives a scope, or an id is malformed.
        """
        if scope is not None and not isinstance(scope, MemoryScope):
            scope, persona_id = None, scope
        given = {"persona_id": persona_id, "run_id": run_id, "agent_id": agent_id}
        changed = {name: value for name, value in given.items() if value is not None}
        whole = not (scope or self.scope) and {"persona_id", "run_id"} <= changed.keys()
        base = {} if whole else dict(self.delivery.scope_or_default(scope))
        return ScopedMemory(self, MemoryScope(**{**base, **changed}))


@dataclass(slots=True, eq=False)
class ScopedMemory:
    """A light view of a slot, which needs no closing.

    Its first use sets its scope up.
    """

    _slot: MemorySlot
    scope: MemoryScope

    def __repr__(self) -> str:
        return f"<memory of {self.scope.label} on {self._slot.backend_name}>"

    async def before_turn(self, user: str, *, session_id: str, **fields: Unpack[RecallFields]) -> str:
        """As :meth:`MemorySlot.before_turn`."""
        await self._slot.delivery.set_up(self.scope)
        return await self._slot.before_turn(user, session_id=session_id, scope=self.scope, **fields)

    async def after_turn(self, *, session_id: str, **fields: Unpack[TurnFields]) -> WriteReceipt:
        """As :meth:`MemorySlot.after_turn`."""
        await self._slot.delivery.set_up(self.scope)
        return await self._slot.after_turn(session_id=session_id, scope=self.scope, **fields)

    async def reset(self) -> ResetReceipt:
        """As :meth:`MemorySlot.reset_scope`."""
        await self._slot.delivery.set_up(self.scope)
        return await self._slot.reset_scope(self.scope)

    async def wait_until_ready(self, timeout_s: float) -> BackendReadiness:
        """Wait at most ``timeout_s`` seconds until all writes are retrievable.

        The state is ``unknown`` if the backend cannot tell.
        """
        await self._slot.delivery.set_up(self.scope)
        readiness = self._slot.capability(SupportsReadiness)
        if readiness is None:
            return BackendReadiness(state="unknown", detail=f"{self._slot.backend_name} does not tell")
        return await readiness.wait_until_ready(self.scope, timeout_s)
