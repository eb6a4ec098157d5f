"""memslot: one async contract between an agent loop and whatever remembers for it.

This page is for hosts. There are three more: :mod:`memory.adapter` for whoever writes a plugin,
:mod:`memory.runtime` for a session or a server around a slot, :mod:`memory.testing` for tests and the conformance
kit. What none of them exports is private, but for the bindings of :mod:`memory.hosts` and the client of nodes in
:mod:`memory.stigmem`. Importing this package imports no memory SDK, and a name's module only when the name is used:
a hook that needs one error class does not wait for pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.contract._late import attach as _attach

if TYPE_CHECKING:
    from memory.contract.adapter import (
        MemoryAdapter,
        SupportsBulkIngest,
        SupportsFeedback,
        SupportsNativeMutation,
        SupportsNativeQuery,
        SupportsProvenance,
        SupportsReadiness,
    )
    from memory.contract.errors import (
        BackendError,
        BackendTimeout,
        BackendUnavailable,
        CapabilityNotSupported,
        ConfigError,
        InputError,
        IsolationError,
        LifecycleError,
        MemslotError,
        PluginError,
        PluginLoadError,
        ReadOnlyError,
        ScopeError,
    )
    from memory.contract.events import MemoryEvent, Message
    from memory.contract.formatting import TokenCounter
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
        Trace,
        WriteReceipt,
    )
    from memory.contract.requests import (
        AdapterMode,
        ContextBudget,
        MemoryFeedback,
        NativeMutationRequest,
        NativeQueryRequest,
        ProvenanceRequest,
        RetrieveRequest,
    )
    from memory.contract.scope import MemoryScope
    from memory.plugins.opening import open_memory, open_memory_sync
    from memory.plugins.registry import MemoryAdapterRegistry
    from memory.slot.calls import Deadlines
    from memory.slot.slot import MemorySlot
    from memory.slot.tracing import JsonlTraceSink, OpenTelemetrySink

__version__ = "0.1.0"

__all__ = [
    "AdapterMode",
    "BackendError",
    "BackendHealth",
    "BackendReadiness",
    "BackendTimeout",
    "BackendUnavailable",
    "CapabilityNotSupported",
    "ConfigError",
    "ContextBudget",
    "Deadlines",
    "FeedbackReceipt",
    "InputError",
    "IsolationError",
    "JsonlTraceSink",
    "LifecycleError",
    "MemoryAdapter",
    "MemoryAdapterRegistry",
    "MemoryEvent",
    "MemoryFeedback",
    "MemoryScope",
    "MemorySlot",
    "MemslotError",
    "Message",
    "ModeReceipt",
    "NativeMutationReceipt",
    "NativeMutationRequest",
    "NativeQueryRequest",
    "NativeQueryResult",
    "OpenTelemetrySink",
    "PluginError",
    "PluginLoadError",
    "ProvenanceRequest",
    "ProvenanceResult",
    "ReadOnlyError",
    "ResetReceipt",
    "RetrieveRequest",
    "RetrieveResult",
    "ScopeError",
    "SupportsBulkIngest",
    "SupportsFeedback",
    "SupportsNativeMutation",
    "SupportsNativeQuery",
    "SupportsProvenance",
    "SupportsReadiness",
    "TokenCounter",
    "Trace",
    "WriteReceipt",
    "open_memory",
    "open_memory_sync",
]

# As above, for the running program. A test holds both equal.
_LATE = {
    "memory.contract.adapter": """
        MemoryAdapter SupportsBulkIngest SupportsFeedback SupportsNativeMutation SupportsNativeQuery
        SupportsProvenance SupportsReadiness
    """,
    "memory.contract.errors": """
        BackendError BackendTimeout BackendUnavailable CapabilityNotSupported ConfigError InputError
        IsolationError LifecycleError MemslotError PluginError PluginLoadError ReadOnlyError
        ScopeError
    """,
    "memory.contract.events": "MemoryEvent Message",
    "memory.contract.formatting": "TokenCounter",
    "memory.contract.receipts": """
        BackendHealth BackendReadiness FeedbackReceipt ModeReceipt NativeMutationReceipt
        NativeQueryResult ProvenanceResult ResetReceipt RetrieveResult Trace WriteReceipt
    """,
    "memory.contract.requests": """
        AdapterMode ContextBudget MemoryFeedback NativeMutationRequest NativeQueryRequest
        ProvenanceRequest RetrieveRequest
    """,
    "memory.contract.scope": "MemoryScope",
    "memory.plugins.opening": "open_memory open_memory_sync",
    "memory.plugins.registry": "MemoryAdapterRegistry",
    "memory.slot.calls": "Deadlines",
    "memory.slot.slot": "MemorySlot",
    "memory.slot.tracing": "JsonlTraceSink OpenTelemetrySink",
}

__getattr__, __dir__ = _attach(globals(), _LATE)
