"""A fixed text about the persona for every request: a control, and often a ceiling (spec 2.2)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from conditions._control import FixedCondition, pack_document
from memory import RetrieveRequest, RetrieveResult, TokenCounter
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    PluginInfo,
    PluginOptions,
    hookimpl,
    section_overhead,
)

_Profile = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class StaticProfileOptions(PluginOptions):
    """The block ``memory.conditions.static_profile``."""

    profile: _Profile | None = Field(default=None, examples=["A person of whom nothing is known."])
    """The text every persona gets that has none under ``profiles``."""
    profiles: dict[str, _Profile] = Field(default_factory=dict)
    """persona_id -> its text."""

    @model_validator(mode="after")
    def _some_text(self) -> StaticProfileOptions:
        if self.profile is None and not self.profiles:
            raise ValueError("has no text; give profile or profiles")
        return self


class StaticProfile(FixedCondition):
    def __init__(self, name: str, options: StaticProfileOptions, counter: TokenCounter) -> None:
        super().__init__(name, AdapterTraits(kind="control", pet_observability="weak", recalls_writes=False))
        self._profiles = options.profiles
        self._default = options.profile
        self._counter = counter

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        text = self._profiles.get(request.scope.persona_id, self._default)
        overhead = section_overhead(self.backend_name, request.scope.label, self._counter)
        entries, left_out = pack_document(text or "", request.budget, self._counter, overhead=overhead)
        nobody = "this persona has no profile; add it under profiles, or give profile for everyone"
        warnings = [nobody] if text is None else []
        if left_out:
            warnings.append(f"the budget leaves out {left_out} lines of the profile")
        return self.found(
            request,
            "profile.read",
            entries,
            {"profile": text, "lines_left_out": left_out},
            left_out_count=left_out,
            warnings=tuple(warnings),
        )


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="static_profile",
        kind="control",
        pet_observability="weak",
        summary="a fixed text about the persona, nothing learned",
        options=StaticProfileOptions,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[StaticProfileOptions]) -> StaticProfile:
    return StaticProfile(settings.name, settings.options, settings.token_counter)


@hookimpl
def memslot_conformance() -> type[Any]:
    from conditions._conformance import NothingCanFail

    return NothingCanFail
