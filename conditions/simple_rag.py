"""simple_rag: the ablation of mem0's extraction (spec 2.2).

It is mem0 with ``infer: false``, which stores every message verbatim and finds it by vector search.
"""

from __future__ import annotations

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, PluginInfo, PluginOptions, hookimpl

_BACKEND = "mem0"


@hookimpl
def memslot_describe() -> PluginInfo:
    """The options are mem0's, with extraction always off."""
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
