"""Sections of several scopes within one budget, without what the host still shows."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from memory.contract.formatting import relabel_section
from memory.contract.receipts import ContextEntry, RetrieveResult
from memory.slot.slot import MemorySlot


@dataclass(slots=True)
class Part:
    """What one scope, by a label such as ``user`` or ``project``, has for a prompt."""

    label: str
    result: RetrieveResult
    chosen: tuple[int, ...] = ()  # of its entries, by :func:`fit_parts`, in the backend's order
    section: str = field(default="", repr=False)

    @property
    def entries(self) -> list[ContextEntry]:
        return [self.result.entries[index] for index in self.chosen]


def digest_of(entry: ContextEntry) -> str:
    """By which an entry is known again, whichever scope and id it comes from."""
    return hashlib.sha256(" ".join(entry.text.split()).encode("utf-8", "replace")).hexdigest()[:20]


class ShownSections:
    """What hosts that keep their sections still show, by session: none of it is shown to them again.

    Args:
        slot: renders, and counts tokens.
        max_sessions: that are remembered; those of others may be shown something twice.
    """

    def __init__(self, slot: MemorySlot, max_sessions: int = 1000) -> None:
        self._slot = slot
        self._max_sessions = max_sessions
        self._shown: OrderedDict[str, set[str]] = OrderedDict()

    def new_in(self, session_id: str, result: RetrieveResult) -> Part:
        """The section of a retrieval without what the session's host shows."""
        shown, part = self._shown.get(session_id, set()), Part("user", result)
        fit_parts(self._slot, [part], lambda _, entry: digest_of(entry) in shown)
        return part

    def note(self, session_id: str, part: Part) -> None:
        """The host has got this."""
        self._shown.setdefault(session_id, set()).update(map(digest_of, part.entries))
        self._shown.move_to_end(session_id)
        if len(self._shown) > self._max_sessions:
            self._shown.popitem(last=False)

    def forget(self, session_id: str | None) -> None:
        """The session begins, ends or is made shorter: nothing is shown any more."""
        self._shown.pop(session_id or "", None)


def fit_parts(slot: MemorySlot, parts: Sequence[Part], hidden: Callable[[int, ContextEntry], bool]) -> str:
    """Choose entries for every part, each text once and none that is ``hidden``, and join their sections.

    Each part has an equal share of the tokens, and leaves what it does not need to others. Entries stay whole.
    """
    budget, seen = slot.budget, set[str]()

    def is_new(number: int, entry: ContextEntry) -> bool:
        digest = digest_of(entry)
        if digest in seen or hidden(number, entry):
            return False
        seen.add(digest)
        return True

    candidates = [_candidates(part.result, partial(is_new, number)) for number, part in enumerate(parts)]
    if (
        budget.max_items is not None and sum(map(len, candidates)) > budget.max_items
    ):  # one of each part in turn
        turns = ((place, number) for number, mine in enumerate(candidates) for place in range(len(mine)))
        for _, number in sorted(turns)[budget.max_items :]:
            candidates[number].pop()

    @cache
    def tokens(number: int, count: int) -> int:
        chosen = candidates[number][:count]
        return slot.token_counter.count(_render(slot, parts[number], chosen)) if chosen else 0

    def fitting(number: int, room: float) -> int:
        whole = len(candidates[number])
        if tokens(number, whole) <= room:
            return whole
        return bisect_right(range(1, whole + 1), room, key=lambda count: tokens(number, count))

    wanting = [number for number, mine in enumerate(candidates) if mine]
    room = float("inf") if budget.max_tokens is None else float(budget.max_tokens)
    counts: dict[int, int] = {}
    # Whoever needs less than an equal share is served first.
    wanting.sort(key=lambda number: tokens(number, len(candidates[number])))
    for place, number in enumerate(wanting):
        counts[number] = fitting(number, room / (len(wanting) - place))
        room -= tokens(number, counts[number])
    for number, part in enumerate(parts):
        part.chosen = tuple(candidates[number][: counts.get(number, 0)])
        part.section = _render(slot, part, part.chosen) if part.chosen else ""
    return "\n".join(part.section for part in parts if part.section)


def _candidates(result: RetrieveResult, is_new: Callable[[ContextEntry], bool]) -> list[int]:
    """Entries that were included and are new, and as many further ones as were not."""
    included = [index for index in result.included if result.entries[index].text.strip()]
    chosen = [index for index in included if is_new(result.entries[index])]
    known = set(included)
    for index, entry in enumerate(result.entries):
        if len(chosen) == len(included):
            break
        if index not in known and entry.text.strip() and is_new(entry):
            chosen.append(index)
    return sorted(chosen)


def _render(slot: MemorySlot, part: Part, chosen: Sequence[int]) -> str:
    if tuple(chosen) == part.result.included and part.result.formatted_context:
        return relabel_section(part.result.formatted_context, part.label)
    shown = part.result.model_copy(update={"formatted_context": "", "included": tuple(chosen)})
    return relabel_section(slot.format_context(shown), part.label)
