"""Fitting a text document (a profile, a summary) into a budget without breaking a line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from memory import ContextBudget, TokenCounter
from memory.adapter import ContextEntry, entry_cost

_BLANK_LINES = re.compile(r"\n[ \t]*\n+")


@dataclass(frozen=True, slots=True)
class PackedDocument:
    """The paragraphs that fit, as prose entries in the document's order, and how many lines did not."""

    entries: tuple[ContextEntry, ...]
    lines_left_out: int


def pack_document(
    text: str,
    budget: ContextBudget,
    counter: TokenCounter,
    *,
    overhead: int,
    sources: Mapping[str, Iterable[str]] | None = None,
) -> PackedDocument:
    """One prose entry per paragraph, from the top, until the budget is full.

    A document counts by its paragraphs, not as one item too large to show: the first paragraph that does not
    fit whole is cut at a line, and what follows is left out.

    Args:
        text: the document; blank lines separate paragraphs.
        budget: ``max_items`` bounds paragraphs, ``max_tokens`` the section as the slot will count it.
        counter: the slot's counter, so that everything packed here fits there.
        overhead: tokens of the fence.
        sources: line -> the events it comes from, where known.
    """
    paragraphs = [part.strip().splitlines() for part in _BLANK_LINES.split(text) if part.strip()]
    total = sum(map(len, paragraphs))
    room = None if budget.max_tokens is None else budget.max_tokens - overhead
    entries: list[ContextEntry] = []
    shown = 0
    for lines in paragraphs[: budget.max_items]:
        whole = _prose(lines, sources or {})
        if room is not None:
            cost = entry_cost(whole, counter)
            if cost > room:
                lines = lines[: _fitting(len(lines), _cost_of(lines, counter), room)]
                whole, room = _prose(lines, sources or {}), 0
            else:
                room -= cost
        if lines:
            entries.append(whole)
            shown += len(lines)
        if room == 0:
            break
    return PackedDocument(tuple(entries), total - shown)


def _prose(lines: list[str], sources: Mapping[str, Iterable[str]]) -> ContextEntry:
    known = dict.fromkeys(event_id for line in lines for event_id in sources.get(line, ()))
    return ContextEntry("\n".join(lines), event_ids=tuple(known), prose=True)


def _cost_of(lines: list[str], counter: TokenCounter) -> Callable[[int], int]:
    return lambda count: entry_cost(_prose(lines[:count], {}), counter)


def leading_lines(lines: list[str], max_tokens: int, counter: TokenCounter) -> int:
    return _fitting(len(lines), lambda count: counter.count("\n".join(lines[:count])), max_tokens)


def _fitting(lines: int, cost: Callable[[int], int], room: int) -> int:
    """How many leading lines cost at most ``room``; the cost grows with their number."""
    return bisect_right(range(1, lines + 1), room, key=cost)
