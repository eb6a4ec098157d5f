"""simple_rag: mem0 without its extraction. Every message is stored verbatim and found by vector search.

The ablation of mem0's extraction (spec 2.2), so it is the mem0 adapter itself with ``infer: false``.
"""

from __future__ import annotations

from typing import Literal

from memory.adapter import AdapterSettings, IdAlphabet, PluginInfo, hookimpl
from memory.backends.mem0 import MEM0_CAPABILITIES
from memory.backends.mem0.adapter import Mem0Adapter
from memory.backends.mem0.options import Mem0Options


class SimpleRagOptions(Mem0Options):
    """The options of the mem0 backend, with extraction off for good."""

    infer: Literal[False] = False
    """Always false; for extraction use ``backend: mem0``."""

    @property
    def equivalent_control(self) -> None:
        """It is the control itself."""


@hookimpl
def memslot_describe() -> PluginInfo:
    """What this plugin is; imports no SDK."""
    return PluginInfo(
        name="simple_rag",
        kind="control",
        pet_observability="dated",
        summary="Messages stored verbatim and found by vector search: mem0 with infer: false",
        capabilities=MEM0_CAPABILITIES,
        consistency="immediate",
        sdk_modules=("mem0",),
        install="pip install 'memslot[mem0]'",
        options=SimpleRagOptions,
        alphabet=IdAlphabet(),
    )


@hookimpl
def memslot_create(settings: AdapterSettings[Mem0Options]) -> Mem0Adapter:
    """Build the adapter. mem0 is imported here."""
    return Mem0Adapter(settings, kind="control")
