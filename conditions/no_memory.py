"""The floor: no memory at all. Every memory is measured against it (spec section 2.2).

The variant ``named``, as in MemPABench's game, separates the effect of a memory from that of a mere name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from conditions._control import FixedCondition
from memory import RetrieveRequest, RetrieveResult
from memory.adapter import AdapterSettings, AdapterTraits, ContextEntry, PluginInfo, PluginOptions, hookimpl


class NoMemoryOptions(PluginOptions):
    """The block ``memory.conditions.no_memory``."""

    variant: Literal["anonymised", "named"] = "anonymised"
    """``anonymised``: an empty context. ``named``: one line that says whom the agent talks to."""
    names: dict[str, Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]] = Field(
        default_factory=dict
    )
    """persona_id -> display name for the named variant; a persona without one goes by its persona_id."""


class NoMemory(FixedCondition):
    def __init__(self, name: str, options: NoMemoryOptions) -> None:
        super().__init__(name, AdapterTraits(kind="control", pet_observability="weak", recalls_writes=False))
        self._options = options

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        anonymised = self._options.variant == "anonymised"
        entries: tuple[ContextEntry, ...] = ()
        if not anonymised:
            persona = request.scope.persona_id
            who = self._options.names.get(persona, persona)
            entries = (ContextEntry(f"You are talking to {who}.", prose=True),)
        return self.found(request, "none", entries, {"anonymised": anonymised})


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="no_memory",
        kind="control",
        pet_observability="weak",
        summary="empty context, or the user's name alone: the floor",
        options=NoMemoryOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[NoMemoryOptions]) -> NoMemory:
    return NoMemory(settings.name, settings.options)


@hookimpl
def memslot_conformance() -> type[Any]:
    from conditions._conformance import NothingCanFail

    return NothingCanFail
