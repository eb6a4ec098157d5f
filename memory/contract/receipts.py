"""Receipts and results (spec section 2). Unknown is None, never invented; a failed call raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import Field, SkipValidation

from memory.contract._model import Frozen
from memory.contract.errors import BackendProtocolError, MemslotError
from memory.contract.requests import RetrieveRequest
from memory.contract.scope import MemoryScope

ConditionKind = Literal["architecture", "control"]
ConsistencyModel = Literal["immediate", "eventual", "async_derived"]
CsFiltering = Literal["hard", "soft", "none"]
# How a memory shows change over time: by the rows' times, by a version or time of derivation, or not at all.
PetObservability = Literal["dated", "versioned", "weak"]
_LONG = frozenset({"request", "raw", "entries", "formatted_context", "trace"})
HealthStatus = Literal["ok", "degraded", "unavailable"]
WriteStatus = Literal["committed", "queued", "pending", "skipped_read_only", "unknown"]


class _Answer(Frozen):
    """Base of all answers. A malformed one raises BackendProtocolError: the native answer was wrong."""

    _error: ClassVar[type[MemslotError]] = BackendProtocolError

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Keep the text short, and free of user text: no unknown or empty fields, and no trace."""
        for name, value in super().__repr_args__():
            if name not in _LONG and value not in (None, (), {}, ""):
                yield name, value

    def __str__(self) -> str:
        return repr(self)


class Trace(_Answer):
    """The trace of one call, for benchmarks and debugging. It enters no prompt and holds no user text.

    The adapter names the native call; the slot fills in what it measures. Times are UTC, latencies ms.

    Attributes:
        operation: the contract's call, such as ``retrieve``.
        native_operation: the SDK's or server's call, such as ``Memory.search``.
        backend_name: the provider.
        scope, session_id, event_id: of the call; None if it has none.
        condition_kind: ``architecture`` or ``control``.
        started_at, latency_ms: when the call was made, and how long it took.
        native_ids: native records written or returned.
        attempts: native attempts, retries included; 0 if the call was refused, or given up before its turn.
        consistency: state of a write, or of the memory that was read; None if unknown or failed. A read is
            ``pending`` while a write waits in the journal, or was queued and not reported ready since.
        read_only: whether the slot was read-only.
        token_count: tokens of the formatted section, by ``token_counter``.
        token_counter: the counter's name.
        shortfall_tokens: how far the section stayed below ``budget.min_tokens``; None if that is not set.
        retrieved_count: native records returned, before the formatter trimmed.
        llm_calls, llm_tokens: answers of the provider's own language models in this call, without
            embeddings, and the tokens they read and wrote; None if the adapter or the endpoint does not say.
        left_out_count: records that the provider itself left out to fit the budget; None if unknown.
        included_count: entries that fit the budget.
        top_score: the highest score of an entry, as the backend gives it.
        oldest_retrieved_at, newest_retrieved_at: times of the entries.
        representation_version, last_derived_at: version and time of the backend's derivation, if it tells.
        cs_filtering: as the adapter declares it; ``none`` for a search across contexts.
        error: class name of the error raised, or None.
        warnings: sentences for a reader of the trace.
    """

    backend_name: str
    scope: MemoryScope | None
    native_operation: str
    operation: str | None = None
    condition_kind: ConditionKind | None = None
    session_id: str | None = None
    event_id: str | None = None
    started_at: datetime | None = None
    latency_ms: float | None = None
    attempts: int = 1
    native_ids: tuple[str, ...] = ()
    consistency: Literal["committed", "queued", "pending"] | None = None
    read_only: bool | None = None
    token_count: int | None = None
    token_counter: str | None = None
    shortfall_tokens: int | None = None
    retrieved_count: int | None = None
    left_out_count: int | None = None
    llm_calls: int | None = None
    llm_tokens: int | None = None
    included_count: int | None = None
    top_score: float | None = None
    oldest_retrieved_at: datetime | None = None
    newest_retrieved_at: datetime | None = None
    representation_version: str | None = None
    last_derived_at: datetime | None = None
    cs_filtering: CsFiltering | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()


class WriteReceipt(_Answer):
    """The result of a write.

    ``committed``: stored and visible. ``queued``: accepted, to be processed later. ``pending``: stored, not
    yet retrievable. ``skipped_read_only``: the slot is read-only, and nothing was sent. ``unknown``: sent
    without an answer, so the event may or may not be stored.

    Attributes:
        event_id: the event's id.
        status: as above.
        native_ids: the records that the event became, as the backend names them.
        warnings: for example, that the backend extracted nothing.
        trace: of the call.
    """

    event_id: str
    status: WriteStatus
    native_ids: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trace: Trace | None = None


class ModeReceipt(_Answer):
    """The mode now in force.

    Attributes:
        read_only, reason: as in :class:`AdapterMode`.
        drained: how many writes the switch waited for.
    """

    read_only: bool
    reason: str = ""
    drained: int = 0


class ResetReceipt(_Answer):
    """The result of a reset.

    Attributes:
        scope: the scope that was reset.
        verified: True only if the adapter looked again and found nothing.
        removed: records removed; None if the backend does not say.
        left: what could not be cleared, such as history rows.
        trace: of the call.
    """

    scope: MemoryScope
    verified: bool
    removed: int | None = None
    left: tuple[str, ...] = ()
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One native result as the prompt will show it: a presentation, not a memory model.

    Attributes:
        text: what the backend returned, unaltered; the formatter escapes it.
        native_id, score, timestamp: None if the backend gives none. Backends' scores are not comparable.
        group: native group label, such as MemOS' ``PreferenceMemory``; entries of a group stand together.
        labels: further native labels to show, such as ``("valid_at", "2024-01-01")``.
        event_ids: events from which this entry was derived, if the backend says.
        session_id: the one conversation it is from, if the backend says.
        scope_ids: the native scope ids on the row; the slot refuses a row of another scope.
        prose: shown as a paragraph without labels (Honcho's representation).
    """

    text: str
    native_id: str | None = None
    score: float | None = None
    timestamp: datetime | None = None
    group: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    event_ids: tuple[str, ...] = ()
    session_id: str | None = None
    scope_ids: Mapping[str, str] | None = None
    prose: bool = False


class RetrieveResult(_Answer):
    """The result of a retrieval.

    Attributes:
        request: the question.
        raw: the native payload, JSON-ready, nothing dropped.
        entries: the payload as context entries, one per native record, in the backend's order.
        included: indexes of the entries that fit the budget; set by the slot.
        formatted_context: the section for the prompt; set by the slot, empty if there are no entries.
        trace: of the call.
    """

    request: RetrieveRequest
    raw: SkipValidation[Any]
    entries: SkipValidation[tuple[ContextEntry, ...]] = ()
    included: SkipValidation[tuple[int, ...]] = ()
    formatted_context: str = ""
    trace: Trace

    @property
    def is_fitted(self) -> bool:
        """Whether a slot has chosen which entries fit the budget."""
        return "included" in self.model_fields_set

    @property
    def context_entries(self) -> tuple[ContextEntry, ...]:
        """The entries that fit the budget, or all entries if no slot has fitted them."""
        return tuple(self.entries[index] for index in self.included) if self.is_fitted else self.entries


class BackendReadiness(_Answer):
    """Whether all writes are retrievable; an empty queue alone does not show that.

    ``ready``: all writes are retrievable. ``pending``: some work remains. ``unknown``: the backend does not
    tell. ``failed``: processing failed and will not finish by itself.

    Attributes:
        state: as above.
        detail: the reason in words, without user text.
        pending_count: how much still waits; None if the backend does not count it.
        last_derived_at: when the backend last derived something.
        waited_ms: how long ``wait_until_ready`` took; None after ``readiness``, which does not wait.
    """

    state: Literal["ready", "pending", "unknown", "failed"]
    detail: str = ""
    pending_count: int | None = None
    last_derived_at: datetime | None = None
    waited_ms: float | None = None


class BackendHealth(_Answer):
    """Whether the backend works, and what it declares (spec section 2).

    Attributes:
        status: ``degraded`` works, with what ``warnings`` say.
        backend_name: the provider.
        latency_ms: of the probe.
        consistency_model, native_memory_types, native_ingest_modes, native_query_modes: as in
            :class:`AdapterTraits`.
        condition_kind, cs_filtering, pet_observability: as there; the slot fills them in.
        equivalent_control, differs_from_control, fallback_components: as there; the slot fills them in.
        versions: of the SDK and the server, as far as they tell.
        details: what else the adapter says; ``slot`` holds what the slot counts.
        warnings: one sentence each, with what to do.
    """

    status: HealthStatus
    backend_name: str
    latency_ms: float | None = None
    consistency_model: ConsistencyModel
    cs_filtering: CsFiltering = "none"
    pet_observability: PetObservability | None = None
    condition_kind: ConditionKind | None = None
    equivalent_control: str | None = None
    differs_from_control: bool = False
    fallback_components: tuple[str, ...] = ()
    native_memory_types: tuple[str, ...] | None = None
    native_ingest_modes: tuple[str, ...] | None = None
    native_query_modes: tuple[str, ...] | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    details: dict[str, object] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class FeedbackReceipt(_Answer):
    """The result of a feedback.

    Attributes:
        feedback_id: the feedback's id.
        status, native_ids, warnings, trace: as for :class:`WriteReceipt`.
    """

    feedback_id: str
    status: WriteStatus
    native_ids: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trace: Trace | None = None


class NativeMutationReceipt(_Answer):
    """The result of a native mutation.

    Attributes:
        raw: the native answer, JSON-ready.
        status, native_ids, warnings, trace: as for :class:`WriteReceipt`.
    """

    status: WriteStatus
    native_ids: tuple[str, ...] = ()
    raw: Any = None
    warnings: tuple[str, ...] = ()
    trace: Trace | None = None


class ProvenanceResult(_Answer):
    """The native history or sources asked for.

    Attributes:
        raw: the native answer, JSON-ready.
        native_ids: of the records in the answer.
        event_ids: of the events that they came from, if the backend keeps them.
        trace: of the call.
    """

    raw: Any
    native_ids: tuple[str, ...] = ()
    event_ids: tuple[str, ...] = ()
    trace: Trace | None = None


class NativeQueryResult(_Answer):
    """The native answer to a diagnostic query. It never enters a prompt.

    Attributes:
        raw: the native answer, JSON-ready.
        trace: of the call.
    """

    raw: Any
    trace: Trace | None = None
