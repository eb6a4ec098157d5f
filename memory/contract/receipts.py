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
# How a memory shows change over time: by a row's time, by a version or time of derivation, or not at all.
PetObservability = Literal["dated", "versioned", "weak"]
_LONG = frozenset({"request", "raw", "entries", "formatted_context", "trace"})
HealthStatus = Literal["ok", "degraded", "unavailable"]
WriteStatus = Literal["committed", "queued", "pending", "skipped_read_only", "unknown"]


class _Answer(Frozen):
    """What an adapter makes of a native answer: where it cannot be made, it is the answer that was wrong."""

    _error: ClassVar[type[MemslotError]] = BackendProtocolError

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Short: neither what is unknown or empty, nor what a user said and the trace's thirty fields."""
        for name, value in super().__repr_args__():
            if name not in _LONG and value not in (None, (), {}, ""):
                yield name, value

    def __str__(self) -> str:
        return repr(self)


class Trace(_Answer):
    """One call, for benchmarks and debugging; never part of a prompt, never holding user text.

    The adapter names the native call; the slot fills in what it measures. Times are UTC, latencies ms.

    Attributes:
        operation: the contract's call, such as ``retrieve``.
        native_operation: the SDK's or server's, such as ``Memory.search``.
        backend_name: the provider.
        scope, session_id, event_id: whose memory, which conversation and which event; None where the call has none.
        condition_kind: ``architecture`` or ``control``.
        started_at, latency_ms: when the call was made, and how long it took.
        native_ids: native records written or returned.
        attempts: native attempts made, retries included; 0 where the call was refused, or given up before its turn.
        consistency: state of a write or of the memory read; None where unknown or failed. A read is ``pending``
            where a write waits in the journal, or was queued and the backend has not said since that it is ready.
        read_only: whether the slot was.
        token_count: tokens of the formatted section, by ``token_counter``.
        token_counter: the counter's name.
        shortfall_tokens: how far the section stayed below ``budget.min_tokens``; None without one.
        retrieved_count: native records returned, before the formatter trimmed.
        llm_calls, llm_tokens: answers of the provider's own language models within this call, embeddings aside, and
            the tokens they read and wrote; None where the adapter, or the endpoint, does not say.
        left_out_count: records that the provider itself left out for the budget, where it packs one; None unknown.
        included_count: entries that fit the budget.
        top_score: the highest score of an entry, as the backend gives it.
        oldest_retrieved_at, newest_retrieved_at: times of the entries.
        representation_version, last_derived_at: of what the backend derived, where it tells.
        cs_filtering: as the adapter declares it; ``none`` for a question across contexts, which drops them.
        error: class name of the error raised, or None.
        warnings: what a reader of the trace should know.
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

    ``committed``: stored and visible. ``queued``: accepted, will be processed. ``pending``: stored, not yet
    retrievable. ``skipped_read_only``: the slot is read-only, nothing was sent. ``unknown``: sent without an
    answer, so it may or may not be stored.

    Attributes:
        event_id: the event's.
        status: one of these.
        native_ids: the records it became, as the backend names them.
        warnings: such as that the backend extracted nothing.
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
        drained: writes that were waited for.
    """

    read_only: bool
    reason: str = ""
    drained: int = 0


class ResetReceipt(_Answer):
    """The result of a reset.

    Attributes:
        scope: that was reset.
        verified: True only after the adapter looked again and found nothing.
        removed: records removed; None where the backend does not say.
        left: what the backend offers no way to clear, such as history rows.
        trace: of the call.
    """

    scope: MemoryScope
    verified: bool
    removed: int | None = None
    left: tuple[str, ...] = ()
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One native result as the prompt will show it. A presentation, not a memory model.

    Attributes:
        text: what the backend returned, unaltered; the formatter escapes it.
        native_id, score, timestamp: shown where they exist. Scores of different backends do not compare.
        group: native group label, such as MemOS' ``PreferenceMemory``; entries of a group stand together.
        labels: further native labels to show, such as ``("valid_at", "2024-01-01")``.
        event_ids: events this entry was derived from, where the backend says.
        session_id: the one conversation it is from, where the backend says.
        scope_ids: the native scope ids found on the row; the slot refuses a row of another scope.
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
        request: what was asked.
        raw: the native payload, JSON-ready, nothing dropped.
        entries: the payload as context entries, one per native record, in the backend's order.
        included: indexes of the entries that fit the budget; set by the slot.
        formatted_context: the section for the prompt; set by the slot, empty string for no entries.
        trace: how it went.
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
        """The entries that fit the budget; all entries if no slot has fitted them."""
        return tuple(self.entries[index] for index in self.included) if self.is_fitted else self.entries


class BackendReadiness(_Answer):
    """Whether what was written can be retrieved (an empty queue alone does not say so).

    ``ready``: everything written is retrievable. ``pending``: work is known to remain. ``unknown``: the
    backend does not tell. ``failed``: processing failed and will not finish by itself.

    Attributes:
        state: one of these.
        detail: why, in words; no user text.
        pending_count: what still waits; None where the backend does not count.
        last_derived_at: when the backend last derived something.
        waited_ms: how long ``wait_until_ready`` took; None of a mere question.
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
        feedback_id: the feedback's.
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
        native_ids: of the records it tells of.
        event_ids: of the events they came from, where the backend keeps them.
        trace: of the call.
    """

    raw: Any
    native_ids: tuple[str, ...] = ()
    event_ids: tuple[str, ...] = ()
    trace: Trace | None = None


class NativeQueryResult(_Answer):
    """The native answer to a diagnostic query. Never for a prompt.

    Attributes:
        raw: JSON-ready.
        trace: of the call.
    """

    raw: Any
    trace: Trace | None = None
