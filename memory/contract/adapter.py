"""The contract: the required and the optional methods of an adapter (spec section 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from memory.contract.errors import CapabilityNotSupported, InputError
from memory.contract.events import MemoryEvent
from memory.contract.receipts import (
    BackendHealth,
    BackendReadiness,
    FeedbackReceipt,
    ModeReceipt,
    NativeMutationReceipt,
    NativeQueryResult,
    ProvenanceResult,
    ResetReceipt,
    RetrieveResult,
    WriteReceipt,
)
from memory.contract.requests import (
    AdapterMode,
    MemoryFeedback,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    RetrieveRequest,
)
from memory.contract.scope import MemoryScope
from memory.contract.traits import AdapterTraits


@runtime_checkable
class MemoryAdapter(Protocol):
    """The minimal contract (spec section 2). Optional members: ``traits``, ``native_scope`` and ``aclose``."""

    backend_name: str

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Create or check the native isolation resources of a scope. Idempotent."""

    async def set_mode(self, mode: AdapterMode) -> ModeReceipt:
        """Switch the mode, after the slot has drained all writes. Background work has to finish here."""

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Write one event by the backend's native path."""

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """Ask the backend, with the budget if it takes one. An empty result is valid; a failure raises."""

    def format_context(self, result: RetrieveResult) -> str:
        """The ``<memory-context>`` section of ``result.context_entries``. A pure function without I/O."""

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Clear exactly this scope, then check that it is empty."""

    async def health(self) -> BackendHealth:
        """Probe the backend. An unreachable one gives ``status="unavailable"`` and raises nothing."""


def native_scope_of(adapter: object, scope: MemoryScope) -> Mapping[str, str]:
    """The scope's native ids by name. The slot checks rows against them, and the manifest records them.

    Without the method ``native_scope``, they are the scope's own fields. Raises ScopeError if the adapter
    cannot represent the scope without sharing.
    """
    tell: Callable[[MemoryScope], Mapping[str, str]] | None = getattr(adapter, "native_scope", None)
    return scope.model_dump(exclude_none=True) if tell is None else tell(scope)


async def close_adapter(adapter: object) -> None:
    """Release clients, threads, locks, sockets and processes by ``aclose``, if the adapter has it.

    ``aclose`` is idempotent. The slot calls it when no call is under way, and again after a failure.
    """
    close: Callable[[], Awaitable[None]] | None = getattr(adapter, "aclose", None)
    if close is not None:
        await close()


@runtime_checkable
class SupportsFeedback(Protocol):
    """Native feedback, such as MemOS ``/product/feedback``."""

    async def apply_feedback(self, feedback: MemoryFeedback) -> FeedbackReceipt:
        """Hand the feedback to the backend. The receipt says whether the backend accepted it."""


@runtime_checkable
class SupportsBulkIngest(Protocol):
    """Faster preload by native batch calls; never extraction on our side."""

    async def record_events(self, events: Sequence[MemoryEvent]) -> list[WriteReceipt]:
        """Write events of one scope, which the slot ensures. Returns one receipt per event, in order."""


@runtime_checkable
class SupportsReadiness(Protocol):
    """Whether asynchronous derivation has caught up."""

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """The state of a scope, without waiting."""

    async def wait_until_ready(self, scope: MemoryScope, timeout_s: float) -> BackendReadiness:
        """Wait at most ``timeout_s`` seconds; ``pending`` on timeout, never a false ``ready``."""


@runtime_checkable
class SupportsNativeMutation(Protocol):
    """Update or delete one native record."""

    async def native_mutation(self, request: NativeMutationRequest) -> NativeMutationReceipt:
        """Carry out one of ``traits.native_mutations``, or any operation if the adapter declares none."""


@runtime_checkable
class SupportsProvenance(Protocol):
    """History and sources of native records."""

    async def provenance(self, request: ProvenanceRequest) -> ProvenanceResult:
        """The history of a named record, or all changes in a range of time. Writes nothing."""


@runtime_checkable
class SupportsNativeQuery(Protocol):
    """Diagnostics in the backend's own terms."""

    async def native_query(self, request: NativeQueryRequest) -> NativeQueryResult:
        """Run one of ``traits.native_queries``, or any query if the adapter declares none. Writes nothing."""


@runtime_checkable
class SupportsEventLookup(Protocol):
    """Lets the slot resolve an ambiguous write by looking for its event id. Not a capability for hosts."""

    async def find_event(self, event: MemoryEvent) -> tuple[str, ...] | None:
        """The native ids of the event, or None if it is certainly not stored, or only in part.

        If an event that is stored in part is sent again, the adapter sends the missing parts. The slot first
        waits for abandoned writes of the scope.
        """


@runtime_checkable
class SupportsStart(Protocol):
    """Acquires what all scopes share, such as the lock of an embedded store. Not a capability for hosts."""

    async def start(self) -> None:
        """Acquire it when a slot opens without a scope. ``setup_scope`` does so, too. Idempotent."""


@runtime_checkable
class SupportsModelProbe(Protocol):
    """Lets the doctor call an adapter's models before the first turn. Not a capability for hosts."""

    def model_probes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """A minimal call to each configured model, by role, such as ``llm``. A probe writes nothing."""


CAPABILITIES: Mapping[str, type] = {
    "feedback": SupportsFeedback,
    "bulk_ingest": SupportsBulkIngest,
    "readiness": SupportsReadiness,
    "native_mutation": SupportsNativeMutation,
    "provenance": SupportsProvenance,
    "native_query": SupportsNativeQuery,
}
"""The capability protocols by their names in listings, manifests and the doctor."""


def missing_methods(adapter: object, declared: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """``MemoryAdapter`` or a declared capability that the adapter does not withhold -> its missing methods."""
    wanted: dict[str, type] = {"MemoryAdapter": MemoryAdapter}
    withheld: frozenset[str] = getattr(adapter, "withheld_capabilities", frozenset())
    wanted |= {name: CAPABILITIES[name] for name in declared if name not in withheld}
    missing = {
        name: tuple(
            member
            for member in (*protocol.__annotations__, *vars(protocol))
            if not member.startswith("_") and not _has(adapter, member, protocol)
        )
        for name, protocol in wanted.items()
    }
    return {name: methods for name, methods in missing.items() if methods}


def _has(adapter: object, member: str, protocol: type) -> bool:
    found = getattr(adapter, member, None)
    return found is not None if member in protocol.__annotations__ else callable(found)


def check_adapter(adapter: object) -> None:
    """Raise InputError if methods of :class:`MemoryAdapter` are missing; the message names all of them."""
    if missing := missing_methods(adapter).get("MemoryAdapter"):
        raise InputError(
            f"{type(adapter).__name__} is no MemoryAdapter: it lacks {', '.join(missing)}; add them, or inherit "
            "from memory.adapter.BaseAdapter"
        )


def capabilities_of(adapter: object) -> frozenset[str]:
    """The capabilities that an adapter implements and does not withhold by configuration."""
    withheld: frozenset[str] = getattr(adapter, "withheld_capabilities", frozenset())
    offered = frozenset(name for name, kind in CAPABILITIES.items() if isinstance(adapter, kind))
    return offered.difference(withheld)  # not "-": a plugin may give a list


def check_operation(adapter: MemoryAdapter, request: NativeQueryRequest | NativeMutationRequest) -> None:
    """Refuse an operation or arguments that the adapter does not declare."""
    mutation = isinstance(request, NativeMutationRequest)
    traits = AdapterTraits.of(adapter)
    known = traits.native_mutations if mutation else traits.native_queries
    if known is None:
        return
    if request.operation not in known:
        capability = "native_mutation" if mutation else "native_query"
        raise CapabilityNotSupported(
            f"{adapter.backend_name}: {capability} knows {', '.join(known)}; not {request.operation!r}"
        )
    operation, where = known[request.operation], type(request).__name__
    if operation.native_id and getattr(request, "native_id", None) is None:
        raise InputError(f"{where}.native_id: is required to {request.operation}; take it from an entry")
    if problem := operation.problem(request.arguments):
        raise InputError(f"{where}.arguments.{problem}")
