"""For whoever writes a plugin: what an adapter is built from, beside the types of :mod:`memory`.

Enters: what two adapters would otherwise both write, and the models that need no weights. Stays out: rules the slot
applies, and SDKs. The HTTP client and the lexical embedder load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.adapter._base import BaseAdapter, SequentialBulk, SynchronousWrites, release
from memory.adapter._bounded import server_address
from memory.adapter._model_answers import json_of_answer
from memory.adapter._sdk import environment_kept, quiet_loggers, trim_heap, warnings_only
from memory.adapter._worker import NativeWorker, ShieldedCalls
from memory.contract._late import attach as _attach
from memory.contract._model import (
    AwareDatetime,
    Frozen,
    JsonObject,
    Text,
    check_aware,
    check_text,
    first_problem,
    normalise,
    parse_time,
    without_nul,
)
from memory.contract._model_reasons import model_answer_fault
from memory.contract.adapter import (
    CAPABILITIES,
    FILTER_OPERATORS,
    AdapterTraits,
    SupportsEventLookup,
    SupportsModelProbe,
    SupportsProbeScopes,
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
from memory.contract.formatting import (
    Utf8TokenCounter,
    clean_text,
    entry_cost,
    section_overhead,
)
from memory.contract.native_errors import (
    HTTPX_ERRORS,
    OPENAI_ERRORS,
    ErrorTable,
    NativeError,
    normalise_error,
)
from memory.contract.receipts import (
    ContextEntry,
)
from memory.contract.requests import NotBlank, Operation
from memory.contract.scope import IdAlphabet, ScopeEncoder
from memory.plugins.endpoint import (
    LEXICAL_OR_BLOCK,
    EmbedderBlock,
    LocalModel,
    ModelEndpoint,
    Prefixes,
    Sampling,
)
from memory.plugins.hookspecs import AdapterSettings, BareLibrary, PluginInfo, PluginOptions, hookimpl
from memory.plugins.redaction import DataPath, InputFile, Private, Public
from memory.storage.files import remove_directory, staged_directory, sweep_directories
from memory.storage.lock import FileLock

if TYPE_CHECKING:
    from memory.adapter._bounded import http_client
    from memory.adapter._http import JsonHttp, bearer, check_url, expect, none_if_404, route
    from memory.adapter._lexical import LexicalHashEmbedder
    from memory.adapter._local import LocalEmbedder, load_model
    from memory.adapter._sdk import counted_openai
    from memory.slot.bounded_queue import BoundedQueue, RecentKeys
    from memory.storage.files import replace_file
    from memory.storage.store import Durability

__all__ = [
    "CAPABILITIES",
    "FILTER_OPERATORS",
    "HTTPX_ERRORS",
    "LEXICAL_OR_BLOCK",
    "OPENAI_ERRORS",
    "AdapterSettings",
    "AdapterTraits",
    "AwareDatetime",
    "BackendAuthError",
    "BackendProtocolError",
    "BackendRateLimited",
    "BackendRejected",
    "BareLibrary",
    "BaseAdapter",
    "BoundedQueue",
    "ContextEntry",
    "DataPath",
    "FileLock",
    "Durability",
    "EmbedderBlock",
    "ErrorTable",
    "Frozen",
    "IdAlphabet",
    "InputFile",
    "JsonHttp",
    "JsonObject",
    "LexicalHashEmbedder",
    "LocalEmbedder",
    "LocalModel",
    "ModelEndpoint",
    "NativeError",
    "NativeWorker",
    "NotBlank",
    "Operation",
    "PluginInfo",
    "PluginOptions",
    "Prefixes",
    "Private",
    "Public",
    "RecentKeys",
    "Sampling",
    "ScopeEncoder",
    "SequentialBulk",
    "StoreError",
    "ShieldedCalls",
    "SynchronousWrites",
    "SupportsEventLookup",
    "SupportsModelProbe",
    "SupportsStart",
    "SupportsProbeScopes",
    "Text",
    "Utf8TokenCounter",
    "bearer",
    "check_aware",
    "check_text",
    "check_url",
    "clean_text",
    "close_adapter",
    "count_llm_call",
    "counted_openai",
    "entry_cost",
    "environment_kept",
    "expect",
    "first_problem",
    "trim_heap",
    "hookimpl",
    "load_model",
    "http_client",
    "json_of_answer",
    "model_answer_fault",
    "native_scope_of",
    "normalise",
    "normalise_error",
    "parse_time",
    "yield_turn",
    "awaiting_turn",
    "quiet_loggers",
    "release",
    "remove_directory",
    "replace_file",
    "route",
    "section_overhead",
    "server_address",
    "staged_directory",
    "sweep_directories",
    "none_if_404",
    "without_nul",
    "warnings_only",
]

# As above, for the running program. A test holds both equal.
_LATE = {
    "memory.adapter._bounded": "http_client",
    "memory.adapter._http": "JsonHttp bearer check_url expect none_if_404 route",
    "memory.adapter._lexical": "LexicalHashEmbedder",
    "memory.adapter._local": "LocalEmbedder load_model",
    "memory.adapter._sdk": "counted_openai",
    "memory.slot.bounded_queue": "BoundedQueue RecentKeys",
    "memory.storage.files": "replace_file",
    "memory.storage.store": "Durability",
}

__getattr__, __dir__ = _attach(globals(), _LATE)
