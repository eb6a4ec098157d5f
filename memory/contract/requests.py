"""Modes, budgets, and the request of every call (spec section 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
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

CROSS_CONTEXT = "cross_context"  # a filter that declares a deliberate search across CS contexts (spec 5.2)


_TOKENS_OF_A_SHORT_ENTRY = 20  # labels, and a sentence of about ten words
_MIN_ROWS = 20
_MAX_ROWS = 1000
Positive = Annotated[int, BeforeValidator(check_number), Field(gt=0, lt=2**31)]


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
            top_k: the user's configured value, or None.
            reranked: a model scores each row, so the search asks for only 20 by default.
        """
        may_fit = 0 if reranked or self.max_tokens is None else self.max_tokens // _TOKENS_OF_A_SHORT_ENTRY
        return self.max_items or top_k or min(max(_MIN_ROWS, may_fit), _MAX_ROWS)


class RetrieveRequest(Frozen):
    """A question to the memory of one scope.

    Attributes:
        query: what to look for, in the user's words.
        scope: whose memory.
        session_id: the session that asks; some backends boost or return its messages.
        budget: how much may come back.
        scenario, context, attribute: CS fields; ``traits.cs_filtering`` says how they act.
        filters: further narrowing, ``{metadata_key: value}`` or ``{metadata_key: {operator: value}}`` with the
            operators the adapter declares. ``{"cross_context": true}`` drops the CS fields from filtering.
            Scope keys, wildcards and logic operators are refused by the slot.
        exclude_session: leave out the rows of ``session_id``, because the host still shows that conversation.
            Rows that name no session stay.
    """

    query: Text
    scope: MemoryScope
    session_id: Id
    budget: ContextBudget = Field(default_factory=ContextBudget)
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
        """``filters`` without ``cross_context``."""
        return {key: value for key, value in self.filters.items() if key != CROSS_CONTEXT}

    @property
    def where(self) -> dict[str, dict[str, JsonValue]]:
        """All filters, CS fields included, as ``{key: {operator: value}}`` for adapters to translate."""
        given: dict[str, JsonValue] = {**self.cs_filters, **self.metadata_filters}
        return {
            key: condition if isinstance(condition, dict) else {"eq": condition}
            for key, condition in given.items()
        }


class MemoryFeedback(Frozen):
    """A user's verdict on remembered facts (spec 5.4; MemOS ``/product/feedback``).

    Attributes:
        feedback_id: the host's id; the same id twice is one feedback.
        scope: whose memory it is about.
        session_id: the conversation in which it was given.
        timestamp: when it was given, timezone-aware.
        content: the user's words.
        native_ids: the records it is about, as entries name them.
        corrected_answer: the right answer, in the user's words.
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
    """A change of one native record, for correction experiments and debugging, not the agent loop (spec 2).

    Attributes:
        scope: whose memory.
        operation: a name from ``traits.native_mutations``.
        native_id: the record, if the operation works on one.
        arguments: as ``traits.native_mutations`` declares them.
    """

    scope: MemoryScope
    operation: Literal["update", "delete"] | Text
    native_id: Text | None = None
    arguments: JsonObject = Field(default_factory=dict)


class ProvenanceRequest(Frozen):
    """A question about the origin of records, independent of any retrieval (spec 2).

    Attributes:
        scope: whose memory.
        native_id: the record whose history is asked for.
        since, until: a range of time, ends included, in place of a record. It asks for all that the backend
            stored, corrected or invalidated then, as far as it keeps that time.
        arguments: further arguments of the backend.
    """

    scope: MemoryScope
    native_id: Text | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    arguments: JsonObject = Field(default_factory=dict)

    def includes(self, *changes: datetime | None) -> bool:
        """Whether one of these moments lies in the range. True for all if there is no range."""
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
        operation: a name from ``traits.native_queries``.
        arguments: as ``traits.native_queries`` declares them.
    """

    scope: MemoryScope
    operation: Text
    arguments: JsonObject = Field(default_factory=dict)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


NotBlank = Annotated[str, AfterValidator(_not_blank)]
"""The type of an argument that must not be blank."""


@dataclass(frozen=True)
class Operation:
    """The arguments of one native operation.

    Attributes:
        optional, required: name -> type, as pydantic understands it, of arguments that may, or must not, be absent.
        native_id: whether the operation works on the one record that ``native_id`` names.
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
        """``name: what is wrong`` for the first wrong argument; None if all are as declared."""
        try:
            # Strict mode takes a time as text only from JSON.
            self._model.model_validate_json(json.dumps(arguments))
        except ValidationError as error:
            takes = ", ".join([*self.required, *self.optional]) or "no arguments"
            return f"{first_problem(error)}; it takes {takes}"
        return None
