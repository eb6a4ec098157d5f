"""MemorySlot: what a host holds. Every rule that holds for all adapters is applied here, once (DESIGN section 5).

The way of an event: ``after_turn`` -> ``record_event`` (recalled context stripped) -> ``rules.Rules`` (scope
check, mode gate, order of the scope) -> ``delivery.Delivery`` (journal, look-up, repetition) -> ``Rules.call``
(deadline, error mapping) -> the adapter's ``record_event`` -> the native call; and back, a receipt with its trace.
"""

from __future__ import annotations

import math
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from memory.contract.adapter import AdapterTraits, MemoryAdapter, SupportsEventLookup, capabilities_of
from memory.contract.errors import (
    BackendError,
    BackendProtocolError,
    CapabilityNotSupported,
    InputError,
    IsolationError,
    ReadOnlyError,
    ScopeError,
)
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import (
    fit_entries,
    is_well_formed,
    section_overhead,
    strip_json,
    surely_exceeds,
)
from memory.contract.receipts import (
    BackendHealth,
    ModeReceipt,
    ResetReceipt,
    RetrieveResult,
    WriteReceipt,
    summarise_entries,
)
from memory.contract.requests import AdapterMode, ContextBudget, RetrieveRequest
from memory.contract.scope import MemoryScope
from memory.contract.tokens import TokenCounter, Utf8TokenCounter
from memory.slot.capabilities import guard
from memory.slot.delivery import Delivery
from memory.slot.durable import DurableDelivery
from memory.slot.filters import check_filters
from memory.slot.journal import Journal
from memory.slot.rules import Deadlines, Rules, without_recalled_context
from memory.slot.tracing import TraceSink
from memory.slot.view import Occupancy, ScopedMemory

__all__ = ["Deadlines", "MemorySlot"]

T = TypeVar("T")


class MemorySlot:
    """The memory an agent loop holds. Itself a :class:`MemoryAdapter`.

    Args:
        adapter: the backend or condition behind the slot.
        scope: default scope of :meth:`before_turn` and :meth:`after_turn`; set up when the slot is opened.
        budget: default budget of :meth:`before_turn`.
        deadlines: seconds per kind of native call.
        token_counter: measures the context section; its name goes into every trace.
        trace_sink: receives the trace of every call.
        idle_scopes: scopes of :meth:`for_scope` kept set up while nobody uses them.
        journal: keeps every event before it is sent; closed with the slot. None keeps nothing.

    A slot belongs to the event loop that first uses it. Use it as ``async with slot:``, or call
    :meth:`aclose` yourself.
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
        idle_scopes: int = 256,
    ) -> None:
        self.backend_name = adapter.backend_name
        self.scope = scope
        self.budget = budget or ContextBudget()
        self.deadlines = deadlines or Deadlines()
        self.token_counter: TokenCounter = token_counter or Utf8TokenCounter()
        self._adapter = adapter
        self._rules = Rules(adapter, self.deadlines, trace_sink)
        self.occupancy = Occupancy(self, idle_scopes)
        self._delivery = DurableDelivery(self._rules, journal) if journal else Delivery(self._rules)

    async def __aenter__(self) -> Self:
        try:
            if self.scope is not None:
                await self.setup_scope(self.scope)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- what the slot is -------------------------------------------------------------------------------

    @property
    def traits(self) -> AdapterTraits:
        """The adapter's declared behaviour."""
        return self._rules.traits

    @property
    def read_only(self) -> bool:
        """Whether writes are currently refused."""
        return self._rules.gate.read_only

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        """The scope's native ids, for the manifest."""
        return self._adapter.native_scope(scope)

    def capabilities(self) -> frozenset[str]:
        """Names of the capabilities this adapter, configured as it is, offers."""
        return capabilities_of(self._adapter)

    def capability(self, protocol: Callable[..., T]) -> T | None:
        """The guarded capability, e.g. ``slot.capability(SupportsReadiness)``, or None where there is none.

        Guarded means: mode gate, scope check, deadline, trace and error mapping, as for the contract itself.

        Raises:
            InputError: ``protocol`` is not one of the six capability protocols.
        """
        return guard(self._rules, self._delivery, protocol)

    # -- the contract -----------------------------------------------------------------------------------

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Make a scope usable. Idempotent.

        Raises:
            ScopeError: the adapter cannot represent the scope without sharing.
            BackendError: the backend failed.
        """
        rules = self._rules
        rules.enter()
        self._adapter.native_scope(scope)
        rules.try_scope(scope)
        async with rules.observed("setup_scope", scope):
            await rules.call("setup_scope", self.deadlines.setup_s, lambda: self._adapter.setup_scope(scope))
        rules.add_scope(scope)
        await self._delivery.deliver(scope)

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """Native ids an event is stored under, or None where it is not stored; see :attr:`can_look_up`.

        Raises:
            CapabilityNotSupported: this backend has no look-up.
            BackendError: the backend failed.
        """
        adapter, rules = self._adapter, self._rules
        if not isinstance(adapter, SupportsEventLookup):
            raise CapabilityNotSupported(f"{self.backend_name} cannot look an event up by its id")
        rules.check_scope(event.scope)
        async with rules.observed("find_event", event.scope, event_id=event.event_id):
            return await rules.call("find_event", self.deadlines.query_s, lambda: adapter.find_event(event))

    @property
    def can_look_up(self) -> bool:
        """Whether :meth:`find_event` can say if an event is stored."""
        return isinstance(self._adapter, SupportsEventLookup)

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch between accumulation and read-only test sessions (spec 4.2).

        Writes in flight are finished first; writes arriving meanwhile wait for the switch. Should the adapter
        fail while becoming read-only, the slot is read-only all the same and the error is raised.
        """
        rules = self._rules
        rules.enter()
        async with rules.observed("set_mode", None), rules.gate.switching(mode.read_only) as drained:
            await rules.call("set_mode", self.deadlines.write_s, lambda: self._adapter.set_mode(mode))
        return ModeReceipt(read_only=mode.read_only, reason=mode.reason, drained=drained)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Write one event. While read-only nothing is sent and the receipt says ``skipped_read_only``.

        Returns:
            The receipt. ``unknown`` means sent without an answer (deadline, lost connection).

        Raises:
            ScopeError: the event's scope is not set up.
            InputError: nothing is left of the event once recalled context is stripped.
            BackendError: the backend failed, and the event is not stored.
        """
        self._rules.check_scope(event.scope)
        event = without_recalled_context(event)
        return await self._rules.write(
            "record_event",
            event.scope,
            lambda: self._delivery.one(event),
            lambda: WriteReceipt(event_id=event.event_id, status="skipped_read_only"),
            session_id=event.session_id,
            event_id=event.event_id,
        )

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Ask the memory; the result holds the raw payload, the fitted context section and the trace.

        Raises:
            ScopeError: the scope is not set up, or a filter would widen it.
            IsolationError: the backend returned a row of another scope.
            BackendError: the backend failed. Empty is never an error, and an error never looks empty.
        """
        rules = self._rules
        rules.check_scope(request.scope)
        check_filters(request, rules.traits.filter_operators)

        async def in_turn() -> RetrieveResult:
            if rules.lanes.reads_are_free:
                return await self._adapter.retrieve(request)
            async with rules.lanes.enter(request.scope, write=False):
                return await self._adapter.retrieve(request)

        async with rules.observed("retrieve", request.scope, session_id=request.session_id) as span:
            result = await rules.call("retrieve", self.deadlines.retrieve_s, in_turn)
            self._check_rows(result)
            if request.exclude_session:
                others = tuple(one for one in result.entries if one.session_id != request.session_id)
                result = result.model_copy(update={"entries": others})
            result, section, measured = self._fitted(result)
            trace = rules.finish(span, result.trace, **measured)
        return result.model_copy(update={"formatted_context": section, "trace": trace})

    def format_context(self, result: RetrieveResult) -> str:
        """The result's context section; ``retrieve`` has already put it into ``formatted_context``."""
        return result.formatted_context or self._adapter.format_context(result)

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Clear exactly this scope, after its writes in flight. The scope stays set up.

        A scope whose set-up has failed may be reset, and set up again: its store may be what is broken.

        Raises:
            ReadOnlyError: the slot is read-only; a test session must not reset anything.
        """

        def refuse() -> ResetReceipt:
            raise ReadOnlyError("reset_scope is refused while the slot is read-only; set_mode first")

        async def perform() -> ResetReceipt:
            receipt = await self._rules.call(
                "reset_scope", self.deadlines.reset_s, lambda: self._adapter.reset_scope(scope)
            )
            await self._delivery.reset(scope)
            return receipt

        return await self._rules.write(
            "reset_scope",
            scope,
            perform,
            refuse,
            tried=True,
        )

    async def health(self) -> BackendHealth:
        """Probe the backend. A failing probe is ``unavailable`` with diagnostics, not an exception."""
        rules = self._rules
        rules.enter()
        async with rules.observed("health", None) as span:
            try:
                health = await rules.call("health", self.deadlines.health_s, self._adapter.health)
            except BackendError as error:
                health = BackendHealth(
                    status="unavailable",
                    backend_name=self.backend_name,
                    consistency_model=rules.traits.consistency,
                    warnings=(str(error),),
                    details=error.diagnostics,
                )
        last = self._delivery.last_write_at
        writes = {
            "writes_in_flight": rules.gate.in_flight,
            "unknown_writes": self._delivery.unknown_writes,
            "last_write_at": last.isoformat() if last else None,
            "waiting_writes": self._delivery.waiting(),
        }
        return health.model_copy(
            update={
                "latency_ms": span.elapsed_ms,
                "cs_filtering": rules.traits.cs_filtering,
                "details": {**health.details, "slot": writes},
            }
        )

    async def aclose(self) -> None:
        """Wait for writes in flight (at most ``deadlines.close_s``) and release the adapter. Idempotent."""
        rules = self._rules
        if rules.closed:
            return
        rules.enter()
        rules.closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self.deadlines.close_s):
                async with rules.gate.switching(True):
                    pass
            try:
                await rules.call("aclose", self.deadlines.close_s, self._adapter.aclose)
            finally:
                self._delivery.close()

    # -- many people ------------------------------------------------------------------------------------

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
        if scope is None and self.scope is None and {"persona_id", "run_id"} <= changed.keys():
            return ScopedMemory(self, MemoryScope(**changed))
        return ScopedMemory(self, MemoryScope(**{**dict(self._scope_or_default(scope)), **changed}))

    def is_set_up(self, scope: MemoryScope) -> bool:
        """Whether :meth:`setup_scope` was called for it, and :meth:`release_scope` not since."""
        return self._rules.knows(scope)

    def release_scope(self, scope: MemoryScope) -> None:
        """Forget that a scope was set up, with what is held for it in this process. Its memory stays."""
        self._rules.drop_scope(scope)

    # -- for hosts --------------------------------------------------------------------------------------

    async def before_turn(
        self,
        user: str,
        *,
        session_id: str,
        scope: MemoryScope | None = None,
        budget: ContextBudget | None = None,
        scenario: str | None = None,
        context: str | None = None,
        attribute: str | None = None,
        filters: Mapping[str, Any] | None = None,
        exclude_session: bool = False,
    ) -> str:
        """The context section for the prompt of the coming turn, or ``""`` where nothing is remembered.

        Args:
            user: what the user just said; recalled context in it is ignored.
            session_id: the conversation.
            scope, budget: in place of the slot's defaults.
            scenario, context, attribute, filters: as in :class:`RetrieveRequest`.
            exclude_session: leave out what was said in this conversation, where the backend tells; for hosts whose
                chat window still shows it.
        """
        _check_text("user", user)
        request = RetrieveRequest(
            query=strip_json(user),
            scope=self._scope_or_default(scope),
            session_id=session_id,
            budget=budget or self.budget,
            scenario=scenario,
            context=context,
            attribute=attribute,
            filters=dict(filters or {}),
            exclude_session=exclude_session,
        )
        return (await self.retrieve(request)).formatted_context

    async def after_turn(
        self,
        *,
        session_id: str,
        user: str | None = None,
        assistant: str | None = None,
        messages: Iterable[Message] = (),
        scope: MemoryScope | None = None,
        event_id: str | None = None,
        turn_id: str | None = None,
        timestamp: datetime | None = None,
        agent_id: str = "agent",
        scenario: str | None = None,
        context: str | None = None,
        attribute: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> WriteReceipt:
        """Record what was said in a turn.

        Args:
            session_id: the conversation.
            user, assistant: what each said; blank ones are left out.
            messages: further messages between the two, such as tool results.
            scope: in place of the slot's default.
            event_id, turn_id: fresh ids by default; give your own where a turn may be recorded twice.
            timestamp: when it was said; now by default.
            agent_id, scenario, context, attribute, metadata: as in :class:`MemoryEvent`.
        """
        for name, half in (("user", user), ("assistant", assistant)):
            if half is not None:
                _check_text(name, half)
        said = [Message(role="user", content=user)] if user and user.strip() else []
        said.extend(messages)
        if assistant and assistant.strip():
            said.append(Message(role="assistant", content=assistant))
        event = MemoryEvent(
            event_id=uuid.uuid4().hex if event_id is None else event_id,
            turn_id=uuid.uuid4().hex if turn_id is None else turn_id,
            timestamp=datetime.now(UTC) if timestamp is None else timestamp,
            scope=self._scope_or_default(scope),
            session_id=session_id,
            messages=tuple(said),
            agent_id=agent_id,
            scenario=scenario,
            context=context,
            attribute=attribute,
            metadata=dict(metadata or {}),
        )
        return await self.record_event(event)

    # -- inside -----------------------------------------------------------------------------------------

    def _scope_or_default(self, scope: MemoryScope | None) -> MemoryScope:
        chosen = scope or self.scope
        if chosen is None:
            raise ScopeError("no scope: give scope=, or set memory.scope in the configuration")
        return chosen

    def _check_rows(self, result: RetrieveResult) -> None:
        labelled = [entry.scope_ids for entry in result.entries if entry.scope_ids is not None]
        expected = self._adapter.native_scope(result.request.scope) if labelled else {}
        for scope_ids in labelled:
            if scope_ids == expected:
                continue
            if not scope_ids:
                raise IsolationError(
                    f"{self.backend_name} returned a row that names no scope; the whole answer is withheld"
                )
            for name, value in scope_ids.items():
                if expected.get(name) != value:
                    raise IsolationError(
                        f"{self.backend_name} returned a row whose {name} belongs to another scope; "
                        "the whole answer is withheld"
                    )

    def _fitted(self, result: RetrieveResult) -> tuple[RetrieveResult, str, dict[str, Any]]:
        """The result and its section, fitted to the budget, and what the trace is to say about it."""
        budget = result.request.budget
        included = tuple(index for index, entry in enumerate(result.entries) if entry.text.strip())
        if surely_exceeds(result.entries, budget):
            included = self._fit(result)
        result, section, tokens = self._rendered(result, included)
        most = math.inf if budget.max_tokens is None else budget.max_tokens
        if tokens > most:
            included = self._fit(result)
            result, section, tokens = self._rendered(result, included)
        if tokens > most:
            # An adapter's own rendering may cost more than the shared one: as many entries as fit, from the first.
            costs = range(1, len(included) + 1)
            fits = bisect_right(costs, most, key=lambda count: self._rendered(result, included[:count])[2])
            result, section, tokens = self._rendered(result, included[:fits])
        if tokens > most:
            raise self._misrendered(
                f"returned more than the budget's {most} tokens, whatever entries it was given"
            )
        if not is_well_formed(section):
            raise self._misrendered("did not return one well-formed <memory-context> section")
        return result, section, self._measured(result, tokens)

    def _misrendered(self, what: str) -> BackendProtocolError:
        return BackendProtocolError(
            f"{self.backend_name}: format_context {what}",
            backend_name=self.backend_name,
            operation="format_context",
        )

    def _measured(self, result: RetrieveResult, tokens: int) -> dict[str, Any]:
        least, trace = result.request.budget.min_tokens, result.trace
        left_out = len(result.entries) - len(result.included)
        warnings = (f"{left_out} entries did not fit the budget",) if left_out else ()
        return {
            **summarise_entries(result.entries),
            "native_ids": trace.native_ids
            or tuple(entry.native_id for entry in result.entries if entry.native_id is not None),
            "included_count": len(result.included),
            "token_count": tokens,
            "token_counter": self.token_counter.name,
            "shortfall_tokens": max(0, least - tokens) if least else None,
            "warnings": (*trace.warnings, *warnings),
        }

    def _fit(self, result: RetrieveResult) -> tuple[int, ...]:
        overhead = section_overhead(self.backend_name, result.request.scope.label, self.token_counter)
        return fit_entries(result.entries, result.request.budget, self.token_counter, overhead=overhead)

    def _rendered(self, result: RetrieveResult, included: tuple[int, ...]) -> tuple[RetrieveResult, str, int]:
        result = result.model_copy(update={"included": included})
        section = self._adapter.format_context(result)
        return result, section, self.token_counter.count(section) if section else 0


def _check_text(name: str, said: object) -> None:
    if not isinstance(said, str):
        raise InputError(f"{name} must be text, not {type(said).__name__}; leave a turn without it out")
