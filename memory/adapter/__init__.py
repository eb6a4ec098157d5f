"""The building blocks of an adapter, for authors of plugins. They complement the types of :mod:`memory`.

Most plugins need only this page. Some also need :mod:`memory.adapter.http`, :mod:`memory.adapter.models`,
:mod:`memory.adapter.fields`, :mod:`memory.adapter.sdk` or :mod:`memory.adapter.stores`.

Enters: code that two adapters would otherwise both contain. Stays out: rules that the slot applies, and SDKs.
"""

from memory.adapter._base import BaseAdapter, SequentialBulk, SynchronousWrites, release
from memory.adapter._worker import NativeWorker, ShieldedCalls
from memory.contract._quantity import quantity
from memory.contract.adapter import (
    CAPABILITIES,
    SupportsEventLookup,
    SupportsModelProbe,
    SupportsStart,
    close_adapter,
    native_scope_of,
)
from memory.contract.admission import awaiting_turn, count_llm_call, yield_turn
from memory.contract.errors import (
    BackendAuthError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    StoreError,
)
from memory.contract.formatting import Utf8TokenCounter, clean_text, entry_cost, section_overhead
from memory.contract.native_errors import (
    HTTPX_ERRORS,
    OPENAI_ERRORS,
    ErrorTable,
    NativeError,
    normalise_error,
)
from memory.contract.receipts import ContextEntry
from memory.contract.requests import Operation
from memory.contract.scope import IdAlphabet, ScopeEncoder
from memory.contract.traits import FILTER_OPERATORS, AdapterTraits
from memory.plugins.hookspecs import AdapterSettings, PluginInfo, PluginOptions, hookimpl
from memory.plugins.redaction import DataPath, InputFile, Private, Public

__all__ = [
    "CAPABILITIES",
    "FILTER_OPERATORS",
    "HTTPX_ERRORS",
    "OPENAI_ERRORS",
    "AdapterSettings",
    "AdapterTraits",
    "BackendAuthError",
    "BackendProtocolError",
    "BackendRateLimited",
    "BackendRejected",
    "BaseAdapter",
    "ContextEntry",
    "DataPath",
    "ErrorTable",
    "IdAlphabet",
    "InputFile",
    "NativeError",
    "NativeWorker",
    "Operation",
    "PluginInfo",
    "PluginOptions",
    "Private",
    "Public",
    "ScopeEncoder",
    "SequentialBulk",
    "ShieldedCalls",
    "StoreError",
    "SupportsEventLookup",
    "SupportsModelProbe",
    "SupportsStart",
    "SynchronousWrites",
    "Utf8TokenCounter",
    "awaiting_turn",
    "clean_text",
    "close_adapter",
    "count_llm_call",
    "entry_cost",
    "hookimpl",
    "native_scope_of",
    "normalise_error",
    "quantity",
    "release",
    "section_overhead",
    "yield_turn",
]
