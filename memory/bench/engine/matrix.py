"""An experiment as a file: providers x settings x users x seeds x replicates.

The ``memory:`` block is that of any configuration; ``bench:`` says what is played. Two entries of ``providers`` may
name one provider with two settings. Nothing is filled in here that a run could not be repeated from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.locomo import load_locomo
from memory.bench.data.longmemeval import load_longmemeval
from memory.bench.data.mempabench import load_mempabench
from memory.bench.data.personamem import load_personamem
from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.context import CsField, PlayerSettings
from memory.contract.errors import ConfigError
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.plugins.blocks import parse_block
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.redaction import DataPath, InputFile, Public, resolve_paths
from memory.plugins.variables import Problems
from memory.plugins.yaml import Lines, load_yaml

Count = Annotated[int, Field(ge=1)]


class _Block(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


class Variant(_Block):
    """One provider with one setting; a bare name means its block as it stands."""

    provider: Public[str]
    """The backend or condition."""
    name: Public[str] | None = None
    """What tables call it; the provider's name by default."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options in place of those of the provider's block."""
    budget: ContextBudget | None = None
    """Overrides single fields of ``memory.budget``."""
    group: Public[str] | None = None
    """An experiment group of its own, such as ``feedback``; only providers of one group are compared."""
    needs: tuple[str, ...] = ()
    """Environment variables, such as a server's address, without which it is left out; one may stand alone."""

    @field_validator("needs", mode="before")
    @classmethod
    def _one(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name or self.provider


class ExecutorSettings(_Block):
    """Where cells are played."""

    kind: Literal["local", "processes", "dask"] = "local"
    """``local``: one after another in this process. ``processes``: in worker processes of this machine. ``dask``:
    on a ``dask.distributed`` cluster whose workers share the output directory."""
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Worker processes; with ``dask`` and no address, of a cluster that is started for the run."""
    address: str | None = None
    """The dask scheduler's address."""


class RoleSettings(_Block):
    """Who plays a role; the word ``rules`` means deterministic rules, without a model."""

    provider: Public[str] | None = None
    """How a model is reached, such as ``openai``; see :mod:`memory.runtime.providers`. None: rules."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """The provider's block: ``model``, ``base_url``, ``api_key``, ..."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """What the model is asked with. None leaves it to the model."""
    seed: Annotated[int, Field(ge=0, lt=2**30)] | None = None
    """What the model is asked with, where its API takes one; each vote and each replicate counts up from it."""
    votes: Annotated[int, Field(ge=1, le=15)] = 1
    """Judgements taken of each reply; for the judge."""

    @model_validator(mode="before")
    @classmethod
    def _rules(cls, given: Any) -> Any:
        return {} if given == "rules" else given


class RolesSettings(_Block):
    """The three roles."""

    assistant: RoleSettings = Field(default_factory=RoleSettings)
    """Who is tested."""
    simulator: RoleSettings = Field(default_factory=RoleSettings)
    """Who stands in for the user."""
    judge: RoleSettings = Field(default_factory=RoleSettings)
    """Who decides whether a reply suits. Rules recognise the replies of the assistant by rules alone."""

    @model_validator(mode="after")
    def _understand_each_other(self) -> Self:
        if self.assistant.provider is not None and self.judge.provider is None:
            raise ValueError("judge: rules cannot judge what a model says; give the judge a provider too")
        if self.assistant.provider is None and self.simulator.provider is not None:
            raise ValueError(
                "assistant: rules do not understand a simulator that is a model; give it a provider"
            )
        return self


class Limits(_Block):
    """What models may cost, and how fast they may be asked. A run stops cleanly when a ceiling is reached, and can
    be resumed with a higher one."""

    max_calls: Count | None = None
    """Calls of the roles' models."""
    max_tokens: Count | None = None
    """Tokens they read and write, as far as they say."""
    requests_per_minute: Count | None = None
    """That one endpoint may get, from all workers together; roles on the same server share it. A server's 429 is
    waited for with or without it."""
    tokens_per_minute: Count | None = None
    """Likewise, tokens read and written."""


class BenchSettings(_Block):
    """The ``bench:`` block. A relative path in a file is relative to that file."""

    timeline: Literal["game", "mempabench", "personamem", "longmemeval", "locomo"] = "game"
    """``game`` is generated; the others read ``data``."""
    data: InputFile | None = None
    """The data set's file or directory."""
    limit_questions: Count | None = None
    """Ask only the first so many questions: of each conversation, or of the file."""
    game: GameSize = Field(default_factory=GameSize)
    """Size and language of the generated game."""
    providers: Annotated[tuple[Variant, ...], Field(min_length=1)]
    """Whom to play with."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (7,)
    """Each makes a game of its own."""
    roles: RolesSettings = Field(default_factory=RolesSettings)
    """Who plays."""
    replicates: Count = 1
    """How often each cell is played, in a fresh scope each time."""
    cs: tuple[CsField, ...] = ("context",)
    """Which CS fields retrievals name. Turns that tell a preference carry its ``attribute``, so naming that to a
    provider that filters hard hands it the answer."""
    score_unknown: bool = False
    """Count test sessions although the provider cannot say whether it is ready; the report says so."""
    wait_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Longest wait for readiness before a test session, seconds."""
    doctor: bool = True
    """Pass the doctor's checks before the cells of a provider are played."""
    keep_texts: bool | None = None
    """Keep what was said and shown beside the scores. Default: not for data in
    MemPABench's layout, which may be yours."""
    executor: ExecutorSettings = Field(default_factory=ExecutorSettings)
    """Where cells are played."""
    limits: Limits = Field(default_factory=Limits)
    """What models may cost."""
    output: DataPath | None = None
    """Where the experiment's directory is made. Default: ``manifests`` in the working directory."""

    @field_validator("providers", mode="before")
    @classmethod
    def _bare_names(cls, given: Any) -> Any:
        if isinstance(given, Sequence) and not isinstance(given, str):
            return tuple({"provider": one} if isinstance(one, str) else one for one in given)
        return given

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, given: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if len(set(given)) != len(given):
            raise ValueError("names a seed twice")
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        labels = [variant.label for variant in self.providers]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"providers has two entries called {twice[0]!r}; give one of them a name")
        if (self.data is None) != (self.timeline == "game"):
            wrong = "needs data: the path to read" if self.data is None else "is generated, and reads no data"
            raise ValueError(f"the timeline {self.timeline} {wrong}")
        if self.timeline != "game" and len(self.seeds) > 1:
            raise ValueError("seeds make generated games; data that is read has one, use replicates")
        return self

    @property
    def texts_kept(self) -> bool:
        """Whether texts are kept."""
        public = self.timeline != "mempabench"  # a layout, in which may be anyone's sessions
        return public if self.keep_texts is None else self.keep_texts

    @property
    def directory(self) -> Path:
        """Where the experiment's directory is made."""
        return (self.output or Path("manifests")).expanduser()


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One persona of one seed under one provider, once."""

    variant: int
    seed: int
    replicate: int
    persona: int
    persona_id: str
    label: str

    @property
    def cell_id(self) -> str:
        """Its directory's name: unique in the experiment, and safe on any file system."""
        return f"{self.variant + 1:02}-s{self.seed}-r{self.replicate}-p{self.persona + 1}"

    @property
    def cluster(self) -> str:
        """What beats of one persona of one seed have in common, whoever the provider is."""
        return f"{self.seed}/{self.persona_id}"


@dataclass(frozen=True)
class Experiment:
    """A matrix, read and checked. Can be sent to another process.

    Attributes:
        settings: the ``bench:`` block, paths made absolute.
        content: the file's other blocks, variables not filled in, so that no secret is in it that was in none.
        source: the file's name, for messages.
        left_out: entries of ``providers`` whose variables are not set, with what they need.
        base: what relative paths are relative to.
    """

    settings: BenchSettings
    content: dict[str, Any] = field(repr=False)
    source: str
    base: Path
    left_out: tuple[str, ...] = ()

    @cached_property
    def scope(self) -> MemoryScope | None:
        """``memory.scope``, of which cells take over what is not their own."""
        return self.config(self.settings.providers[0]).memory.scope

    def config(self, variant: Variant) -> MemslotConfig:
        """The configuration of one provider with its setting, variables filled in from the environment.

        Raises:
            ConfigError: a block cannot be used.
        """
        memory = dict(self.content["memory"])
        if variant.options:
            group = next(
                (name for name in ("backends", "conditions") if variant.provider in (memory.get(name) or {})),
                "backends",
            )
            blocks = memory[group] = dict(memory.get(group) or {})
            blocks[variant.provider] = {**(blocks.get(variant.provider) or {}), **variant.options}
        if variant.budget is not None:
            memory["budget"] = {
                **(memory.get("budget") or {}),
                **variant.budget.model_dump(exclude_unset=True),
            }
        config = load_config({**self.content, "memory": memory}, provider=variant.provider)
        return replace(config, base=self.base, problem=Problems(self.source, Lines()))

    def player(self, config: MemslotConfig) -> PlayerSettings:
        """How cells of a configuration are played."""
        settings = self.settings
        return PlayerSettings(
            budget=config.memory.budget,
            cs=settings.cs,
            read_only=config.memory.read_only_test_sessions,
            wait_timeout_s=settings.wait_timeout_s,
            score_unknown=settings.score_unknown,
        )

    def timelines(self, seed: int) -> TimelineSet:
        """The timelines of one seed.

        Raises:
            ConfigError: the data cannot be used.
        """
        return load_timelines(self.settings, seed)

    def cells(self) -> list[CellSpec]:
        """All cells, replicates outermost, so that an interrupted run has something of everyone."""
        return [
            CellSpec(number, seed, replicate, place, timeline.persona_id, variant.label)
            for replicate in range(1, self.settings.replicates + 1)
            for seed in self.settings.seeds
            for place, timeline in enumerate(self.timelines(seed).timelines)
            for number, variant in enumerate(self.settings.providers)
        ]


@lru_cache(maxsize=4)
def _generated(size: GameSize, seed: int) -> TimelineSet:
    return make_game(size, seed=seed)


@lru_cache(maxsize=2)
def _read(timeline: str, path: Path, limit: int | None) -> TimelineSet:
    if timeline == "mempabench":
        return load_mempabench(path)
    loaders = {"locomo": load_locomo, "personamem": load_personamem, "longmemeval": load_longmemeval}
    return loaders[timeline](path, limit_questions=limit)


def load_timelines(settings: BenchSettings, seed: int) -> TimelineSet:
    """The timelines of one seed; data that is read is the same for every seed.

    Raises:
        ConfigError: the data cannot be used; the message says where.
    """
    if settings.data is not None:
        return _read(settings.timeline, settings.data, settings.limit_questions)
    return _generated(settings.game, seed)


def load_experiment(source: str | Path | Mapping[str, Any], **overrides: Any) -> Experiment:
    """Read a matrix and check everything that can be checked without playing.

    Args:
        source: a YAML file, or its content.
        overrides: fields of ``bench`` that take precedence; None means not given.

    Raises:
        ConfigError: a block is missing, unknown or wrong; the message names the field and its line.
    """
    content, lines = (source, Lines()) if isinstance(source, Mapping) else load_yaml(Path(source))
    name = "config" if isinstance(source, Mapping) else str(source)
    problem = Problems(name, lines)
    unknown = sorted(str(key) for key in content if key not in ("memory", "bench", "run"))
    if unknown:
        raise problem((unknown[0],), "is not a known section; an experiment has memory and bench")
    for section in ("memory", "bench"):
        if not isinstance(content.get(section), Mapping):
            raise problem((section,), "is missing; an experiment has a memory block and a bench block")
    base = Path() if isinstance(source, Mapping) else Path(source).absolute().parent
    given = {key: value for key, value in overrides.items() if value is not None}
    written = dict(content["bench"])
    settings = parse_block(BenchSettings, {**written, **given}, "bench", source=name, lines=lines)
    own = {key: resolve_paths(getattr(settings, key), base) for key in written.keys() - given.keys()}
    settings = settings.model_copy(update=own)
    asked = [(one, [name for name in one.needs if not os.environ.get(name)]) for one in settings.providers]
    left_out = tuple(f"{one.label} needs {', '.join(names)}" for one, names in asked if names)
    settings = settings.model_copy(update={"providers": tuple(one for one, names in asked if not names)})
    if not settings.providers:
        raise problem(("bench", "providers"), f"leaves nobody: {'; '.join(left_out)}; set what is needed")
    experiment = Experiment(settings, {"memory": dict(content["memory"])}, name, base, left_out)
    for variant in settings.providers:
        try:
            experiment.config(variant)
        except ConfigError as error:
            raise ConfigError(f"{name}: bench.providers, {variant.label}: {error}") from None
    return experiment
