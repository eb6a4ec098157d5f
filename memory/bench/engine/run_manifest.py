"""The run manifest: everything needed to rerun a benchmark run, and to distrust it.

A manifest holds no user text and no secret: names, counts, hashes, ids and times only. What is unknown is null.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from memory.contract._model import first_problem
from memory.contract.adapter import label_of
from memory.contract.errors import ConfigError
from memory.contract.receipts import (
    BackendHealth,
    ConditionKind,
    ConsistencyModel,
    CsFiltering,
    PetObservability,
)
from memory.contract.requests import ContextBudget
from memory.contract.scope import MemoryScope

FORMAT_VERSION = 1
"""Raised whenever a reader of the old form would misread the new one."""


class Record(BaseModel):
    """What all records of runs share: frozen, no unknown fields, no input in errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


class ErrorRecord(Record):
    """An error, without user text: messages of memslot's own errors never hold any."""

    type: str
    """Class name."""
    message: str
    """What happened; for errors that are not memslot's own, a sentence without their message."""
    operation: str | None = None
    """The native operation that failed, where known."""
    diagnostics: dict[str, JsonValue] = Field(default_factory=dict)
    """Redacted facts such as HTTP status and error code."""


class GitRecord(Record):
    """The source checkout memslot ran from."""

    revision: str
    """Commit hash."""
    dirty: bool | None
    """Whether tracked files differed from it; null where git did not say."""


class VersionRecord(Record):
    """What software ran."""

    memslot: str
    """Version of memslot."""
    python: str
    """Version of the interpreter."""
    implementation: str
    """Name of the interpreter, such as CPython."""
    platform: str
    """Operating system and machine."""
    distributions: dict[str, str]
    """Installed distributions this run relied on, by name: memslot's own requirements, the plugin, its SDK."""
    git: GitRecord | None
    """Source revision; null when memslot did not run from a git checkout."""


class ProviderRecord(Record):
    """Which one context provider was active (spec 2.2). Both fields are recorded and exactly one is set."""

    backend: str | None
    """Name of the memory architecture, or null."""
    condition: str | None
    """Name of the experimental condition, or null."""
    kind: ConditionKind
    """``architecture`` or ``control``, as configured; only architectures are compared as such."""
    equivalent_control: str | None = None
    """The control that the configured backend comes to; null where it is what it is called."""
    fallback_components: tuple[str, ...] = ()
    """What worked, without a model, where the provider is known for one."""
    summary: str = ""
    """What it is, as its plugin describes it."""
    distribution: str | None = None
    """Distribution that offers the plugin."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.backend is None) == (self.condition is None):
            raise ValueError("exactly one of backend and condition must be set")
        return self

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.backend or self.condition or ""

    @property
    def label(self) -> str:
        """The name, and what it would hide: to stand wherever a figure does."""
        return label_of(self.name, self.equivalent_control, self.fallback_components)


class TraitsRecord(Record):
    """What the adapter declares about itself."""

    consistency: ConsistencyModel
    """When a write becomes retrievable."""
    cs_filtering: CsFiltering
    """Whether scenario, context and attribute filter natively, influence ranking, or have no effect."""
    pet_observability: PetObservability | None = None
    """What retrievals tell of change over time: ``dated`` rows, a ``versioned`` representation, or neither
    (``weak``); null where it is not declared."""
    filter_operators: tuple[str, ...]
    """Operators of metadata filters, sorted."""
    recalls_writes: bool
    """False where the context does not come from what was written."""
    max_concurrency: int | None
    """Native calls at a time; null is unlimited."""
    max_scope_concurrency: int | None
    """Native calls at a time within one scope; null is unlimited."""
    write_retries: int
    """How often an ambiguous write may be repeated."""


class DataRecord(Record):
    """What the run went through."""

    timeline: str
    """Kind of timeline: quickstart or locomo."""
    name: str | None
    """File name of the data, without its directory; null for generated data."""
    sha256: str
    """Hash of the data as canonical JSON: sorted keys, no optional whitespace, no escapes."""
    seed: int | None
    """What generated the data; null for data read from a file."""
    personas: int
    """Personas, each a scope of its own."""
    sessions: int
    """Accumulation sessions over all personas."""
    turns: int
    """Events over all personas."""
    probes: int
    """Questions over all personas, as far as they were to be asked."""
    notes: tuple[str, ...] = ()
    """What a reader must know about the data, such as its licence."""


class CellRecord(Record):
    """One persona under the provider: a scope, from set-up to the last probe."""

    persona_id: str
    """The persona."""
    scope: MemoryScope
    """Its scope; fresh for this run."""
    native_scope: dict[str, str] | None = None
    """The scope's native ids by name; null where it was never set up."""
    status: Literal["completed", "failed", "not_run"] = "not_run"
    """``failed`` cells stopped early; their earlier probes still count."""
    error: ErrorRecord | None = None
    """Why it failed."""
    sessions: int = 0
    """Sessions ingested."""
    events: int = 0
    """Events handed to the provider."""
    writes: dict[str, int] = Field(default_factory=dict)
    """Receipts by status. ``unknown`` means sent without an answer."""
    native_records: int = 0
    """Native records the receipts name; a backend that names none counts none."""
    probes: int = 0
    """Probes answered, scored or not."""
    probe_errors: int = 0
    """Probes whose retrieval failed; they are not scored."""
    probes_not_ready: int = 0
    """Of the probes answered: those asked while memory was not known to be ready; they are not scored."""
    readiness: dict[str, int] = Field(default_factory=dict)
    """Answers of the readiness waits by state; ``not_offered`` where the provider has no such capability."""


class CheckRecord(Record):
    """One of the doctor's checks, passed before the run began."""

    name: str
    """The check; see ``memory.doctor.CHECKS``."""
    status: Literal["passed", "failed", "pending", "skipped"]
    """``pending`` could not be seen in time; ``skipped`` was not tried."""
    evidence: str
    """What was seen on two synthetic scopes."""
    latency_ms: float | None
    """How long it took; null where it was not tried."""


class TimingRecord(Record):
    """Wall time by phase, milliseconds, over all cells. Phases never overlap."""

    doctor_ms: float = 0.0
    """The doctor's checks, on scopes and an adapter of their own."""
    setup_ms: float = 0.0
    """Opening the provider, health and scope set-up."""
    ingest_ms: float = 0.0
    """Writing events."""
    wait_ms: float = 0.0
    """Waiting until what was written is retrievable."""
    retrieve_ms: float = 0.0
    """Retrieving, the fitting to the budget included."""
    format_ms: float = 0.0
    """Rendering the context section once more, alone; measured apart from retrieving."""
    answer_ms: float | None = None
    """Answering by a model; null because nothing is answered here."""
    total_ms: float = 0.0
    """The whole run, scoring and bookkeeping included."""


class TokenRecord(Record):
    """Tokens by purpose, by one counter. Null means unknown, not zero."""

    counter: str
    """Name of the counter."""
    written: int = 0
    """Tokens of the texts handed to the provider."""
    ingest_calls: int | None = None
    """Answers of the provider's own language models while writing, embeddings aside; null where it does not say."""
    ingest_model: int | None = None
    """Tokens these read and wrote; null where provider or endpoint does not say."""
    context: int = 0
    """Tokens of all context sections together."""
    retrieve_calls: int | None = None
    """Answers of the provider's own language models while retrieving; null where it does not say."""
    retrieve_model: int | None = None
    """Tokens these read and wrote; null where provider or endpoint does not say."""
    answer: int | None = None
    """Tokens of answers; null because nothing is answered here."""


class RunManifest(Record):
    """One run of one provider over one timeline set."""

    format_version: Literal[1] = 1
    """Version of this form."""
    run_id: str
    """Unique; also the name of the run's directory and the ``run_id`` of its scopes."""
    created_at: AwareDatetime
    """When it began, UTC."""
    finished_at: AwareDatetime | None = None
    """When it ended; null while incomplete."""
    status: Literal["incomplete", "completed", "failed"] = "incomplete"
    """``incomplete`` until the last file is written; ``failed`` when any cell or probe failed, or a probe was
    asked while memory was not known to be ready."""
    error: ErrorRecord | None = None
    """What ended the run early, where something did."""
    provider: ProviderRecord
    """The active context provider."""
    versions: VersionRecord
    """Versions of the software that ran."""
    config: dict[str, JsonValue]
    """The resolved configuration of this run: switches, numbers, choices and what is public; a hash of texts, paths
    and files; ``***`` for all else."""
    config_hash: str
    """Hash of everything that determines the results, hidden options and files' contents included; credentials and
    where data lies are left out. A run with the same one ran the same thing."""
    wired: tuple[str, ...] = ()
    """Provider options that were filled in from the timeline's ground truth, by name."""
    budget: ContextBudget
    """Budget of every retrieval; null fields are unlimited."""
    cs_fields: tuple[str, ...]
    """Which of scenario, context and attribute the probes passed to the provider."""
    seeds: dict[str, int]
    """Seeds by purpose."""
    replicate: int = Field(default=0, ge=0)
    """Which repetition of the same run this is, as ``run.replicate`` said."""
    data: DataRecord
    """The timelines: kind, hash and sizes."""
    capabilities: tuple[str, ...] = ()
    """Capability protocols the adapter offered, sorted."""
    traits: TraitsRecord
    """What the adapter declared."""
    doctor: tuple[CheckRecord, ...] | None = None
    """The doctor's checks, in order; null where they were not asked for, or not reached."""
    health: BackendHealth | None = None
    """Health at the start; null where it was not reached."""
    evidence_by: Literal["event_id", "text"] | None = None
    """How evidence was found: by the event ids entries name, or by text where no entry ever names one."""
    cells: tuple[CellRecord, ...]
    """One for each persona, in the order they ran."""
    timings: TimingRecord = TimingRecord()
    """Time by phase."""
    tokens: TokenRecord
    """Tokens by purpose."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256, hex, of results, traces, texts and diagnostics as the run left them; ``memslot verify`` compares."""
    warnings: tuple[str, ...] = ()
    """What a reader of the scores must know, each once."""
    not_run: tuple[str, ...] = ()
    """What was left out on purpose or by failure."""

    @property
    def problems(self) -> list[str]:
        """What failed, and what could not be scored, each in a line."""
        missing = self.data.probes - sum(cell.probes - cell.probes_not_ready for cell in self.cells)
        unscored = f"{missing} of {self.data.probes} probes are not scored"
        return [
            *([self.error.message] if self.error else []),
            *(one for cell in self.cells for one in _problems(cell)),
            *([unscored] if missing else []),
        ]


def _problems(cell: CellRecord) -> Iterator[str]:
    if cell.error:
        yield f"{cell.persona_id}: {cell.error.message}"
    if cell.probe_errors:
        yield f"{cell.persona_id}: {cell.probe_errors} probes got no answer and are not scored"
    if cell.probes_not_ready:
        untold = {"unknown", "not_offered"} & cell.readiness.keys()
        hint = "; where the provider cannot say, run.score_unknown: true scores them" if untold else ""
        yield (
            f"{cell.persona_id}: {cell.probes_not_ready} of {cell.probes} probes were asked while memory was not "
            f"known to be ready and are not scored{hint}"
        )
    if cell.status == "not_run":
        yield f"{cell.persona_id}: not run"


def manifest_schema() -> dict[str, Any]:
    """The manifest's JSON schema, as published beside the runs."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RunManifest.model_json_schema()}


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file, a text as UTF-8, so that after a crash either the old or the new content is there, whole."""
    unfinished = path.with_name(path.name + ".part")
    with open(unfinished, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def write_manifest(manifest: RunManifest, path: Path) -> None:
    """Write ``manifest`` to the file ``path``, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(path, manifest.model_dump_json(indent=2) + "\n")


def read_manifest(path: Path) -> RunManifest:
    """Read a manifest, from its file or from its run's directory; older forms are migrated.

    Raises:
        ConfigError: there is none, it is damaged, or it is of a newer form than this version knows.
    """
    file = path / "manifest.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist; give the directory of a run") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from None
    except ValueError:
        raise ConfigError(f"{file} is not JSON; the manifest is damaged") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is not a run manifest")
    try:
        return RunManifest.model_validate(_migrated(content, file))
    except ValidationError as error:
        raise ConfigError(f"{file} is not a run manifest: {first_problem(error)}") from None


def _migrated(content: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    """The content in today's form. Each past version will have one step here, from it to the next."""
    version = content.get("format_version")
    if not isinstance(version, int):
        raise ConfigError(f"{file} is not a run manifest: format_version is missing")
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"{file} has format_version {version}, and this memslot knows {FORMAT_VERSION}; upgrade memslot"
        )
    return content
