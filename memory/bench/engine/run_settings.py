"""The ``run:`` block of a configuration: which timeline, how large, how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memory.bench.data.locomo import load_locomo
from memory.bench.data.quickstart import make_quickstart
from memory.bench.data.timeline import TimelineSet
from memory.contract._model import JsonObject
from memory.contract.errors import ConfigError
from memory.contract.requests import ContextBudget
from memory.plugins.blocks import parse_block
from memory.plugins.config import MemslotConfig
from memory.plugins.redaction import DataPath, InputFile, Public, resolve_paths

CsField = Literal["scenario", "context", "attribute"]


class RunSettings(BaseModel):
    """What to run. A relative path in a file is relative to that file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    timeline: Literal["quickstart", "locomo"] = "quickstart"
    """``quickstart`` is generated; ``locomo`` reads the file ``data``."""
    data: InputFile | None = None
    """The LoCoMo JSON file."""
    budget: ContextBudget | None = None
    """Overrides single fields of ``memory.budget`` for the probes; ``null`` lifts a limit."""
    cs: tuple[CsField, ...] = ("context",)
    """Which CS fields probes pass to the provider. Turns that state a preference carry its ``attribute``, so
    passing that to a provider that filters hard hands it the answer."""
    seed: int = 7
    """Generates the quickstart."""
    replicate: Annotated[int, Field(ge=0)] = 0
    """Which repetition of the same run this is; noted in the manifest, and part of no scope and no hash."""
    users: Annotated[int, Field(ge=1, le=6)] = 3
    """Personas of the quickstart."""
    sessions: Annotated[int, Field(ge=8, le=60)] = 16
    """Accumulation sessions of each persona of the quickstart."""
    doctor: bool = True
    """Pass the doctor's checks on two synthetic scopes before the run; the run ends there if one fails."""
    bulk: bool = False
    """Write session by session with the provider's bulk call, where it has one."""
    wait_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Longest wait for readiness before each test session, seconds."""
    score_unknown: bool = False
    """Score what is asked while the provider cannot say whether memory is ready; marked wherever figures are shown.
    What is asked while it is known not to be ready is never scored."""
    keep_texts: bool = False
    """Keep each question and the context retrieved for it in ``texts.jsonl``: for data that is not private."""
    diagnostics: dict[str, JsonObject] = {}
    """Native queries, ``operation: {arguments}``, that every persona's scope is asked when the run is over; answers
    go to ``diagnostics.jsonl``, their texts only with ``keep_texts``, and into no score."""
    limit_questions: Annotated[int, Field(gt=0)] | None = None
    """Ask only the first so many LoCoMo questions of each conversation: for quick tries."""
    output: DataPath | None = None
    """Where the run's directory is made. Default: ``manifests`` in the working directory."""
    compare: tuple[Public[str], ...] = ()
    """Providers to run one after another in a comparison, in place of the selected one."""

    @model_validator(mode="after")
    def _data_fits_timeline(self) -> Self:
        if self.timeline == "quickstart" and self.data is not None:
            raise ValueError("data is given, but the timeline quickstart reads none; set timeline: locomo")
        if self.timeline == "quickstart" and self.limit_questions is not None:
            raise ValueError(
                "limit_questions is for the timeline locomo; make users or sessions smaller instead"
            )
        return self

    @property
    def directory(self) -> Path:
        """Where the run's directory is made."""
        return (self.output or Path("manifests")).expanduser()


def run_settings(config: MemslotConfig, **overrides: Any) -> RunSettings:
    """The settings of a run.

    Args:
        config: its ``run:`` block is read; a missing one means defaults.
        overrides: fields that take precedence, such as command-line values; None means not given.

    Raises:
        ConfigError: a field is unknown or wrong.
    """
    given: Mapping[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    settings = parse_block(
        RunSettings, {**(config.run or {}), **given}, "run", source=config.source, lines=config.problem.lines
    )
    written = {name: getattr(settings, name) for name in (config.run or {}).keys() - given.keys()}
    return settings.model_copy(update=resolve_paths(written, config.base))


def budget_of(config: MemslotConfig, settings: RunSettings) -> ContextBudget:
    """The budget of every probe: ``memory.budget`` with the fields ``run.budget`` sets in their place."""
    override = settings.budget
    if override is None:
        return config.memory.budget
    return ContextBudget(**{**config.memory.budget.model_dump(), **override.model_dump(exclude_unset=True)})


def run_hash(config: MemslotConfig, options: BaseModel, settings: RunSettings) -> str:
    """The configuration hash of a run: of what it really does, so that runs that do the same hash alike.

    Left out are settings that do not apply to the timeline, ``compare``, which several runs share, ``replicate``,
    and the scope's ``run_id`` and ``persona_id``, because a run makes its own. The budget counts as it is after
    ``run.budget``.
    """
    fields = RunSettings.model_fields
    unused = {name: fields[name].default for name in (*_unused(settings), "budget")}
    given, scope = config.memory.scope, None
    if given is not None and (given.backend_namespace is not None or given.agent_id is not None):
        scope = given.model_copy(update={"run_id": "run", "persona_id": "persona"})
    memory = config.memory.model_copy(update={"budget": budget_of(config, settings), "scope": scope})
    return replace(config, memory=memory).config_hash(options, settings.model_copy(update=unused))


def published_config(config: MemslotConfig, options: BaseModel, settings: RunSettings) -> dict[str, Any]:
    """The configuration of a run as its manifest shows it: nothing private, and nothing that does not apply.

    Embedded stores go to the run's own directory, whatever ``memory.data_dir`` says, so that is left out too.
    """
    shown = config.redacted(options, settings)
    del shown["memory"]["data_dir"]
    for name in _unused(settings):
        del shown["run"][name]
    return shown


def _unused(settings: RunSettings) -> tuple[str, ...]:
    quickstart = settings.timeline == "quickstart"
    return (
        "compare",
        "doctor",
        "output",
        "diagnostics",
        "keep_texts",
        "replicate",
        *(("data", "limit_questions") if quickstart else ("users", "sessions", "seed")),
    )


def load_timelines(settings: RunSettings) -> TimelineSet:
    """The timelines to run.

    Raises:
        ConfigError: the data file is not given or cannot be used; the message says where.
    """
    if settings.timeline == "locomo":
        if settings.data is None:
            raise ConfigError(
                "run.data: is required for the timeline locomo; give the path of a LoCoMo JSON file"
            )
        return load_locomo(settings.data, limit_questions=settings.limit_questions)
    return make_quickstart(seed=settings.seed, users=settings.users, sessions=settings.sessions)
