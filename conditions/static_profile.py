"""A fixed text about the persona for every request: a control, and often a ceiling (spec 2.2)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from conditions._control import FixedCondition, content_hash, pack_document, read_file
from memory import BackendHealth, ConfigError, RetrieveRequest, RetrieveResult, TokenCounter
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    InputFile,
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
    path: InputFile | None = None
    """A UTF-8 file with that text, in place of ``profile``."""
    profiles: dict[str, _Profile] = Field(default_factory=dict)
    """persona_id -> its text."""

    @model_validator(mode="after")
    def _one_source(self) -> StaticProfileOptions:
        if self.profile is not None and self.path is not None:
            raise ValueError("profile and path are both given; keep one")
        if self.profile is None and self.path is None and not self.profiles:
            raise ValueError("has no text; give profile, path or profiles")
        return self


class StaticProfile(FixedCondition):
    def __init__(self, name: str, options: StaticProfileOptions, counter: TokenCounter, where: str) -> None:
        super().__init__(name, AdapterTraits(kind="control", pet_observability="weak", recalls_writes=False))
        self._profiles = options.profiles
        self._default = options.profile
        if options.path is not None:
            self._default = read_file(options.path, f"{where}.path", "a text file").strip()
            if not self._default:
                raise ConfigError(f"{where}.path: {options.path} is empty; write the profile into it")
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

    async def health(self) -> BackendHealth:
        known = content_hash({"profiles": dict(self._profiles), "default": self._default})
        return self.health_of(details={"profiles": len(self._profiles), "content_sha256": known})


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
    return StaticProfile(settings.name, settings.options, settings.token_counter, settings.where)


@hookimpl
def memslot_conformance() -> type[Any]:
    from conditions._conformance import NothingCanFail

    return NothingCanFail
