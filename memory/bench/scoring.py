"""Scoring one probe from what was retrieved, without a language model.

What this can say: whether what an answer needs was put before the agent, and what could mislead it. What it
cannot: whether an agent would use it. An exact phrase that a backend rewrote counts as missing, so for backends
that paraphrase these scores are lower bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.bench.timeline import EvidenceTruth, PreferenceTruth
from memory.contract.formatting import clean_text, render_entry
from memory.contract.receipts import ContextEntry, RetrieveResult

__all__ = ["EvidenceHit", "PreferenceHit", "score_evidence", "score_preference"]

_SPACE = re.compile(r"\s+")


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


def score_evidence(truth: EvidenceTruth, result: RetrieveResult, texts: Mapping[str, str]) -> EvidenceHit:
    """Count the gold turns in the context, by provenance and by text.

    Args:
        truth: the question's gold turns.
        result: what was retrieved; only entries that fit the budget count.
        texts: event id -> text of the turn.
    """
    named = {event_id for entry in result.context_entries for event_id in entry.event_ids}
    shown = _plain(result.formatted_context)
    return EvidenceHit(
        gold=len(truth.turns),
        unresolved=truth.unresolved,
        by_id=sum(turn in named for turn in truth.turns),
        by_text=sum(_plain(texts[turn]) in shown for turn in truth.turns),
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
    shown = _plain(result.formatted_context)
    return PreferenceHit(
        current=truth.current is not None and _plain(truth.current) in shown,
        stale=any(_plain(marker) in shown for marker in truth.stale),
        other=any(_plain(marker) in shown for marker in truth.other),
        unlabelled=any(
            _unlabelled(entry, marker, other_context)
            for entry in result.context_entries
            for marker in truth.other
        ),
        decoy=any(_plain(marker) in shown for marker in truth.decoys),
        leak=any(_plain(phrase) in shown for phrase in foreign),
        has_stale=bool(truth.stale),
        has_other=bool(truth.other),
    )


def _unlabelled(entry: ContextEntry, marker: str, context: str) -> bool:
    """Whether the entry shows the marker on a line that names no context."""
    name = re.compile(rf"\b{re.escape(context)}\b", re.IGNORECASE)
    labels = " ".join((entry.group or "", *(f"{key} {value}" for key, value in entry.labels)))
    if name.search(labels):
        return False
    lines = [line for line in render_entry(entry).splitlines() if _plain(marker) in _plain(line)]
    return any(not name.search(line) for line in lines)
