"""Scoring one probe from what was retrieved, without a language model.

What this can say: whether what an answer needs was put before the agent, and what could mislead it. What it
cannot: whether an agent would use it. An exact phrase that a backend rewrote counts as missing, so for backends
that paraphrase these scores are lower bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memory.bench.data.timeline import EvidenceTruth, PreferenceTruth
from memory.contract.formatting import clean_text, render_entry
from memory.contract.receipts import ContextEntry, RetrieveResult

_SPACE = re.compile(r"\s+")
_LONGEST_LABELS = 300
_LABEL_END = re.compile(r"[:)\]>-] ")


def _plain(text: str) -> str:
    """As the section shows it, without line breaks and indents, in lower case."""
    return _SPACE.sub(" ", clean_text(text)).strip().casefold()


@dataclass(frozen=True, slots=True)
class EvidenceHit:
    """How much of a question's evidence is in the retrieved context.

    Attributes:
        gold: gold turns that exist; 0 means the question is not scored.
        unresolved: gold ids of the data that name no turn.
        by_id: gold turns whose event id an entry in the context names.
        by_text: gold turns whose whole text stands in the context.
    """

    gold: int
    unresolved: int
    by_id: int
    by_text: int


class WholeTurns:
    """The turns of a conversation, found in a context by their whole text; part of a longer one is none.

    A turn may stand on a line of its own or an entry of its own, after a label such as ``user:`` or a date in
    brackets, and its line breaks may have become blanks. What quotes a turn within another is that other one.

    Args:
        texts: event id -> text of the turn.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._plain = {turn: _plain(text) for turn, text in texts.items()}
        self._known = {plain for plain in self._plain.values() if plain}
        lines = {len([line for line in text.splitlines() if line.strip()]) for text in texts.values()}
        self._heights = sorted(lines - {0}, reverse=True)

    def shown(self, section: str) -> frozenset[str]:
        """Event ids of the turns whose whole text is in a context section."""
        found: set[str] = set()
        lines = [plain for line in section.splitlines() if (plain := _plain(line))]
        at = 0
        while at < len(lines):
            # The tallest first, so that the first line of a turn is not taken for a turn of one line.
            for height in (*self._heights, 1):
                whole = self._whole(" ".join(lines[at : at + height]), len(lines[at]))
                if whole is not None:
                    found.add(whole)
                    break
            at += height
        return frozenset(turn for turn, plain in self._plain.items() if plain in found)

    def _whole(self, text: str, first_line: int) -> str | None:
        """The turn that a text is, whatever labels precede it in its first line, which has so many characters."""
        within = min(first_line, _LONGEST_LABELS)
        begins = [0, *(label.end() for label in _LABEL_END.finditer(text, 0, within))]
        return next((text[at:] for at in begins if text[at:] in self._known), None)


def score_evidence(truth: EvidenceTruth, result: RetrieveResult, turns: WholeTurns) -> EvidenceHit:
    """Count the gold turns in the context, by provenance and by text.

    Args:
        truth: the question's gold turns.
        result: what was retrieved; only entries that fit the budget count.
        turns: those of the conversation.
    """
    named = {event_id for entry in result.context_entries for event_id in entry.event_ids}
    shown = turns.shown(result.formatted_context)
    return EvidenceHit(
        gold=len(truth.turns),
        unresolved=truth.unresolved,
        by_id=sum(turn in named for turn in truth.turns),
        by_text=sum(turn in shown for turn in truth.turns),
    )


@dataclass(frozen=True, slots=True)
class PreferenceHit:
    """Which markers of a cell the retrieved context shows.

    Attributes:
        current: the value in force.
        stale: a value this cell had before.
        other: a value of the other context.
        unlabelled: a value of the other context, on a line that does not say which context it belongs to.
        decoy: a value that was only hearsay or a single exception.
        leak: a phrase of another persona.
        has_stale, has_other: whether the cell had an earlier value; whether the other context's differs.
    """

    current: bool
    stale: bool
    other: bool
    unlabelled: bool
    decoy: bool
    leak: bool
    has_stale: bool
    has_other: bool


def score_preference(
    truth: PreferenceTruth, result: RetrieveResult, *, other_context: str, foreign: Sequence[str] = ()
) -> PreferenceHit:
    """Look for the markers of a cell in the context.

    A line says which context it belongs to if it holds the context's name as a word, or if its entry's group or
    one of its labels does. A line without it reads as if it held everywhere.

    Args:
        truth: the cell's markers.
        result: what was retrieved; only what fit the budget counts.
        other_context: name of the context that was not asked for.
        foreign: phrases of other personas.
    """
    return PreferenceHit(
        **marks(truth, result.formatted_context, foreign),
        unlabelled=any(
            _unlabelled(entry, marker, other_context)
            for entry in result.context_entries
            for marker in truth.other
        ),
        has_stale=bool(truth.stale),
        has_other=bool(truth.other),
    )


def marks(truth: PreferenceTruth, section: str, foreign: Sequence[str]) -> dict[str, bool]:
    """The fields of a :class:`PreferenceHit` that the section alone decides."""
    shown = _plain(section)

    def any_of(markers: Iterable[str]) -> bool:
        return any(_plain(marker) in shown for marker in markers)

    return {
        "current": truth.current is not None and any_of([truth.current]),
        "stale": any_of(truth.stale),
        "other": any_of(truth.other),
        "decoy": any_of(truth.decoys),
        "leak": any_of(foreign),
    }


def _unlabelled(entry: ContextEntry, marker: str, context: str) -> bool:
    """Whether the entry shows the marker on a line that names no context."""
    name = re.compile(rf"\b{re.escape(context)}\b", re.IGNORECASE)
    labels = " ".join((entry.group or "", *(f"{key} {value}" for key, value in entry.labels)))
    if name.search(labels):
        return False
    lines = [line for line in render_entry(entry).splitlines() if _plain(marker) in _plain(line)]
    return any(not name.search(line) for line in lines)
