"""The manifest of an experiment, and the record of each cell: everything needed to repeat and to question it.

They hold no user text and no secrets: only names, counts, hashes, ids and times. Unknown values are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from memory.bench.data.reading import canonical_hash
from memory.bench.engine.files import read_record
from memory.bench.engine.prompts import RoleName
from memory.bench.engine.settings import REFERENCES
from memory.bench.scores.model import Record, Standing
from memory.contract.errors import MemslotError
from memory.contract.receipts import (
    BackendHealth,
    ConditionKind,
    ConsistencyModel,
    CsFiltering,
    PetObservability,
)
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope
from memory.contract.traits import label_of
from memory.doctor.report import CheckResult


class ErrorRecord(Record):
    """An error, without user text: messages of memslot's own errors never hold any."""

    type: str
    message: str  # what happened; for errors that are not memslot's own, a sentence without their message


class VersionRecord(Record):
    """The memslot and the interpreter that ran."""

    memslot: str
    python: str
    platform: str
    revision: (
        str | None
    )  # of memslot's git checkout, with a word about local changes; null without a checkout


class ProviderRecord(Record):
    """The active context provider (spec 2.2): a memory architecture or an experimental condition."""

    backend: str | None
    condition: str | None
    kind: ConditionKind
    """``architecture`` or ``control``, as configured; only architectures are compared as such."""
    equivalent_control: str | None = None
    """The control whose method the configured backend uses; null where it is what it is called."""
    differs_from_control: bool = False
    """Whether its options resolve to others than that control has by default."""
    fallback_components: tuple[str, ...] = ()
    """What worked, without a model, where the provider is known for one."""
    summary: str = ""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.backend is None) == (self.condition is None):
            raise ValueError("exactly one of backend and condition must be set")
        return self

    @property
    def name(self) -> str:
        return self.backend or self.condition or ""


class DataRecord(Record):
    """The data of the experiment."""

    timeline: str
    name: str | None  # file name of the data, without its directory; null for generated data
    sha256: str  # hash of the data as canonical JSON: sorted keys, no optional whitespace, no escapes
    seed: int | None  # what generated the data; null for data read from a file
    wordings_sha256: str | None = None
    """Of the file of wordings; null for those that ship with memslot, and for data read from a file."""
    personas: int
    sessions: int
    turns: int
    probes: int  # judged requests of test sessions, and questions
    notes: tuple[str, ...] = ()  # what a reader must know about the data, such as its licence


class LeftOutRecord(Record):
    """An entry of ``providers`` that was not played."""

    label: str
    why: str
    broken: bool = False  # whether it is a defect, and not something that was never installed or set up


def error_record(error: BaseException) -> ErrorRecord:
    """An error for the manifest. Only memslot's own messages are known to hold no user text."""
    withheld = "not an error of memslot's own, so its message, which may hold user text, is withheld"
    return ErrorRecord(
        type=type(error).__name__, message=str(error) if isinstance(error, MemslotError) else withheld
    )


MANIFEST_FILE = "manifest.json"

CellStatus = Literal["not_run", "completed", "failed", "stopped", "died"]


class CellRecord(Record):
    """One persona of one seed under one provider, once."""

    cell_id: str  # its directory below ``cells``
    label: str
    persona_id: str
    seed: int
    replicate: int  # which time, from 1
    scope: MemoryScope
    native_scope: dict[str, str] | None = None
    """The scope's native ids by name; null where it was never set up."""
    status: CellStatus = "not_run"
    """``stopped``: a role's model did not answer. ``died``: its worker said no word."""
    error: ErrorRecord | None = None
    fault: Literal["provider", "harness"] | None = None
    """Whose fault that was: what the cell did not get to is failed, or missing."""
    health: BackendHealth | None = None  # health at the start; null where it was not reached
    sessions: int = 0
    tests: int = 0
    probes: int = 0  # points of the timeline at which probes were asked
    counts: dict[str, int] = Field(default_factory=dict)
    """``events`` written, ``native_records`` their receipts name, ``turns`` played and ``retrieve_errors`` in
    accumulation, ``written_tokens``, ``asked_tokens``, ``context_tokens``; of test sessions: writes ``skipped``
    because the slot was read-only, retrievals ``recalled``, and of them ``dated``, ``versioned``."""
    usage: dict[str, dict[str, int | None]] = Field(default_factory=dict)
    """``calls`` and ``tokens`` of the provider's own models, by phase: ``ingest`` (with the waits that may finish
    it) and ``retrieve``. Embeddings do not count; null where the provider does not say."""
    writes: dict[str, int] = Field(default_factory=dict)  # receipts by status
    readiness: dict[str, int] = Field(default_factory=dict)
    """Test sessions by the memory's state as they began."""
    pet_observability: PetObservability | None = None
    """What retrievals really told of change over time, beside what is declared; null without retrievals."""
    models: dict[str, dict[str, int]] = Field(default_factory=dict)
    """By role: ``calls``, ``tokens`` as far as known, of them ``output_tokens``, and answers that are ``unread`` or
    ``unmetered``."""
    warnings: tuple[str, ...] = ()
    resumed: int = 0
    timings: dict[str, float] = Field(default_factory=dict)
    """Milliseconds by phase; of a process that was killed, up to its last whole session."""
    wall_ms: float | None = None  # from beginning to end of the process that ended it
    files: dict[str, str] = Field(default_factory=dict)  # SHA-256, hex, of its files by name


class VariantRecord(Record):
    """One provider with one setting."""

    label: str
    series: str  # what it is called over all budgets
    group: str | None  # its experiment group; only providers of one group are compared
    provider: ProviderRecord
    distributions: dict[str, str]
    """Name -> version of memslot's requirements, the plugin and its SDK."""
    config: dict[str, JsonValue]  # its effective configuration, as it may be published
    config_hash: str  # hash of all of it, hidden options and files' contents included
    options_hash: str  # hash of its resolved options alone; two that are equal are configured alike
    models: tuple[str, ...] = ()  # language models that its configuration names, embedders aside
    also: tuple[str, ...] = ()
    """Labels of providers whose resolved options are equal; this one stands for them."""
    wired: tuple[str, ...]  # options that were filled in from the timeline's ground truth
    budget: ContextBudget  # of every retrieval: the token range aimed at
    counter: str
    capabilities: tuple[str, ...]
    consistency: ConsistencyModel
    cs_filtering: CsFiltering
    """Whether scenario, context and attribute filter natively, influence ranking, or have no effect."""
    pet_observability: PetObservability | None = None
    """What retrievals tell of change over time: ``dated`` rows, a ``versioned`` form, or neither (``weak``)."""
    read_only: bool
    doctor: tuple[CheckResult, ...] | None = None
    """The doctor's checks; null where they were not asked for or not reached."""
    error: ErrorRecord | None = None

    @property
    def standing(self) -> Standing:
        return "reference" if self.provider.condition in REFERENCES else self.provider.kind


def shown_labels(
    variants: Sequence[VariantRecord], played: Sequence[Sequence[CellRecord]] = ()
) -> tuple[str, ...]:
    """Each variant's label, with its equivalent control, any stand-in for a model, and a search by keywords.

    Tables show this text beside each figure. "The same as" a control means equal resolved options: those of
    the control among ``variants``, otherwise its defaults.

    Args:
        variants: of one table.
        played: the cells of each variant. Their health tells whether keywords searched beside vectors.
    """
    cells = played or [()] * len(variants)
    return tuple(_shown(variant, variants, own) for variant, own in zip(variants, cells, strict=True))


def _shown(variant: VariantRecord, variants: Sequence[VariantRecord], cells: Sequence[CellRecord]) -> str:
    provider = variant.provider
    keywords = any(cell.health and cell.health.details.get("keyword_search") is True for cell in cells)
    parts = (*provider.fallback_components, *(["keywords beside vectors"] if keywords else []))
    control = provider.equivalent_control
    beside = [each.options_hash for each in variants if control and each.provider.condition == control]
    differs = variant.options_hash not in beside if beside else provider.differs_from_control
    label = " = ".join((variant.label, *variant.also))
    if control in variant.also:
        control = None
    return label_of(label, control, parts, differs_from_control=differs)


class RoleRecord(Record):
    """The model of a role, or the rules in its place."""

    role: RoleName
    kind: Literal["rules", "model"]
    provider: str | None = None
    model: str | None = None  # null where the provider's block names none
    prompt_sha256: str | None = None
    """Hex, of the prompt's file; of several prompts, of their kinds and hashes as canonical JSON."""
    temperature: float | None = None  # null: the model's own
    seed: int | None = None
    """Of the first replicate and the judge's first vote; later ones count up from it. Null: none was sent."""
    votes: int = 1
    options_hash: str | None = None  # of all options of its provider but credentials, time-outs and retries


class Manifest(Record):
    """Everything of an experiment but its scores."""

    experiment_id: str  # unique; also the directory's name
    created_at: AwareDatetime
    status: Literal["incomplete", "completed", "failed", "stopped"] = "incomplete"
    """``failed``: a cell, a request or a provider did not end well. ``stopped``: as of cells; resuming goes on."""
    versions: VersionRecord
    settings: dict[str, JsonValue]  # that block, as it may be published
    scope: MemoryScope | None = None
    """``memory.scope`` as configured; each cell extends its ``run_id`` and has a persona of its own."""
    hashes: dict[str, str]  # of all that decides what is played, by part; a resumed run must have the same
    data: dict[str, DataRecord]  # by seed
    roles: tuple[RoleRecord, ...]
    variants: tuple[VariantRecord, ...]
    left_out: tuple[LeftOutRecord, ...] = ()
    notes: tuple[str, ...] = ()  # what a command filled in for want of a setting, such as a common budget
    cells: tuple[CellRecord, ...]
    record_sha256: str | None = None  # of everything else in here, as canonical JSON; null until it has ended

    def by_model(self, role: RoleName) -> bool:
        """Whether a model has the role."""
        return any(each.role == role and each.kind == "model" for each in self.roles)

    def cells_of(self, label: str) -> list[CellRecord]:
        return [cell for cell in self.cells if cell.label == label]

    def parts(self) -> dict[str, str]:
        """Recompute ``hashes`` from the other fields."""
        left_aside = ("doctor", "executor", "providers", "prices")
        parts: dict[str, Any] = {
            "settings": {name: value for name, value in self.settings.items() if name not in left_aside},
            "data": {seed: item.sha256 for seed, item in self.data.items()},
            "scope": self.scope and self.scope.model_dump(),
            "roles": [role.model_dump(mode="json") for role in self.roles],
            "providers": [[each.label, each.budget.model_dump()] for each in self.variants],
        }
        hashes = {name: canonical_hash(part) for name, part in parts.items()}
        return hashes | {f"provider {variant.label}": variant.config_hash for variant in self.variants}

    def outcome(self, *, troubled: bool) -> Literal["completed", "failed", "stopped"]:
        """``status``, by cells and providers. ``troubled`` says whether a provider failed a request."""
        statuses = {cell.status for cell in self.cells}
        broken = any(variant.error for variant in self.variants) or any(item.broken for item in self.left_out)
        if broken or troubled or statuses & {"failed", "died"}:
            return "failed"
        return "completed" if statuses == {"completed"} else "stopped"

    def own_hash(self) -> str:
        """Recompute ``record_sha256``."""
        return canonical_hash(self.model_dump(mode="json", exclude={"record_sha256"}))


def read_manifest(directory: Path) -> Manifest:
    """Read an experiment's manifest; ConfigError if it is missing or damaged."""
    return read_record(Manifest, directory / MANIFEST_FILE)
