"""The ``bench:`` and ``run:`` blocks: what is played or asked, with whom, how large, where.

One block, two names: ``bench:`` plays sessions with an assistant, a simulated user and a judge; ``run:`` plays
nobody, and asks the memory alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from memory.bench.data.generate import GameSize, as_probes, make_game
from memory.bench.data.locomo import load_locomo
from memory.bench.data.longmemeval import load_longmemeval
from memory.bench.data.mempabench import load_mempabench
from memory.bench.data.personamem import load_personamem
from memory.bench.data.timeline import TimelineSet
from memory.bench.scores.model import Record
from memory.contract._model import JsonObject
from memory.contract.requests import ContextBudget
from memory.plugins.redaction import DataPath, InputFile, Public

CsField = Literal["scenario", "context", "attribute"]
EventContext = Literal["field", "text"]
Count = Annotated[int, Field(ge=1)]


def _a_line(given: str) -> str:
    if not given.strip() or not given.isprintable():
        raise ValueError("must be one line of printable text: it is a cell of every table")
    return given


Name = Annotated[Public[str], AfterValidator(_a_line)]


class Variant(Record):
    """One provider with one setting; a bare name means its block as it stands."""

    provider: Public[str]
    """The backend or condition."""
    name: Name | None = None
    """What tables call it; the provider's name by default."""
    series: Name | None = None
    """What it is called over all budgets, where several of one series are played; the label by default."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options in place of those of the provider's block."""
    budget: ContextBudget | None = None
    """Overrides single fields of ``memory.budget``."""
    event_context: EventContext | None = None
    """In place of the block's."""
    group: Name | None = None
    """An experiment group of its own, such as ``feedback``; only providers of one group are compared."""
    needs: tuple[str, ...] = ()
    """Environment variables, such as a server's address, without which it is left out; one may stand alone."""

    @field_validator("needs", mode="before")
    @classmethod
    def _as_tuple(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name or self.provider


class ExecutorSettings(Record):
    """Where cells are played."""

    kind: Literal["local", "processes", "dask"] = "local"
    """``local``: one after another in this process. ``processes``: in worker processes of this machine. ``dask``:
    on a ``dask.distributed`` cluster whose workers share the output directory."""
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Worker processes; with ``dask`` and no address, of a cluster that is started for the run."""
    address: str | None = None
    """The dask scheduler's address."""


class RoleSettings(Record):
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


class RolesSettings(Record):
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


class Limits(Record):
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


class ExperimentSettings(Record):
    """The ``bench:`` block, and the ``run:`` block. A relative path in a file is relative to that file."""

    mode: Literal["play", "probe"] = "play"
    """``play``: sessions are played with the assistant, which is judged. ``probe``, as in a ``run:`` block:
    sessions are fixed transcripts, and requests are put to the memory alone."""
    timeline: Literal["game", "mempabench", "personamem", "longmemeval", "locomo"] = "game"
    """``game`` is generated; the others read ``data``."""
    data: InputFile | None = None
    """The data set's file or directory."""
    limit_questions: Count | None = None
    """Ask only the first so many questions: of each conversation, or of the file."""
    game: GameSize = Field(default_factory=GameSize)
    """Size and language of the generated game."""
    providers: Annotated[tuple[Variant, ...], Field(min_length=1)]
    """Whom to play with. In a ``run:`` block: whom ``memslot compare`` runs, in place of the selected one."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (7,)
    """Each makes a game of its own."""
    roles: RolesSettings = Field(default_factory=RolesSettings)
    """Who plays."""
    replicates: Count = 1
    """How often each cell is played, in a fresh scope each time."""
    budgets: tuple[Count, ...] = ()
    """Token budgets, each for each provider without a budget of its own; none: ``memory.budget`` alone."""
    event_context: Annotated[tuple[EventContext, ...], Field(min_length=1)] = ("field",)
    """How an event tells its context. ``field``: by its CS field, which a provider may show. ``text``: in its
    words too, so that whoever keeps them shows it, as the ceiling does."""
    cs: tuple[CsField, ...] = ("context",)
    """Which CS fields retrievals name. Turns that state a preference carry its ``attribute``, so naming that to a
    provider that filters hard hands it the answer."""
    wait_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Longest wait for readiness before a test session, seconds. What is asked of a memory that is not known to be
    ready by then counts as it behaves, and is marked."""
    bulk: bool = False
    """Write fixed transcripts session by session with the provider's bulk call, where it has one."""
    doctor: bool = True
    """Pass the doctor's checks before the cells of a provider are played."""
    keep_texts: bool | None = None
    """Keep what was said and shown beside the scores. Default: of generated data alone; what is read may be
    somebody's."""
    diagnostics: dict[str, JsonObject] = Field(default_factory=dict)
    """Native queries, ``operation: {arguments}``, that every scope is asked when its cell is over; answers go to
    ``diagnostics.jsonl``, their texts only with ``keep_texts``, and into no score."""
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
            return tuple({"provider": item} if isinstance(item, str) else item for item in given)
        return given

    @field_validator("seeds", "budgets", "event_context")
    @classmethod
    def _each_once(cls, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(given)) != len(given):
            raise ValueError("names one twice")
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        labels = [variant.label for variant in self.crossed()]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"providers has two entries called {twice[0]!r}; give one of them a name")
        if (self.data is None) != (self.timeline == "game"):
            wrong = "needs data: the path to read" if self.data is None else "is generated, and reads no data"
            raise ValueError(f"the timeline {self.timeline} {wrong}")
        if self.timeline != "game" and len(self.seeds) > 1:
            raise ValueError("seeds make generated games; data that is read has one, use replicates")
        return self

    def crossed(self) -> tuple[Variant, ...]:
        """The providers, each with every budget and every way to tell the context that it does not name itself."""
        found = []
        for variant in self.providers:
            budgets = [variant.budget] if variant.budget or not self.budgets else self.budgets
            contexts = (variant.event_context,) if variant.event_context else self.event_context
            for budget, context in product(budgets, contexts):
                way = f", context in the {context}" if len(contexts) > 1 else ""
                name, series = f"{variant.label}{way}", f"{variant.series or variant.label}{way}"
                if isinstance(budget, int):
                    size = f", {budget} tokens" if len(self.budgets) > 1 else ""
                    name, budget = f"{variant.label}{size}{way}", ContextBudget(max_tokens=budget)
                update = {"budget": budget, "event_context": context, "name": name, "series": series}
                found.append(variant.model_copy(update=update))
        return tuple(found)

    @property
    def texts_kept(self) -> bool:
        """Whether texts are kept."""
        return self.data is None if self.keep_texts is None else self.keep_texts

    @property
    def directory(self) -> Path:
        """Where the experiment's directory is made."""
        return (self.output or Path("manifests")).expanduser()


@lru_cache(maxsize=4)
def _generated(size: GameSize, seed: int, mode: str) -> TimelineSet:
    return _in_mode(make_game(size, seed=seed), mode)


@lru_cache(maxsize=2)
def _read(timeline: str, path: Path, limit: int | None, mode: str) -> TimelineSet:
    if timeline == "mempabench":
        return _in_mode(load_mempabench(path), mode)
    loaders = {"locomo": load_locomo, "personamem": load_personamem, "longmemeval": load_longmemeval}
    return loaders[timeline](path, limit_questions=limit)


def _in_mode(data: TimelineSet, mode: str) -> TimelineSet:
    return as_probes(data) if mode == "probe" else data


def load_timelines(settings: ExperimentSettings, seed: int) -> TimelineSet:
    """The timelines of one seed; data that is read is the same for every seed.

    Raises:
        ConfigError: the data cannot be used; the message says where.
    """
    if settings.data is not None:
        return _read(settings.timeline, settings.data, settings.limit_questions, settings.mode)
    return _generated(settings.game, seed, settings.mode)


RUN_DEFAULTS: dict[str, Any] = {
    "mode": "probe",
    "game": {"users": 3, "sessions": 16, "tests": 16},
    "keep_texts": False,  # sections may hold what the file's own options say
}
"""What a ``run:`` block is without a word."""


def run_block(written: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A ``run:`` block with its defaults, and with what takes precedence."""
    filled = {**RUN_DEFAULTS, **written, **given}
    if isinstance(filled["game"], Mapping):
        filled["game"] = {**RUN_DEFAULTS["game"], **filled["game"]}
    return filled


_FORMER = {
    "seed": "is now seeds, a list",
    "users": "is now game.users",
    "sessions": "is now game.sessions",
    "replicate": "is now replicates: how often each cell is played",
    "compare": "is now providers",
    "budget": "stands in memory.budget, or in a provider's own budget",
    "score_unknown": "is gone: what is asked of a memory that is not known to be ready counts, and is marked",
}


def former_name(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """A field of a block that has another name now, and what it is; None without one."""
    for name, now in _FORMER.items():
        if name in block:
            return name, now
    if block.get("timeline") == "quickstart":
        return "timeline", "quickstart is now game, asked by probes"
    return None
