"""Turns rows of one scope into the section, as many as the budget allows (DESIGN sections 5.2 and 8).

It also strips recalled context from writes, so that a memory never feeds on itself (DESIGN 5.6).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from functools import cache
from typing import Any, TypeVar

from memory.contract._model import Frozen, words_of
from memory.contract._quantity import quantity
from memory.contract.adapter import MemoryAdapter, native_scope_of
from memory.contract.errors import (
    BackendProtocolError,
    CapabilityNotSupported,
    InputError,
    IsolationError,
    ScopeError,
)
from memory.contract.events import MemoryEvent, Message
from memory.contract.formatting import (
    NEUTRAL_LABELS,
    TokenCounter,
    fit_entries,
    is_well_formed,
    neutral_section,
    section_overhead,
    strip_json,
)
from memory.contract.receipts import ContextEntry, RetrieveResult
from memory.contract.requests import CROSS_CONTEXT, MemoryFeedback, NativeMutationRequest, RetrieveRequest
from memory.contract.traits import FILTER_OPERATORS


class Rendering:
    """Makes context sections from an adapter's results; arguments as for :class:`MemorySlot`."""

    def __init__(
        self,
        adapter: MemoryAdapter,
        counter: TokenCounter,
        *,
        neutral: bool = False,
        native_ids: bool = False,
    ) -> None:
        self._adapter = adapter
        self._counter = counter
        self._neutral = neutral
        self._native_ids = native_ids

    def asked(self, request: RetrieveRequest) -> RetrieveRequest:
        """The adapter's request: its budget also covers the labels that a neutral section does not show."""
        budget = request.budget
        if not self._neutral or budget.max_tokens is None:
            return request
        own = section_overhead(self._adapter.backend_name, request.scope.label, self._counter)
        max_tokens = budget.max_tokens + own - section_overhead(*NEUTRAL_LABELS, self._counter)
        wider = budget.model_copy(update={"max_tokens": max(max_tokens, budget.min_tokens or 1)})
        return request.model_copy(update={"budget": wider})

    def section(self, result: RetrieveResult) -> str:
        section: object = self._adapter.format_context(self._labelled(result))
        if not isinstance(section, str):
            raise self._misrendered(f"returned {type(section).__name__}, not text")
        return neutral_section(section) if self._neutral else section

    def check(self, result: RetrieveResult) -> None:
        """Refuse a row of another scope or of none, and an ambiguous time, which is one without a zone."""
        name = self._adapter.backend_name
        expected: Mapping[str, str] | None = None
        for entry in result.entries:
            if not isinstance(entry, ContextEntry):
                raise BackendProtocolError(
                    f"{name} returned an entry of {type(entry).__name__}, not ContextEntry"
                )
            moment = entry.timestamp
            if moment is not None and moment.tzinfo is not UTC and moment.utcoffset() is None:
                raise BackendProtocolError(
                    f"{name} returned a row with a time without a zone; the adapter has to say which one it is"
                )
            if entry.scope_ids is None:
                continue
            if expected is None:
                expected = native_scope_of(self._adapter, result.request.scope)
            if entry.scope_ids == expected:
                continue
            wrong = [key for key, value in entry.scope_ids.items() if expected.get(key) != value]
            if wrong or not entry.scope_ids:
                what = f"whose {wrong[0]} belongs to another scope" if wrong else "that names no scope"
                raise IsolationError(f"{name} returned a row {what}; the whole answer is withheld")

    def fitted(
        self, result: RetrieveResult, request: RetrieveRequest
    ) -> tuple[RetrieveResult, str, dict[str, Any]]:
        """The result and its section, fitted to the budget of ``request``, and measured trace fields."""
        if result.request is not request:
            result = result.model_copy(update={"request": request})
        self.check(result)
        result = _to_show(result)
        budget = result.request.budget
        included = tuple(index for index, entry in enumerate(result.entries) if entry.text.strip())
        if budget.max_items is not None and len(result.entries) > budget.max_items:
            included = self._fit(result)
        result, section, tokens = self._rendered(result, included)
        max_tokens = math.inf if budget.max_tokens is None else budget.max_tokens
        if tokens > max_tokens:
            included = self._fit(result)
            result, section, tokens = self._rendered(result, included)
        if tokens > max_tokens:
            # An adapter's own rendering may cost more than the shared one: keep the longest prefix that fits.
            costs = range(1, len(included) + 1)
            fits = bisect_right(costs, max_tokens, key=lambda n: self._rendered(result, included[:n])[2])
            result, section, tokens = self._rendered(result, included[:fits])
        if tokens > max_tokens:
            raise self._misrendered(
                f"returned more than the budget's {max_tokens} tokens, whatever entries it was given"
            )
        if not is_well_formed(section):
            raise self._misrendered("did not return one well-formed <memory-context> section")
        return result, section, self._measured(result, tokens)

    def for_prompt(self, result: RetrieveResult, floor: float | None) -> RetrieveResult:
        """The fitted result for a prompt: equal texts once, and no row with a score below the floor."""
        said: set[object] = set()
        kept: list[ContextEntry] = []
        for entry in result.entries:
            what = entry.text.strip(), entry.labels, entry.group
            too_low = floor is not None and entry.score is not None and entry.score < floor
            if not too_low and what not in said:
                kept.append(entry)
                said.add(what)
        if len(kept) == len(result.entries):
            return result
        fewer = result.model_copy(update={"entries": tuple(kept)})
        result, section, measured = self.fitted(fewer, result.request)
        names = ("token_count", "retrieved_count", "included_count", "shortfall_tokens")
        trace = result.trace.model_copy(update={name: measured[name] for name in names})
        return result.model_copy(update={"formatted_context": section, "trace": trace})

    def _misrendered(self, what: str) -> BackendProtocolError:
        return BackendProtocolError(f"{self._adapter.backend_name}: format_context {what}")

    def _measured(self, result: RetrieveResult, tokens: int) -> dict[str, Any]:
        least, trace, rows = result.request.budget.min_tokens, result.trace, result.entries
        scores = [entry.score for entry in rows if entry.score is not None and math.isfinite(entry.score)]
        times = [entry.timestamp for entry in rows if entry.timestamp is not None]
        left_out = len(rows) - len(result.included)
        warnings = (f"{quantity(left_out, 'entries')} did not fit the budget",) if left_out else ()
        return {
            "retrieved_count": len(rows),
            "top_score": max(scores, default=None),
            "oldest_retrieved_at": min(times, default=None),
            "newest_retrieved_at": max(times, default=None),
            "native_ids": trace.native_ids
            or tuple(entry.native_id for entry in result.entries if entry.native_id is not None),
            "included_count": len(result.included),
            "token_count": tokens,
            "token_counter": self._counter.name,
            "shortfall_tokens": max(0, least - tokens) if least else None,
            "warnings": (*trace.warnings, *warnings),
        }

    def _fit(self, result: RetrieveResult) -> tuple[int, ...]:
        labels = NEUTRAL_LABELS if self._neutral else (self._adapter.backend_name, result.request.scope.label)
        overhead = section_overhead(*labels, self._counter)
        return fit_entries(
            self._labelled(result).entries, result.request.budget, self._counter, overhead=overhead
        )

    def _labelled(self, result: RetrieveResult) -> RetrieveResult:
        """The result with each entry's native id as a label, if sections show native ids."""
        if not self._native_ids:
            return result
        entries = [
            entry
            if entry.native_id is None
            else replace(entry, labels=(*entry.labels, ("id", entry.native_id)))
            for entry in result.entries
        ]
        return result.model_copy(update={"entries": tuple(entries)})

    def _rendered(self, result: RetrieveResult, included: tuple[int, ...]) -> tuple[RetrieveResult, str, int]:
        result = result.model_copy(update={"included": included})
        section = self.section(result)
        return result, section, self._counter.count(section) if section else 0


def _to_show(result: RetrieveResult) -> RetrieveResult:
    """The result without repeated rows, and without the session's own rows if the request excludes them.

    Some servers return a record twice, or in several groups.
    """
    kept: dict[object, ContextEntry] = {}
    left_out = result.request.session_id if result.request.exclude_session else object()
    for entry in result.entries:
        if entry.session_id == left_out:
            continue
        unnamed = entry.prose or entry.native_id is None
        kept.setdefault(object() if unnamed else (entry.native_id, entry.text), entry)
    return result.model_copy(update={"entries": tuple(kept.values())})


ModelT = TypeVar("ModelT", bound=Frozen)
SaidT = TypeVar("SaidT", MemoryEvent, MemoryFeedback, NativeMutationRequest)

# Fields that refer to something and are never stripped. Every other text field is, new ones included.
_REFERENCES = {MemoryFeedback: {"native_ids"}, NativeMutationRequest: {"operation", "native_id"}}


def without_recalled_context(said: SaidT) -> SaidT:
    """An event, feedback or mutation without any memory section in its texts and JSON.

    Raises:
        InputError: it held nothing else, or an argument of a mutation did.
    """
    if isinstance(said, MemoryEvent):
        messages = [_stripped(message, Message) for message in said.messages]
        kept = tuple(message for message in messages if message.content or message.tool_calls)
        if kept != said.messages:
            said = said.model_copy(update={"messages": kept})
        return _something(_stripped(said, MemoryEvent), kept)
    if isinstance(said, MemoryFeedback):
        said = _stripped(said, MemoryFeedback)
        return _something(said, said.content or said.corrected_answer)
    before, said = said.arguments, _stripped(said, NativeMutationRequest)
    for name, value in said.arguments.items():
        _something(said, value or not before.get(name), f".arguments.{name}")
    return said


@cache
def _names(model: type[Frozen]) -> tuple[str, ...]:
    return tuple(name for name in words_of(model) if name not in _REFERENCES.get(model, ()))


def _something(said: SaidT, left: object, where: str = "") -> SaidT:
    if not left:
        raise InputError(
            f"{type(said).__name__}{where} holds nothing but recalled context; nothing was written"
        )
    return said


def _stripped(said: ModelT, model: type[Frozen]) -> ModelT:
    """``said`` without memory sections. An optional text becomes None if nothing else was in it."""
    changed: dict[str, Any] = {}
    for name in _names(model):
        if not (before := getattr(said, name)):
            continue
        after = strip_json(before)
        if after != before:
            optional = type(said).model_fields[name].default is None
            changed[name] = None if optional and not after else after
    return said.model_copy(update=changed) if changed else said


# Every name by which one of the supported backends addresses a scope.
_SCOPE_KEYS = frozenset(
    {
        "user", "user_id", "userid", "user_name", "agent", "agent_id", "run", "run_id", "app_id", "actor_id",
        "persona", "persona_id", "scope", "namespace", "backend_namespace", "tenant", "tenant_id", "entity",
        "group_id", "group_ids", "workspace", "workspace_id", "peer", "peer_id", "peer_target",
        "peer_perspective", "cube", "cube_id", "mem_cube_id", "readable_cube_ids", "writable_cube_ids",
        "project", "project_id", "collection", "collection_name",
    }
)  # fmt: skip
_WIDENS = "logic operators could widen the scope; filters are all required together"
_PLAIN_KEY = re.compile(r"[\w.-]+")
_LOGIC = frozenset({"and", "or", "not", "any", "all", "nor", "xor", "should", "must", "must_not", "filter"})


def check_filters(request: RetrieveRequest, operators: frozenset[str]) -> None:
    """Refuse a filter that could widen the scope (DESIGN 5.2), or that the adapter cannot apply."""
    if not request.filters:
        return
    cross = request.filters.get(CROSS_CONTEXT)
    if cross is not None and not isinstance(cross, bool):
        raise InputError(f"filters.{CROSS_CONTEXT} must be true or false")
    for key, condition in request.metadata_filters.items():
        name = key.lower().lstrip("$")
        if name in _LOGIC:
            raise ScopeError(f"filters.{key}: {_WIDENS}")
        if _SCOPE_KEYS & set(name.split(".")):
            raise ScopeError(f"filters.{key} names a scope; ask with another RetrieveRequest.scope instead")
        if not _PLAIN_KEY.fullmatch(key):
            raise ScopeError(f"filters.{key!r} is not a metadata key; use letters, digits, '_', '-' and '.'")
        if key in request.cs_filters:
            raise InputError(f"filters.{key} and the request's own {key} are both set; give one of them")
        clauses = condition if isinstance(condition, dict) else {"eq": condition}
        if not clauses:
            raise InputError(f"filters.{key} is empty; give a value")
        for operator, value in clauses.items():
            where = f"filters.{key}" if condition is not clauses else f"filters.{key}.{operator}"
            _check_clause(where, operator, value, operators)


def _check_clause(where: str, operator: str, value: Any, offered: frozenset[str]) -> None:
    if operator.lower().lstrip("$") in _LOGIC:
        raise ScopeError(f"{where}: {_WIDENS}")
    if operator not in FILTER_OPERATORS:
        raise InputError(f"{where}: unknown operator; use one of {', '.join(sorted(FILTER_OPERATORS))}")
    if operator not in offered:
        able = ", ".join(sorted(offered)) or "none"
        raise CapabilityNotSupported(
            f"{where}: this backend cannot filter by {operator!r}; it can by: {able}"
        )
    takes_list = operator in ("in", "nin")
    if isinstance(value, list) != takes_list:
        raise InputError(f"{where}: {operator!r} takes {'a list' if takes_list else 'one value'}")
    for item in value if takes_list else [value]:
        if isinstance(item, str) and item.strip() in ("*", "%", "**"):
            raise ScopeError(f"{where}: the wildcard would match everything; leave the filter out instead")
        if not isinstance(item, (str, bool, int)) and not (isinstance(item, float) and math.isfinite(item)):
            raise InputError(f"{where}: the value must be a string, a finite number or a boolean")
