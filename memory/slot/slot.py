"""MemorySlot: what a host holds. Every rule that holds for all adapters is applied here, once (DESIGN section 5).
An event goes through ``rules.Rules`` (trace, scope, mode, order), ``delivery.Delivery`` (journal, look-up) and
``Rules.call`` (place, deadline, errors) to the adapter, as does every other call; none goes past ``Rules.call``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self, TypeVar

from memory.contract.adapter import (
    AdapterTraits,
    MemoryAdapter,
    SupportsEventLookup,
    SupportsStart,
    capabilities_of,
    check_adapter,
    native_scope_of,
)
from memory.contract.errors import CapabilityNotSupported, MemslotError, ReadOnlyError
from memory.contract.events import MemoryEvent
from memory.contract.formatting import TokenCounter, Utf8TokenCounter
from memory.contract.receipts import (
    BackendHealth,
    ModeReceipt,
    ResetReceipt,
    RetrieveResult,
    Trace,
    WriteReceipt,
)
from memory.contract.requests import CROSS_CONTEXT, AdapterMode, ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.slot.capabilities import guard, health_of
from memory.slot.delivery import Delivery, skipped_receipts
from memory.slot.durable import DurableDelivery
from memory.slot.journal import Journal
from memory.slot.rendering import Rendering, check_filters, without_recalled_context
from memory.slot.rules import Deadlines, Rules, Span
from memory.slot.sqlite_file import Place
from memory.slot.tracing import TraceSink
from memory.slot.turns import HostCalls, ScopedMemory, ScopeLeases

T = TypeVar("T")


class MemorySlot(HostCalls):
    """The memory an agent loop holds. Itself a :class:`MemoryAdapter`.

    Args:
        adapter: the backend or condition behind the slot.
        scope: default scope of :meth:`before_turn` and :meth:`after_turn`; set up when the slot is opened.
        budget: default budget of :meth:`before_turn`.
        deadlines: seconds per kind of native call.
        token_counter: measures the context section; its name goes into every trace.
        trace_sink: receives the trace of every call.
        native_ids: context sections show the native id of each entry that has one.
        neutral_sections: context sections name neither backend nor scope, so that no model can tell them by that.
        idle_scopes: scopes of :meth:`for_scope` kept set up while nobody uses them.
        journal: keeps every event before it is sent; closed with the slot. None keeps nothing.
        host_file: what hosts keep beside the memory, see :mod:`memory.slot.host_store`; goes with a scope's reset.

    A slot belongs to the event loop that first uses it. Use it as ``async with slot:``, or call
    :meth:`aclose` yourself.

    Attributes:
        delivery: what waits for the backend, for what is built on the slot.
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
        host_file: Place | None = None,
        native_ids: bool = False,
        neutral_sections: bool = False,
        idle_scopes: int = 256,
    ) -> None:
        check_adapter(adapter)
        self.backend_name = adapter.backend_name
        super().__init__(scope, budget or ContextBudget())
        self.host_file = host_file
        self.deadlines = deadlines or Deadlines()
        self.token_counter: TokenCounter = token_counter or Utf8TokenCounter()
        self._adapter = adapter
        rules = self._rules = Rules(adapter, self.deadlines, trace_sink)
        self.leases = ScopeLeases(self, idle_scopes)
        self.delivery = DurableDelivery(rules, host_file, journal) if journal else Delivery(rules, host_file)
        self._rendering = Rendering(
            adapter, self.token_counter, neutral=neutral_sections, native_ids=native_ids
        )

    async def __aenter__(self) -> Self:
        try:
            if self.scope is not None:
                await self.setup_scope(self.scope)
            elif isinstance(self._adapter, SupportsStart):
                with self._rules.span("start") as span:
                    await self._rules.call(span, self.deadlines.setup_s, self._adapter.start)
        except BaseException:
            with suppress(MemslotError):  # that it did not open is what is to be told
                await self.aclose()
            raise
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self.aclose()

    @property
    def closed(self) -> bool:
        """Whether it takes no call any more."""
        return self._rules.closed

    @property
    def traits(self) -> AdapterTraits:
        """The adapter's declared behaviour."""
        return self._rules.traits

    def __repr__(self) -> str:
        return f"<MemorySlot of {self.backend_name}{', read-only' if self.read_only else ''}>"

    @property
    def read_only(self) -> bool:
        """Whether writes are currently refused."""
        return self._rules.gate.read_only

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The scope's native ids, for the manifest."""
        return native_scope_of(self._adapter, scope)

    def capabilities(self) -> frozenset[str]:
        """Names of the capabilities this adapter, configured as it is, offers."""
        return capabilities_of(self._adapter)

    def capability(self, protocol: Callable[..., T]) -> T | None:
        """The guarded capability, e.g. ``slot.capability(SupportsReadiness)``, or None where there is none.

        Guarded means: mode gate, scope check, deadline, trace and error mapping, as for the contract itself.

        Raises:
            InputError: ``protocol`` is not a capability protocol.
        """
        return guard(self._rules, self.delivery, protocol)

    def trace_to(self, sink: TraceSink) -> None:
        """Let one more sink receive the trace of every call."""
        self._rules.sinks.append(sink)

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Make a scope usable. Idempotent. While read-only only where ``traits.setup_writes`` is False.

        Raises:
            ScopeError: the adapter cannot represent the scope without sharing.
            ReadOnlyError: the slot is read-only, and the scope was not set up before.
            BackendError: the backend failed.
        """
        rules = self._rules
        with rules.span("setup_scope", scope) as span:
            native_scope_of(self._adapter, scope)
            async with rules.gate.writing(rules.lanes.order(scope)) as allowed:
                if allowed or not rules.traits.setup_writes:
                    rules.scopes.setdefault(scope, False)
                    await rules.call(span, self.deadlines.setup_s, lambda: self._adapter.setup_scope(scope))
                    rules.scopes[scope] = True
                elif not rules.scopes.get(scope, False):
                    raise ReadOnlyError(
                        f"scope {scope.label} is not set up, which may write; set it up before set_mode(read_only)"
                    )
        await self.delivery.deliver(scope)

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """Native ids an event is stored under, or None where it is not stored; see :attr:`can_look_up`.

        Raises:
            CapabilityNotSupported: this backend has no look-up.
            BackendError: the backend failed.
        """
        rules = self._rules
        with rules.span("find_event", event.scope, event_id=event.event_id) as span:
            if not self.can_look_up:
                raise CapabilityNotSupported(f"{self.backend_name} cannot look an event up by its id")
            rules.check_scope(event.scope)
            return await rules.look_up(span, event)

    @property
    def can_look_up(self) -> bool:
        """Whether :meth:`find_event` can say if an event is stored."""
        return isinstance(self._adapter, SupportsEventLookup)

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch between accumulation and read-only test sessions (spec 4.2).

        Writes in flight are finished first, for at most ``deadlines.drain_s``; writes arriving meanwhile wait for
        the switch. Should the adapter fail while becoming read-only, the slot is read-only all the same.

        Raises:
            BackendTimeout: writes did not end in time, and the mode is as before; or the adapter did not answer.
            BackendError: the adapter failed.
        """
        rules = self._rules
        with rules.span("set_mode") as span, rules.mapping("set_mode"):
            async with rules.gate.switching(mode.read_only, self.deadlines.drain_s) as drained:
                await rules.call(span, self.deadlines.write_s, lambda: self._adapter.set_mode(mode))
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason, drained=drained)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Write one event. While read-only nothing is sent and the receipt says ``skipped_read_only``.

        Returns:
            The receipt. ``unknown`` means that it was sent and may be stored: no answer, a failure of the server,
            or an answer that cannot be read.

        Raises:
            ScopeError: the event's scope is not set up.
            InputError: nothing is left of the event once recalled context is stripped.
            BackendError: the backend failed, and the event is not stored.
        """
        with self._span_of(event) as span:
            event = without_recalled_context(event)
            written = await self._rules.write(
                span, lambda: self.delivery.write(span, event), lambda: skipped_receipts(event)
            )
            return written[0]

    def _span_of(self, event: MemoryEvent) -> Span:
        ids = {"session_id": event.session_id, "event_id": event.event_id}
        return self._rules.span("record_event", event.scope, **ids)

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Ask the memory; the result holds the raw payload, the fitted context section and the trace.

        Raises:
            ScopeError: the scope is not set up, or a filter would widen it.
            IsolationError: the backend returned a row of another scope.
            BackendError: the backend failed. Empty is never an error, and an error never looks empty.
        """
        rules, fields = self._rules, {"session_id": request.session_id}
        if request.filters.get(CROSS_CONTEXT) is True:
            fields["cs_filtering"] = "none"
        with rules.span("retrieve", request.scope, **fields) as span:
            rules.check_scope(request.scope)
            self.delivery.check_readable(request.scope)
            check_filters(request, rules.traits.filter_operators)
            asked = self._rendering.asked(request)
            waited = self.delivery.waiting(request.scope)
            result = await rules.call(
                span, self.deadlines.retrieve_s, lambda: self._adapter.retrieve(asked), RetrieveResult
            )
            with rules.mapping("format_context"):
                result, section, measured = self._rendering.fitted(result, request)
            state = self.delivery.consistency(request.scope, result.trace.consistency, waited=waited)
            trace = rules.finish(span, result.trace, consistency=state, **measured)
        return result.model_copy(update={"formatted_context": section, "trace": trace})

    def format_context(self, result: RetrieveResult) -> str:
        """The result's context section; ``retrieve`` has already put it into ``formatted_context``.

        Raises:
            BackendError: the adapter's own rendering failed.
        """
        with self._rules.mapping("format_context"):
            return result.formatted_context or self._rendering.section(result)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Clear exactly this scope, after its writes in flight. The scope stays set up.

        A scope whose set-up has failed may be reset, and set up again: its store may be what is broken. What waits
        for it in a journal is delivered no more, unless the backend surely reset nothing.

        Raises:
            ReadOnlyError: the slot is read-only; a test session must not reset anything.
        """
        rules = self._rules

        def refuse() -> ResetReceipt:
            raise ReadOnlyError("reset_scope is refused while the slot is read-only; set_mode first")

        with rules.span("reset_scope", scope) as span:
            return await rules.write(span, lambda: self.delivery.reset(span, scope), refuse, tried=True)

    async def health(self) -> BackendHealth:
        """Probe the backend. A failing probe is ``unavailable`` with diagnostics, not an exception."""
        return await health_of(self._rules, self.delivery)

    async def aclose(self) -> None:
        """Wait for calls under way (at most ``deadlines.close_s``) and release the adapter. Idempotent.

        Cancelled, it goes on to its end. A second closer waits for the first, and tries again where that failed.

        Raises:
            BackendError: the adapter could not release everything.
        """
        try:
            await self._rules.close()
        finally:
            if self._rules.released:
                self.delivery.close()

    def for_scope(
        self,
        scope: MemoryScope | None = None,
        *,
        persona_id: str | None = None,
        run_id: str | None = None,
        agent_id: str | None = None,
    ) -> ScopedMemory:
        """One person's view of this slot, set up when first used: ``memory.for_scope(persona_id="alice")``.

        One slot serves a whole process: an embedded store is locked by the slot that opened it, so share the slot
        instead of opening a second one.

        Args:
            scope: whose memory; by default the slot's own scope, with what is given beside it in its place.
            persona_id, run_id, agent_id: in place of the scope's.

        Raises:
            ScopeError: there is no scope to begin from, or an id is malformed.
        """
        given = {"persona_id": persona_id, "run_id": run_id, "agent_id": agent_id}
        changed = {name: value for name, value in given.items() if value is not None}
        whole = not (scope or self.scope) and {"persona_id", "run_id"} <= changed.keys()
        base = {} if whole else dict(self.scope_or_default(scope))
        return ScopedMemory(self, self.leases, MemoryScope(**{**base, **changed}))

    def is_set_up(self, scope: MemoryScope) -> bool:
        """Whether :meth:`setup_scope` was called for it, and :meth:`release_scope` not since."""
        return self._rules.scopes.get(scope, False)

    def release_scope(self, scope: MemoryScope) -> None:
        """Forget that a scope was set up, with what is held for it in this process. Its memory stays."""
        self._rules.drop_scope(scope)

    async def keep_event(self, event: MemoryEvent) -> bool | None:
        """Make an event durable in the journal now; :meth:`deliver_waiting` sends it, or the next start.

        Returns:
            True where it is in the journal and waits, False where it was delivered before, and None where nothing
            was kept: there is no journal, or the slot is read-only.

        Raises:
            JournalError: the journal cannot keep it.
            InputError: nothing is left of it once recalled context is stripped, or its id has other messages.
            BackendRejected: it was refused for good before.
            ScopeError: the adapter cannot represent its scope.
        """
        if self.read_only or self.closed:
            return None
        native_scope_of(self._adapter, event.scope)
        return await self.delivery.keep(without_recalled_context(event))

    def resets(self, scope: MemoryScope | None = None) -> int:
        """How often a scope, or any, was reset through this slot, or may have been."""
        return self.delivery.resets.total() if scope is None else self.delivery.resets[scope]

    async def record_accepted(
        self, event: MemoryEvent, resets: int, count: Callable[[MemoryScope], int] | None = None
    ) -> WriteReceipt | None:
        """As :meth:`record_event`, for an event accepted when ``count`` (:meth:`resets` by default) was ``resets``.

        Returns:
            None where its scope was reset since: it is erased with the others, and not sent.
        """
        with self._span_of(event) as span:
            event = without_recalled_context(event)

            async def perform() -> list[WriteReceipt]:
                now = (count or self.resets)(event.scope)
                return await self.delivery.write(span, event) if resets == now else []

            written = await self._rules.write(span, perform, lambda: skipped_receipts(event))
            return written[0] if written else None

    @property
    def has_journal(self) -> bool:
        """Whether events are kept before they are sent."""
        return isinstance(self.delivery, DurableDelivery)

    async def deliver_waiting(self, scope: MemoryScope) -> str | None:
        """Deliver what waits for a scope that is set up; why some of it waits on, or None."""
        return await self.delivery.deliver(scope)

    def emit_trace(self, operation: str, scope: MemoryScope | None, **fields: object) -> Trace:
        """A line in the trace for what was decided about the memory without a call of it, such as ``recall``; none
        of its fields is user text."""
        return self._rules.finish(Span(self._rules, operation, scope, {}), None, **fields)
