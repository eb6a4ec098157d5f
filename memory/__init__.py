"""memslot: one async contract between an agent loop and whatever remembers for it.

This page is for hosts. Whoever writes a plugin finds the rest in :mod:`memory.adapter`; what neither page exports
is private. Importing this package imports no memory SDK.
"""

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
    MemslotError,
    ReadOnlyError,
    ScopeError,
)
from memory.contract.events import MemoryEvent, Message
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
from memory.contract.tokens import TokenCounter
from memory.plugins.opening import open_memory
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
    "JsonlTraceSink",
    "MemoryEvent",
    "MemoryFeedback",
    "MemoryScope",
    "MemorySlot",
    "MemslotError",
    "Message",
    "NativeMutationRequest",
    "NativeQueryRequest",
    "OpenTelemetrySink",
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
]
