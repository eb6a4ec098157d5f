"""The ``bench:`` and ``run:`` blocks, which have the same fields. ``docs/experiment.md`` describes them.

``bench:`` plays sessions with an assistant, a simulated user and a judge. By default, ``run:`` plays no
sessions and asks only the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from memory.bench.data.asked import as_probes
from memory.bench.data.generate import GameSize, make_game
from memory.bench.data.sets import data_sets
from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.prompts import ROLES, QuestionKind
from memory.bench.scores.model import Record
from memory.contract.requests import ContextBudget
from memory.plugins.redaction import DataPath, InputFile, Public

FLOOR, CEILING = REFERENCES = ("no_memory", "oracle_ipas")
"""The reference conditions: the floor shows nothing, and the ceiling shows the truth."""
CsField = Literal["scenario", "context", "attribute"]
EventContext = Literal["field", "text"]
Count = Annotated[int, Field(ge=1)]


def _a_line(given: str) -> str:
    if not given.strip() or not given.isprintable():
        raise ValueError("must be one line of printable text: it is a cell of every table")
    return given


Name = Annotated[Public[str], AfterValidator(_a_line)]


class Variant(Record):
    """One provider with one setting. A bare name means the block of that provider, unchanged."""

    provider: Public[str]
    name: Name | None = None
    series: Name | None = None  # its name over all budgets; the label by default
    options: dict[str, Any] = Field(default_factory=dict)  # override those of the provider's block
    budget: ContextBudget | None = None  # overrides single fields of ``memory.budget``
    phrase_list: bool = False  # a control: full_history, only entries with a phrase of the package
    group: Name | None = None  # providers are compared within a group, such as ``feedback``
    needs: tuple[str, ...] = ()  # required environment variables; left out without them

    @field_validator("needs", mode="before")
    @classmethod
    def _as_tuple(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @property
    def label(self) -> str:
        return self.name or self.provider


class ExecutorSettings(Record):
    """Where cells are played."""

    kind: Literal["local", "processes", "dask"] = "local"  # dask: workers share the output directory
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    address: str | None = None  # of the dask scheduler; without it, a cluster is started for the run


class RoleSettings(Record):
    """The model of a role. The word ``rules`` stands for deterministic rules without a model."""

    provider: Public[str] | None = None  # one of :mod:`memory.runtime.providers`; None: rules
    options: dict[str, Any] = Field(default_factory=dict, repr=False)  # the provider's block
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # None: the model's default
    # Each vote and each replicate adds to it.
    seed: Annotated[int, Field(ge=0, lt=2**30)] | None = None
    votes: Annotated[int, Field(ge=1, le=15)] = 1  # of a judge, for each reply
    # A file that replaces our prompt. The answer judge also takes a mapping: kind of question -> file.
    prompt: InputFile | dict[QuestionKind, InputFile] | None = None

    @model_validator(mode="before")
    @classmethod
    def _rules(cls, given: Any) -> Any:
        return {} if given == "rules" else given


class RolesSettings(Record):
    """Three roles play sessions; two answer and judge the questions of a data set."""

    assistant: RoleSettings = RoleSettings()
    simulator: RoleSettings = RoleSettings()
    judge: RoleSettings = RoleSettings()  # rules recognise only the replies of the assistant's rules
    reader: RoleSettings = RoleSettings()  # rules choose among given answers and answer nothing else
    answer_judge: RoleSettings = RoleSettings()  # rules score answers by their words

    @model_validator(mode="after")
    def _understand_each_other(self) -> Self:
        wrong = []
        for role in ROLES:
            chosen: RoleSettings = getattr(self, role)
            if chosen.prompt is not None and chosen.provider is None:
                wrong.append(f"{role}: rules take no prompt; give it a provider, or leave the prompt out")
            if isinstance(chosen.prompt, dict) and role != "answer_judge":
                wrong.append(f"{role}: takes one prompt; only answer_judge has one for each kind of question")
        if self.answer_judge.provider is not None and self.reader.provider is None:
            wrong.append("answer_judge: judges what a reader says; give the reader a provider too")
        if self.assistant.provider is not None and self.judge.provider is None:
            wrong.append("judge: rules cannot judge what a model says; give the judge a provider too")
        if self.assistant.provider is None and self.simulator.provider is not None:
            wrong.append("assistant: rules do not understand a simulator that is a model; give it a provider")
        if wrong:
            raise ValueError("\n".join(wrong))
        return self


class Price(Record):
    """The price of a million tokens of a model. All models use one currency."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]


class ExperimentSettings(Record):
    """The ``bench:`` block, and the ``run:`` block. A relative path in a file is relative to that file."""

    # play: sessions with an assistant are judged. probe: transcripts are fixed; only the memory is asked.
    mode: Literal["play", "probe"] = "play"
    timeline: str = "game"  # or a data set, see memory.bench.data.sets
    data: InputFile | None = None  # required for all data sets except the game
    limit_questions: Count | None = None  # for each conversation, or for the file
    game: GameSize = GameSize()
    # In a ``run:`` block: several providers, in place of the selected one.
    providers: Annotated[tuple[Variant, ...], Field(min_length=1)]
    # The provider that all others are compared with. None: every control, which makes the family larger.
    control: Public[str] | None = None
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (7,)
    roles: RolesSettings = RolesSettings()
    replicates: Count = 1
    budgets: tuple[Count, ...] = ()  # token budgets for each provider without its own
    # How events tell the context. field: in a CS field. text: also in the text, which any memory can show.
    event_context: EventContext = "field"
    # A file that replaces the package's wordings, which a memory could know by heart.
    wordings: InputFile | None = None
    # Events carry the script's attribute, which gives the answer away; the page says so.
    labels: bool = False
    cs: tuple[CsField, ...] = ("context",)
    wait_timeout_s: Annotated[float, Field(gt=0)] = 120.0  # for readiness, before each test session
    doctor: bool = True
    keep_texts: bool | None = None  # by default only for generated data; other data may be private
    executor: ExecutorSettings = ExecutorSettings()
    prices: dict[str, Price] = Field(default_factory=dict)  # model -> price; must cover each used model
    output: DataPath | None = None

    @field_validator("providers", mode="before")
    @classmethod
    def _bare_names(cls, given: Any) -> Any:
        if isinstance(given, Sequence) and not isinstance(given, str):
            return tuple({"provider": item} if isinstance(item, str) else item for item in given)
        return given

    @field_validator("timeline")
    @classmethod
    def _known_data(cls, given: str) -> str:
        if given != "game" and given not in data_sets():
            raise ValueError(f"is no known data set; use game, {', '.join(data_sets())}")
        return given

    @field_validator("seeds", "budgets")
    @classmethod
    def _each_once(cls, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(given)) != len(given):
            raise ValueError("names one twice")
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        wrong = []
        labels = [variant.label for variant in self.crossed()]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            wrong.append(f"providers has two entries called {twice[0]!r}; give one of them a name")
        if self.control is not None and self.control not in {
            name for variant in self.crossed() for name in (variant.label, variant.series)
        }:
            wrong.append(f"control: {self.control} is not in the matrix; name one of its providers")
        if self.control in REFERENCES:
            wrong.append(f"control: {self.control} is a floor or a ceiling, and no rival; name a control")
        if (self.data is None) != (self.timeline == "game"):
            what = "needs data: the path to read" if self.data is None else "is generated, and reads no data"
            wrong.append(f"the timeline {self.timeline} {what}")
        if self.wordings is not None and self.timeline != "game":
            wrong.append(f"wordings are those of a game; the timeline {self.timeline} has its own")
        if "attribute" in self.cs and not self.labels:
            wrong.append("cs names attribute, which only labels: true lets a memory have")
        if named := [
            each.label for each in self.providers if each.phrase_list and each.provider != "full_history"
        ]:
            wrong.append(f"providers: {named[0]}: phrase_list is a control made of full_history")
        if self.timeline != "game" and len(self.seeds) > 1:
            wrong.append("seeds make generated games; data that is read has one, use replicates")
        if wrong:
            raise ValueError("\n".join(wrong))
        return self

    def crossed(self) -> tuple[Variant, ...]:
        """The providers, each with every budget that it does not set itself."""
        found = []
        for variant in self.providers:
            series = variant.series or variant.label
            if variant.budget or not self.budgets:
                found.append(variant.model_copy(update={"name": variant.label, "series": series}))
                continue
            for tokens in self.budgets:
                size = f", {tokens} tokens" if len(self.budgets) > 1 else ""
                budget = ContextBudget(max_tokens=tokens)
                update = {"name": f"{variant.label}{size}", "series": series, "budget": budget}
                found.append(variant.model_copy(update=update))
        return tuple(found)

    @property
    def texts_kept(self) -> bool:
        return self.data is None if self.keep_texts is None else self.keep_texts

    @property
    def directory(self) -> Path:
        return (self.output or Path("manifests")).expanduser()


@lru_cache(maxsize=4)
def _generated(size: GameSize, seed: int, mode: str, wordings: Path | None) -> TimelineSet:
    data = make_game(size, seed=seed, wordings=wordings)
    return as_probes(data) if mode == "probe" else data


@lru_cache(maxsize=2)
def _read(timeline: str, path: Path, limit: int | None, mode: str) -> TimelineSet:
    data = data_sets()[timeline](path, limit_questions=limit)
    played = any(each.tests for each in data.timelines)
    return as_probes(data) if mode == "probe" and played else data


def load_timelines(settings: ExperimentSettings, seed: int) -> TimelineSet:
    """The timelines of one seed. Data from a file is the same for every seed. ConfigError names its
    faults."""
    if settings.data is None:
        return _generated(settings.game, seed, settings.mode, settings.wordings)
    return _read(settings.timeline, settings.data, settings.limit_questions, settings.mode)


RUN_DEFAULTS: dict[str, Any] = {  # of a ``run:`` block
    "mode": "probe",
    "game": {"users": 3, "sessions": 16, "tests": 16},
    "keep_texts": False,  # sections may show values of the file's own options
}
