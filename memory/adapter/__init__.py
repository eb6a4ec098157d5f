"""For whoever writes a plugin: what an adapter is built from, beside the types of :mod:`memory`.

Enters: what two adapters would otherwise both write. Stays out: rules the slot applies, and SDKs. The HTTP client
and the lexical embedder load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from memory.adapter.address import server_address
from memory.adapter.base import BaseAdapter, SequentialBulk, StoresAtOnce, release
from memory.adapter.freed import give_memory_back
from memory.adapter.lockfile import FileLock
from memory.adapter.sdk import environment_kept, quiet_loggers, warnings_only
from memory.adapter.shielded import ShieldedCalls
from memory.adapter.worker import NativeWorker
from memory.contract._model import (
    AwareDatetime,
    Frozen,
    JsonObject,
    Text,
    check_aware,
    check_text,
    first_problem,
)
from memory.contract._text import normalise, parse_time, without_nul
from memory.contract.adapter import (
    CAPABILITIES,
    FILTER_OPERATORS,
    AdapterTraits,
    MemoryAdapter,
    SupportsEventLookup,
    SupportsModelProbe,
    SupportsStart,
    SupportsTrialScopes,
)
from memory.contract.admission import pause, queued
from memory.contract.errors import (
    BackendAuthError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    IsolationError,
    LifecycleError,
    PluginError,
    PluginLoadError,
    normalise_error,
)
from memory.contract.formatting import (
    clean_text,
    entry_cost,
    fit_entries,
    render_entry,
    render_section,
    section_overhead,
    strip_context,
    wrap_section,
)
from memory.contract.operations import NotBlank, Operation
from memory.contract.receipts import (
    ConditionKind,
    ConsistencyModel,
    ContextEntry,
    CsFiltering,
    FeedbackReceipt,
    ModeReceipt,
    NativeMutationReceipt,
    NativeQueryResult,
    PetObservability,
    ProvenanceResult,
    ResetReceipt,
)
from memory.contract.scope import IdAlphabet, ScopeEncoder
from memory.contract.tokens import Utf8TokenCounter
from memory.contract.usage import count_llm_call
from memory.plugins.endpoint import LEXICAL_OR_BLOCK, ModelEndpoint
from memory.plugins.hookspecs import AdapterSettings, BareLibrary, PluginInfo, PluginOptions, hookimpl
from memory.plugins.redaction import DataPath, InputFile, Private, Public

if TYPE_CHECKING:
    from memory.adapter.http import JsonHttp, bearer, check_url, expect, route, unless_missing
    from memory.adapter.lexical import LexicalHashEmbedder

__all__ = [
    "CAPABILITIES",
    "FILTER_OPERATORS",
    "LEXICAL_OR_BLOCK",
    "AdapterSettings",
    "AdapterTraits",
    "AwareDatetime",
    "BackendAuthError",
    "BackendProtocolError",
    "BackendRateLimited",
    "BackendRejected",
    "BareLibrary",
    "BaseAdapter",
    "ConditionKind",
    "ConsistencyModel",
    "ContextEntry",
    "CsFiltering",
    "DataPath",
    "FeedbackReceipt",
    "FileLock",
    "Frozen",
    "IdAlphabet",
    "InputFile",
    "IsolationError",
    "JsonHttp",
    "JsonObject",
    "LexicalHashEmbedder",
    "LifecycleError",
    "MemoryAdapter",
    "ModeReceipt",
    "ModelEndpoint",
    "NativeMutationReceipt",
    "NativeQueryResult",
    "NativeWorker",
    "NotBlank",
    "Operation",
    "PluginError",
    "PetObservability",
    "PluginInfo",
    "PluginLoadError",
    "PluginOptions",
    "Private",
    "ProvenanceResult",
    "Public",
    "ResetReceipt",
    "ScopeEncoder",
    "SequentialBulk",
    "ShieldedCalls",
    "StoresAtOnce",
    "SupportsEventLookup",
    "SupportsModelProbe",
    "SupportsStart",
    "SupportsTrialScopes",
    "Text",
    "Utf8TokenCounter",
    "bearer",
    "check_aware",
    "check_text",
    "check_url",
    "clean_text",
    "count_llm_call",
    "counted_openai",
    "entry_cost",
    "environment_kept",
    "expect",
    "first_problem",
    "fit_entries",
    "give_memory_back",
    "hookimpl",
    "normalise",
    "normalise_error",
    "parse_time",
    "pause",
    "queued",
    "quiet_loggers",
    "release",
    "render_entry",
    "render_section",
    "route",
    "section_overhead",
    "server_address",
    "strip_context",
    "unless_missing",
    "without_nul",
    "wrap_section",
    "warnings_only",
]

_LATE = {
    **dict.fromkeys(("JsonHttp", "bearer", "check_url", "expect", "route", "unless_missing"), "http"),
    "LexicalHashEmbedder": "lexical",
    "counted_openai": "openai_usage",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
