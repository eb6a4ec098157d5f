"""What the slot is asked to do: modes, budgets, and the request of every call (spec section 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from memory.contract._model import AwareDatetime, Frozen, Id, JsonObject, Text, check_number, first_problem
from memory.contract.events import cs_fields
from memory.contract.scope import MemoryScope

CROSS_CONTEXT = "cross_context"  # a probe says by it that it searches across CS contexts on purpose (5.2)


def _check_count(value: int) -> int:
    if value > _MAX:
        raise ValueError(f"is larger than {_MAX}, which no backend takes; leave it out for no limit")
    return value


_MAX = 2**31 - 1
_TOKENS_OF_A_SHORT_ENTRY = 20  # its labels, and a sentence of some ten words
_MIN_ROWS = 20
_MAX_ROWS = 1000
Positive = Annotated[int, BeforeValidator(check_number), Field(gt=0), AfterValidator(_check_count)]


class AdapterMode(Frozen):
    """Whether writes are allowed, and why (spec 4.2).

    Attributes:
        read_only: nothing may be written.
        reason: why, for traces and receipts.
    """

    read_only: bool
    reason: Text = ""


class ContextBudget(Frozen):
    """How much context a retrieval may return.

    Attributes:
        max_tokens: upper bound of the whole section, fence included; None is unlimited.
        min_tokens: what the experiment aims at; falling short is traced, never padded.
        max_items: upper bound of entries; reaches the native top-k where there is one. None is unlimited for
            providers that can enumerate, and what :meth:`search_limit` gives elsewhere.
    """

    max_tokens: Positive | None = None
    min_tokens: Positive | None = None
    max_items: Positive | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_tokens and self.max_tokens and self.min_tokens > self.max_tokens:
            raise ValueError("min_tokens is larger than max_tokens; swap them or drop one")
        return self

    def search_limit(self, top_k: int | None = None, *, reranked: bool = False) -> int:
        """How many rows a search asks for: ``max_items``, else ``top_k``, else as many as may fill ``max_tokens``.

        Args:
            top_k: what the user configured, where they did.
            reranked: a model is asked about each row, so 20 are enough where nobody said how many.
        """
        may_fit = 0 if reranked or self.max_tokens is None else self.max_tokens // _TOKENS_OF_A_SHORT_ENTRY
        return self.max_items or top_k or min(max(_MIN_ROWS, may_fit), _MAX_ROWS)


@cache
def _unlimited() -> ContextBudget:
    return ContextBudget()


class RetrieveRequest(Frozen):
    """A question to the memory of one scope.

    Attributes:
        query: what to look for, in the user's words.
        scope: whose memory.
        session_id: the session that asks; some backends boost or return its messages.
        budget: how much may come back.
        scenario, context, attribute: CS fields; filters where the backend can, semantics where it cannot.
        filters: further narrowing, ``{metadata_key: value}`` or ``{metadata_key: {operator: value}}`` with the
            operators the adapter declares. ``{"cross_context": true}`` drops the CS fields from filtering.
            Scope keys, wildcards and logic operators are refused by the slot.
        exclude_session: leave out what names ``session_id`` as its own, because the host still shows that
            conversation; what does not name its session stays.
    """

    query: Text
    scope: MemoryScope
    session_id: Id
    budget: ContextBudget = Field(default_factory=_unlimited)
    scenario: Text | None = None
    context: Text | None = None
    attribute: Text | None = None
    filters: JsonObject = Field(default_factory=dict)
    exclude_session: bool = False

    @field_validator("query")
    @classmethod
    def _query_not_blank(cls, query: str) -> str:
        if not query.strip():
            raise ValueError("is blank; ask something")
        return query

    @property
    def cs_filters(self) -> dict[str, str]:
        """The CS fields to filter by: none for a declared cross-context probe."""
        if self.filters.get(CROSS_CONTEXT) is True:
            return {}
        return cs_fields(self.scenario, self.context, self.attribute)

    @property
    def query_with_cs(self) -> str:
        """The query and the CS fields, for a search that cannot filter by them."""
        return "\n".join((self.query, *self.cs_filters.values()))

    @property
    def metadata_filters(self) -> dict[str, JsonValue]:
        """``filters`` without the reserved key."""
        return {key: value for key, value in self.filters.items() if key != CROSS_CONTEXT}

    @property
    def where(self) -> dict[str, dict[str, JsonValue]]:
        """All filters in one shape, ``{key: {operator: value}}``, CS fields included, for adapters to translate."""
        given: dict[str, JsonValue] = {**self.cs_filters, **self.metadata_filters}
        return {
            key: condition if isinstance(condition, dict) else {"eq": condition}
            for key, condition in given.items()
        }


class MemoryFeedback(Frozen):
    """A user's verdict on what was remembered (spec 5.4; MemOS ``/product/feedback``).

    Attributes:
        feedback_id: the host's own; the same one twice is one feedback.
        scope: whose memory it is about.
        session_id: the conversation it was given in.
        timestamp: when, with an offset.
        content: the user's words.
        native_ids: records it is about, as an entry names them.
        corrected_answer: what should have been said.
        metadata: further JSON.
    """

    feedback_id: Id
    scope: MemoryScope
    session_id: Id
    timestamp: AwareDatetime
    content: Text
    native_ids: tuple[Text, ...] = ()
    corrected_answer: Text | None = None
    metadata: JsonObject = Field(default_factory=dict)


class NativeMutationRequest(Frozen):
    """Change one native record: for correction experiments and debugging, not the agent loop (spec 2).

    Attributes:
        scope: whose memory.
        operation: one that ``traits.native_mutations`` declares.
        native_id: the record, where the operation works on one.
        arguments: as declared there.
    """

    scope: MemoryScope
    operation: Literal["update", "delete"] | Text
    native_id: Text | None = None
    arguments: JsonObject = Field(default_factory=dict)


class ProvenanceRequest(Frozen):
    """Where something in memory comes from, independent of any retrieval (spec 2).

    Attributes:
        scope: whose memory.
        native_id: the record whose history is asked for.
        since, until: instead, what changed in this range, ends included: what the backend stored, corrected or
            invalidated then, as far as it keeps that time.
        arguments: the backend's own.
    """

    scope: MemoryScope
    native_id: Text | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    arguments: JsonObject = Field(default_factory=dict)

    def includes(self, *changes: datetime | None) -> bool:
        """Whether one of these moments lies in the range. Without a range, everything does."""
        if self.since is None and self.until is None:
            return True
        return any(
            change is not None
            and (self.since is None or self.since <= change)
            and (self.until is None or change <= self.until)
            for change in changes
        )


class NativeQueryRequest(Frozen):
    """A diagnostic query in the backend's own terms; its answer never enters a prompt (spec 10.3).

    Attributes:
        scope: whose memory is asked.
        operation: one that ``traits.native_queries`` declares.
        arguments: as declared there.
    """

    scope: MemoryScope
    operation: Text
    arguments: JsonObject = Field(default_factory=dict)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


NotBlank = Annotated[str, AfterValidator(_not_blank)]
"""The type of an argument that says something."""


@dataclass(frozen=True)
class Operation:
    """The arguments of one native operation.

    Attributes:
        optional: argument -> its type, as pydantic understands it, of what may be left out.
        required: the same, of what must be there.
        native_id: whether it works on the one record that ``native_id`` names.
    """

    optional: Mapping[str, object] = field(default_factory=dict)
    required: Mapping[str, object] = field(default_factory=dict)
    native_id: bool = False

    @cached_property
    def _model(self) -> Any:
        fields: dict[str, Any] = {name: (kind, ...) for name, kind in self.required.items()}
        fields |= {name: (kind, None) for name, kind in self.optional.items()}
        return create_model("Arguments", __config__=ConfigDict(extra="forbid", strict=True), **fields)

    def problem(self, arguments: Mapping[str, object]) -> str | None:
        """``name: what is wrong`` of the first argument that is; None where all are as declared."""
        try:
            self._model.model_validate_json(json.dumps(arguments))  # strict, and a time is text
        except ValidationError as error:
            takes = ", ".join([*self.required, *self.optional]) or "no arguments"
            return f"{first_problem(error)}; it takes {takes}"
        return None
