"""memslot: one async contract between an agent loop and whatever remembers for it.

What is not exported here is private. Importing this package imports no memory SDK.
"""

from memory.base import (
    CAPABILITIES,
    AdapterTraits,
    BaseAdapter,
    MemoryAdapter,
    SupportsBulkIngest,
    SupportsEventLookup,
    SupportsFeedback,
    SupportsNativeMutation,
    SupportsNativeQuery,
    SupportsProvenance,
    SupportsReadiness,
    capabilities_of,
)
from memory.errors import (
    BackendAuthError,
    BackendError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
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
    PluginNotFound,
    ReadOnlyError,
    ScopeError,
    normalise_error,
)
from memory.events import MemoryEvent, Message
from memory.formatting import (
    clean_text,
    entry_cost,
    fit_entries,
    render_entry,
    render_section,
    section_overhead,
    strip_context,
    wrap_section,
)
from memory.hookspecs import AdapterSettings, PluginInfo, PluginOptions, hookimpl
from memory.receipts import (
    BackendHealth,
    BackendReadiness,
    ContextEntry,
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
from memory.requests import (
    AdapterMode,
    ContextBudget,
    MemoryFeedback,
    NativeMutationRequest,
    NativeQueryRequest,
    ProvenanceRequest,
    RetrieveRequest,
)
from memory.scope import IdAlphabet, MemoryScope, ScopeEncoder
from memory.tokens import CallableTokenCounter, TokenCounter, Utf8TokenCounter
from memory.worker import NativeWorker

__version__ = "0.1.0"

__all__ = sorted(
    name for name, value in list(globals().items()) if not name.startswith("_") and not hasattr(value, "__path__")
)
