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
    from memory.contract.receipts import BackendHealth, BackendReadiness, RetrieveResult, Trace, WriteReceipt
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
    from memory.slot.rules import Deadlines
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
    "InputError",
    "IsolationError",
    "JsonlTraceSink",
    "LifecycleError",
    "MemoryEvent",
    "MemoryFeedback",
    "MemoryScope",
    "MemorySlot",
    "MemslotError",
    "Message",
    "NativeMutationRequest",
    "NativeQueryRequest",
    "OpenTelemetrySink",
    "PluginError",
    "PluginLoadError",
    "ProvenanceRequest",
    "ReadOnlyError",
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

__getattr__, __dir__ = _attach(globals())
