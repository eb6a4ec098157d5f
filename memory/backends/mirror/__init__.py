"""mirror: one memory answers while others receive the same traffic, to try a backend before the switch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from memory import MemoryAdapter
from memory.adapter import AdapterSettings, DataPath, PluginInfo, PluginOptions, Public, hookimpl


class Mirrored(PluginOptions):
    """One provider of a mirror. Its name alone is enough if it needs no options."""

    backend: Public[str]
    """Name of a backend or condition."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What its own block would say."""

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, given: Any) -> Any:
        return {"backend": given} if isinstance(given, str) else given

    @field_validator("backend")
    @classmethod
    def _no_mirror(cls, backend: str) -> str:
        if backend == "mirror":
            raise ValueError("is a mirror again; list all shadows in one")
        return backend


class MirrorOptions(PluginOptions):
    """The block ``memory.backends.mirror``."""

    primary: Mirrored = Field(examples=["full_history"])
    """The memory that answers: a name, or ``{backend: name, options: {...}}``."""
    shadows: Annotated[tuple[Mirrored, ...], Field(min_length=1, max_length=8)] = Field(
        examples=[["rolling_summary"]]
    )
    """Memories that get every write and question as well; what they answer is compared and never shown."""
    drain_s: float = Field(default=5.0, ge=0, le=600, allow_inf_nan=False)
    """How long a switch to read-only, and closing, wait for shadows that lag, seconds."""
    log: DataPath | None = None
    """JSON lines: the trace of every call of a shadow, and how its answers differ. No text that was said."""


@hookimpl
def memslot_describe() -> PluginInfo:
    """A configured mirror takes its kind, consistency and capabilities from its primary."""
    return PluginInfo(
        name="mirror",
        kind="architecture",
        summary="one memory answers, shadows get the same writes and questions, and may fail without harm",
        capabilities=frozenset(
            {"feedback", "bulk_ingest", "readiness", "native_mutation", "provenance", "native_query"}
        ),
        consistency="immediate",
        options=MirrorOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[MirrorOptions]) -> MemoryAdapter:
    from memory.backends.mirror.adapter import build_mirror

    return build_mirror(settings)
