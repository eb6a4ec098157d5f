"""Small records of which a manifest is made. No user text and no secret: names, counts, hashes, ids and times."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from memory.bench.scores.model import Record
from memory.contract.errors import BackendError, MemslotError
from memory.contract.receipts import ConditionKind, ConsistencyModel, CsFiltering, PetObservability


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
    """Installed distributions that were relied on, by name: memslot's own requirements, the plugin, its SDK."""
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
    """What the experiment went through."""

    timeline: str
    """Kind of timeline, such as game or locomo."""
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
    """Requests over all personas: judged ones of test sessions, and questions."""
    notes: tuple[str, ...] = ()
    """What a reader must know about the data, such as its licence."""


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


class LeftOutRecord(Record):
    """An entry of ``providers`` that was not played."""

    label: str
    """What tables would call it."""
    why: str
    """What it needs, or what is wrong with it."""
    broken: bool = False
    """Whether it is a defect, and not something that was never installed or set up."""


def error_record(error: BaseException) -> ErrorRecord:
    """An error for the manifest. Only memslot's own messages are known to hold no user text."""
    own = isinstance(error, MemslotError)
    backend = error if isinstance(error, BackendError) else None
    return ErrorRecord(
        type=type(error).__name__,
        message=str(error)
        if own
        else "not an error of memslot's own, so its message, which may hold user text, is withheld",
        operation=(backend.operation or None) if backend else None,
        diagnostics=backend.diagnostics if backend else {},
    )
