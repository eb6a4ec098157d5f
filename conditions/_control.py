"""Code that the conditions share. They are controls (spec section 2.2), and use whole scopes as keys."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from memory import (
    BackendHealth,
    ContextBudget,
    MemoryEvent,
    MemoryScope,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    TokenCounter,
    WriteReceipt,
)
from memory.adapter import AdapterTraits, BaseAdapter, ContextEntry, entry_cost


class ControlCondition(BaseAdapter):
    """A provider in this process that is a baseline or a ceiling, never an architecture."""

    def __init__(self, name: str, traits: AdapterTraits) -> None:
        self.backend_name = name
        # A control that uses a model counts its calls; the others make no call.
        self.traits = replace(traits, counts_llm_calls=True)

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"scope": scope.label}

    async def health(self) -> BackendHealth:
        return self.health_of()

    def found(
        self,
        request: RetrieveRequest,
        native_operation: str,
        entries: tuple[ContextEntry, ...],
        raw: Mapping[str, Any],
        **trace: Any,
    ) -> RetrieveResult:
        ids = tuple(entry.native_id for entry in entries if entry.native_id is not None)
        return RetrieveResult(
            request=request,
            raw=dict(raw),
            entries=entries,
            trace=self.trace(request.scope, native_operation, native_ids=ids, **trace),
        )


class FixedCondition(ControlCondition):
    """A condition whose context does not come from written events. Every receipt says so (``volatile``)."""

    volatile = "volatile: this condition keeps nothing of what is written"

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        return self.receipt(event, "none", warnings=(self.volatile,))

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        return ResetReceipt(scope=scope, verified=True, removed=0, trace=self.trace(scope, "none"))


def pack_document(
    text: str,
    budget: ContextBudget,
    counter: TokenCounter,
    *,
    overhead: int,
    sources: Mapping[str, Iterable[str]] | None = None,
) -> tuple[tuple[ContextEntry, ...], int]:
    """Return one prose entry per paragraph until the budget is full, and the number of lines left out.

    The first paragraph that does not fit is cut at a line.

    Args:
        overhead: tokens of the section around the entries.
        sources: line -> ids of its events.
    """
    parts = re.split(r"\n[ \t]*\n+", text)
    paragraphs = [part.strip().splitlines() for part in parts if part.strip()]
    room = math.inf if budget.max_tokens is None else budget.max_tokens - overhead
    entries: list[ContextEntry] = []
    shown = 0
    for lines in paragraphs[: budget.max_items]:
        fits = _fitting(lines, lambda part: entry_cost(_prose(part, {}), counter), room)
        if fits:
            entries.append(_prose(lines[:fits], sources or {}))
            room -= entry_cost(entries[-1], counter)
            shown += fits
        if fits < len(lines):
            break
    return tuple(entries), sum(map(len, paragraphs)) - shown


def _prose(lines: list[str], sources: Mapping[str, Iterable[str]]) -> ContextEntry:
    known = dict.fromkeys(event_id for line in lines for event_id in sources.get(line, ()))
    return ContextEntry("\n".join(lines), event_ids=tuple(known), prose=True)


def leading_lines(lines: list[str], max_tokens: int, counter: TokenCounter) -> int:
    return _fitting(lines, lambda part: counter.count("\n".join(part)), max_tokens)


def _fitting(lines: list[str], cost: Callable[[list[str]], int], room: float) -> int:
    """The number of leading lines that cost at most ``room``. The cost must grow with their number."""
    if math.isinf(room):
        return len(lines)
    return bisect_right(range(1, len(lines) + 1), room, key=lambda count: cost(lines[:count]))
