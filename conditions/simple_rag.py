"""simple_rag: the ablation of mem0's extraction (spec 2.2). mem0 itself with ``infer: false`` stores every
message verbatim, found by vector search."""

from __future__ import annotations

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, PluginInfo, PluginOptions, hookimpl

_BACKEND = "mem0"


@hookimpl
def memslot_describe() -> PluginInfo:
    """Its options are those of mem0, with extraction off for good."""
    return PluginInfo(
        name="simple_rag",
        kind="control",
        summary="Messages stored verbatim and found by vector search: mem0 with infer: false",
        made_of=_BACKEND,
        fixed={"infer": False},
    )


@hookimpl
def memslot_create(settings: AdapterSettings[PluginOptions]) -> MemoryAdapter:
    return settings.create(_BACKEND, settings.options)
